"""PPO loss with one probability ratio a step, which is one message of the model (`appo_step`), and the configuration
class that carries it to the workers.

verl's actor workers build their configuration from `_target_` and so import this module, which registers the loss
there: no environment variable or entry point is needed. `actor_rollout_ref.actor.policy_loss._target_` in base.yaml
names it.

verl gives a loss the response mask and no other column of the batch. The steps are therefore the runs of ones in the
mask; the agent loop makes sure that two steps never touch.
"""

from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.trainer.distillation import losses
from verl.trainer.ppo.core_algos import agg_loss, register_policy_loss
from verl.utils.metric import AggregationType, Metric
from verl.workers.config import ActorConfig, PolicyLossConfig

from recipe.credit import steps


@dataclass
class StepPolicyLossConfig(PolicyLossConfig):
    """verl's configuration of the policy loss and one setting more."""

    ratio_norm: str = "token_mean"
    """Ratio of a step: the mean over its tokens of the difference of log-probabilities (token_mean), or their
    sum, the ratio of the probabilities of the whole step (sum). A hundred tokens that each moved by 0.003 are
    clipped with sum."""


TOP = "forward_kl_topk"
_loss_range, _distillation_loss = losses.compute_distillation_loss_range, losses.distillation_loss
_likely = losses.DISTILLATION_LOSS_REGISTRY[TOP]


def _learned(response_mask: Tensor) -> bool:
    """Whether a micro-batch has a token that is learned: not one of a cut episode, or of rows that fill a batch up. If
    not, torch refuses the least of nothing, and its mean is NaN."""
    return bool((response_mask.values() if response_mask.is_nested else response_mask).any())


def loss_range(distillation_losses: Tensor, response_mask: Tensor) -> dict[str, Any]:
    """verl's least and largest price of a teacher's; 0 where no token is learned."""
    if _learned(response_mask):
        return _loss_range(distillation_losses, response_mask)
    how = {"loss_min": AggregationType.MIN, "loss_max": AggregationType.MAX, "abs_loss": AggregationType.MEAN}
    return {f"distillation/{name}": Metric(aggregation, 0.0) for name, aggregation in how.items()}


def distillation_loss(config: Any, distillation: Any, output: Any, data: TensorDict) -> tuple[Tensor, dict[str, Any]]:
    """verl's, with the correction of the rollouts padded, as its other columns are: torch refuses a nested one."""
    if (weights := data.get("rollout_is_weights")) is not None:
        data = data.clone(recurse=False).update({"rollout_is_weights": weights.to_padded_tensor(0.0)})
    loss, metrics = _distillation_loss(config, distillation, output, data)
    if distillation.distillation_loss.loss_mode == TOP:  # which has none, but for `loss_range`: ranks must have as many
        metrics.pop("distillation/abs_loss", None)
    return loss, metrics


def likely(config: Any, distillation_config: Any, model_output: Any, data: TensorDict) -> tuple[Tensor, dict[str, Any]]:
    """verl's loss of the teacher's most likely tokens; where no token is learned, its metrics are of all."""
    if not _learned(mask := data["response_mask"]):
        data = data.clone(recurse=False).update({"response_mask": torch.ones_like(mask)})
    return _likely(config=config, distillation_config=distillation_config, model_output=model_output, data=data)


losses.compute_distillation_loss_range, losses.distillation_loss = loss_range, distillation_loss
losses.DISTILLATION_LOSS_REGISTRY[TOP] = likely


@register_policy_loss("appo_step")
def appo_step(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: ActorConfig | None = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, Any]]:
    """Clipped PPO loss of steps. All tensors (B, T); the advantage of a step is the mean over its tokens.

    Steps count alike, however long: the seq-mean modes of `loss_agg_mode` take the mean over those of an episode, then
    over episodes. token-mean is that over the steps given, which is right where they are the whole batch: a training
    with it is refused. With one token a step it is verl's `vanilla`.

    Returns:
        loss, and verl's metrics of a policy loss, over steps instead of tokens.
    """
    assert config is not None
    ids = steps.runs(response_mask)
    size = steps.sizes(ids)
    there, safe_size = size > 0, size.clamp(min=1)
    difference = steps.sums(log_prob - old_log_prob, ids)
    if config.policy_loss.get("ratio_norm", "token_mean") == "token_mean":
        difference = difference / safe_size
    difference = difference.clamp(-20.0, 20.0)
    ratio = difference.exp()
    advantage = steps.sums(advantages, ids) / safe_size

    low, high = config.clip_ratio_low, config.clip_ratio_high
    free, clipped = -advantage * ratio, -advantage * ratio.clamp(1 - low, 1 + high)
    loss = torch.maximum(free, clipped)
    bounded = torch.minimum(loss, -advantage * config.clip_ratio_c)  # dual clip, as in verl's vanilla
    loss_of_step = torch.where(advantage < 0, bounded, loss)
    if rollout_is_weights is not None:
        loss_of_step = loss_of_step * steps.sums(rollout_is_weights, ids) / safe_size

    number = there.sum().clamp(min=1)
    total = agg_loss(loss_of_step, there, loss_agg_mode, **config.global_batch_info)
    return total, {
        "actor/pg_clipfrac": (clipped > free).sum().item() / number.item(),
        "actor/pg_clipfrac_lower": ((loss > bounded) & (advantage < 0)).sum().item() / number.item(),
        "actor/ppo_kl": -difference.detach().sum().item() / number.item(),
    }
