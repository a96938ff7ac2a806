"""The estimators under the names by which verl finds them (`algorithm.adv_estimator`), and the inputs verl does not
give.

verl hands a registered estimator rewards, mask and the groups, but neither values nor which token belongs to which
step. `recipe.training.trainer` reads those and holds them here while verl's own `_compute_advantage` runs, so that
verl's KL in the reward and its rollout correction stay in force. Any other trainer gets an error, not a silently
different algorithm.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from verl.trainer.ppo.core_algos import register_adv_est

from recipe.credit import policy_loss, steps  # noqa: F401  registers the loss
from recipe.credit.estimators import gae_bad, gae_step, turn_grpo


@dataclass(frozen=True)
class Columns:
    """Columns of the batch, padded on the right to (B, T); None where the batch has none."""

    values: Tensor | None
    step_ids: Tensor | None
    turn_ids: Tensor | None

    @classmethod
    def of(cls, data: Any) -> "Columns":
        """From verl's nested columns. verl's padding episodes carry the ids of another one: cut, and -1 under mask
        0."""
        mask = data["response_mask"].to_padded_tensor(padding=0)

        def ids(name: str) -> Tensor | None:
            if name not in data:
                return None
            padded = data[name].to_padded_tensor(padding=-1)[:, : mask.shape[1]]
            return torch.where(mask.bool(), padded, -1)

        values = data["values"].to_padded_tensor(padding=0.0) if "values" in data else None
        return cls(values, ids("step_ids"), ids("turn_ids"))


_columns: Columns | None = None


@contextmanager
def given(columns: Columns) -> Iterator[None]:
    """Within it the registered estimators use these columns."""
    global _columns
    _columns = columns
    try:
        yield
    finally:
        _columns = None


def _inputs(name: str) -> Columns:
    if _columns is None:
        raise RuntimeError(f"algorithm.adv_estimator={name} works only with the trainer of recipe/training/trainer.py")
    return _columns


def _register(name: str, estimate: Callable[..., tuple[Tensor, Tensor]], *inside: str) -> None:
    """An estimator with a critic; `inside` are the settings of `algorithm.credit` that it takes beside `whiten`."""

    @register_adv_est(name)
    def registered(token_level_rewards: Tensor, response_mask: Tensor, config: Any, **_: Any) -> tuple[Tensor, Tensor]:
        columns = _inputs(name)
        if columns.values is None:
            raise RuntimeError(f"algorithm.adv_estimator={name} needs a critic's values. Set critic.enable=true")
        ids = columns.step_ids if columns.step_ids is not None else steps.runs(response_mask)  # of another agent loop
        ids = torch.where(response_mask.bool(), ids, -1)
        settings = {key: config.credit[key] for key in ("whiten", *inside)}
        discounts = {"gamma": config.gamma, "lam": config.lam}
        return estimate(token_level_rewards, columns.values.float(), response_mask, ids, **discounts, **settings)


_register("gae_bad", gae_bad, "gamma_token", "lam_token")
_register("gae_step", gae_step)


@register_adv_est("turn_grpo")
def _turn_grpo(
    token_level_rewards: Tensor, response_mask: Tensor, config: Any, index: Any, **_: Any
) -> tuple[Tensor, Tensor]:
    columns = _inputs("turn_grpo")
    if columns.turn_ids is None:
        raise RuntimeError("algorithm.adv_estimator=turn_grpo needs turn_ids, which this recipe's agent loop writes")
    return turn_grpo(
        token_level_rewards,
        response_mask,
        torch.where(response_mask.bool(), columns.turn_ids, -1),
        list(index),
        gamma=config.gamma,
        norm_by_std=config.norm_adv_by_std_in_grpo,
    )
