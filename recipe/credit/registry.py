"""The estimators under the names by which verl finds them (`algorithm.adv_estimator`), and the inputs verl does not
give.

verl hands a registered estimator rewards, mask and the groups, but neither values nor which token belongs to which
step. `recipe.training.trainer` holds those here while verl's own `_compute_advantage` runs. Any other trainer gets an
error, not a silently different algorithm.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, register_adv_est
from verl.utils.config import omega_conf_to_dataclass

from recipe.credit import GROUPED, policy_loss, steps  # noqa: F401  registers the loss
from recipe.credit.estimators import gae_bad, gae_step, scores_of, turn_grpo


def columns_of(data: Any) -> dict[str, Tensor]:
    """`values`, `step_ids` and `turn_ids` of verl's nested columns, as far as they are there, padded to (B, T).

    verl's padding episodes carry the ids of another one: these are cut, and -1 under mask 0.
    """
    mask = data["response_mask"].to_padded_tensor(padding=0)
    found = {"values": data["values"].to_padded_tensor(padding=0.0)} if "values" in data else {}
    for name in ("step_ids", "turn_ids"):
        if name in data:
            padded = data[name].to_padded_tensor(padding=-1)[:, : mask.shape[1]]
            found[name] = torch.where(mask.bool(), padded, -1)
    return found


_columns: Mapping[str, Tensor] | None = None


@contextmanager
def given(columns: Mapping[str, Tensor], algorithm: Any) -> Iterator[None]:
    """Within it the registered estimators use these columns; a user's has them as keyword arguments."""
    global _columns
    _columns, estimate = columns, core_algos.get_adv_estimator_fn(algorithm.adv_estimator)
    if algorithm.credit.grouped is not None:
        ADV_ESTIMATOR_REGISTRY[algorithm.adv_estimator] = partial(estimate, **columns)
    try:
        yield
    finally:
        _columns, ADV_ESTIMATOR_REGISTRY[algorithm.adv_estimator] = None, estimate


def _inputs(name: str, needed: str) -> Mapping[str, Tensor]:
    if _columns is None or needed not in _columns:
        how = "a critic, the trainer of recipe/training/trainer.py and this recipe's agent loop give them"
        raise RuntimeError(f"algorithm.adv_estimator={name} needs {needed}; {how}")
    return _columns


def try_out(config: Any) -> None:
    """Raises ValueError where no module registers the loss, a user's loss of two rollouts is no finite number, or a
    user's estimator gives five rollouts no advantages."""
    actor, grouped = config.actor_rollout_ref.actor, config.algorithm.credit.grouped
    if (loss := core_algos.POLICY_LOSS_REGISTRY.get(name := actor.policy_loss.loss_mode)) is None:
        raise ValueError(f"no module registers the loss {name}")
    if not loss.__module__.startswith(("verl.", "recipe.")):
        ones, how = torch.ones(2, 3), {"loss_agg_mode": actor.loss_agg_mode, "config": omega_conf_to_dataclass(actor)}
        rows = {"old_log_prob": -ones, "log_prob": -ones, "advantages": ones, "response_mask": ones}
        mean, _ = loss(**rows, rollout_is_weights=None, **how)
        if mean.shape or not torch.isfinite(mean):
            raise ValueError(f"the loss {name} returns {mean}; expected a finite number, and metrics")
    if grouped is None:  # the estimator is verl's or ours
        return
    index = np.array([*"aabbc"][: 5 - grouped], object)  # only where groups do not count is a rollout left alone
    ids = torch.tensor([[0, 0, -1, 1, 1, -1]] * len(index))
    rewards, mask = torch.zeros(ids.shape), (ids >= 0).long()
    rewards[:, 4] = torch.tensor([1.0, 0.0, 0.5, 0.5, 1.0])[: len(index)]
    critic = {"values": torch.zeros(ids.shape)} if config.critic.enable else {}
    with given({"step_ids": ids, "turn_ids": ids, **critic}, config.algorithm):
        estimate = core_algos.get_adv_estimator_fn(config.algorithm.adv_estimator)
        found = estimate(token_level_rewards=rewards, response_mask=mask, index=index, config=config.algorithm)
    shapes = [tuple(one.shape) if torch.isfinite(one).all() else "not finite" for one in found]
    if shapes != [tuple(ids.shape)] * 2:
        raise ValueError(f"the estimator returns {shapes}; expected advantages and returns, {tuple(ids.shape)}, finite")


def _register(name: str, estimate: Callable[..., tuple[Tensor, Tensor]], *inside: str) -> None:
    """An estimator with a critic; `inside` are the settings of `algorithm.credit` that it takes beside `whiten`."""

    @register_adv_est(name)
    def registered(token_level_rewards: Tensor, response_mask: Tensor, config: Any, **_: Any) -> tuple[Tensor, Tensor]:
        columns = _inputs(name, "values")
        ids = columns["step_ids"] if "step_ids" in columns else steps.runs(response_mask)  # of another agent loop
        settings = {key: config.credit[key] for key in ("whiten", *inside)}
        discounts = {"gamma": config.gamma, "lam": config.lam}
        return estimate(token_level_rewards, columns["values"].float(), response_mask, ids, **discounts, **settings)


_register("gae_bad", gae_bad, "gamma_token", "lam_token")
_register("gae_step", gae_step)


def _exact(estimate: Any, token_level_rewards: Tensor, response_mask: Tensor, index: Any, **given: Any) -> Any:
    """An estimator of verl's. It would divide the rounding of a mean by the spread of equal rewards."""
    advantages, returns = estimate(scores_of(token_level_rewards, index), response_mask, index=index, **given)
    return advantages.to(token_level_rewards.dtype), returns.to(token_level_rewards.dtype)


ADV_ESTIMATOR_REGISTRY["grpo_vectorized"] = core_algos.compute_grpo_outcome_advantage  # its own goes back to float32
for _name in {*GROUPED} & {*ADV_ESTIMATOR_REGISTRY}:
    ADV_ESTIMATOR_REGISTRY[_name] = partial(_exact, ADV_ESTIMATOR_REGISTRY[_name])
core_algos.compute_grpo_outcome_advantage = ADV_ESTIMATOR_REGISTRY["grpo"]  # verl's trainer calls it by this name


@register_adv_est("turn_grpo")
def _turn_grpo(
    token_level_rewards: Tensor, response_mask: Tensor, config: Any, index: Any, **_: Any
) -> tuple[Tensor, Tensor]:
    ids = _inputs("turn_grpo", "turn_ids")["turn_ids"]
    how = {"gamma": config.gamma, "norm_by_std": config.norm_adv_by_std_in_grpo}
    return turn_grpo(token_level_rewards, response_mask, ids, list(index), **how)
