"""The estimators under the names by which verl finds them (`algorithm.adv_estimator`), and the inputs verl does not
give.

verl hands a registered estimator rewards, mask and the groups, but neither values nor which token belongs to which
step. `recipe.training.trainer` reads those and holds them here while verl's own `_compute_advantage` runs, so that
verl's KL in the reward and its rollout correction stay in force. Any other trainer gets an error, not a silently
different algorithm.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from verl.trainer.ppo.core_algos import get_adv_estimator_fn, get_policy_loss_fn, register_adv_est

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


def _inputs(name: str, critic: bool) -> Columns:
    if _columns is None:
        raise RuntimeError(f"algorithm.adv_estimator={name} works only with the trainer of recipe/training/trainer.py")
    if critic and _columns.values is None:
        raise RuntimeError(
            f"algorithm.adv_estimator={name} needs values, and there is no critic. Set critic.enable=true"
        )
    return _columns


def _steps(columns: Columns, mask: Tensor) -> Tensor:
    """Ids of steps; from the mask where the agent loop is another than ours and gives none."""
    return steps.runs(mask) if columns.step_ids is None else torch.where(mask.bool(), columns.step_ids, -1)


@register_adv_est("gae_bad")
def _gae_bad(token_level_rewards: Tensor, response_mask: Tensor, config: Any, **_: Any) -> tuple[Tensor, Tensor]:
    columns, credit = _inputs("gae_bad", critic=True), config.credit
    assert columns.values is not None
    return gae_bad(
        token_level_rewards,
        columns.values.float(),
        response_mask,
        _steps(columns, response_mask),
        gamma=config.gamma,
        lam=config.lam,
        gamma_token=credit.gamma_token,
        lam_token=credit.lam_token,
        whiten=credit.whiten,
    )


@register_adv_est("gae_step")
def _gae_step(token_level_rewards: Tensor, response_mask: Tensor, config: Any, **_: Any) -> tuple[Tensor, Tensor]:
    columns = _inputs("gae_step", critic=True)
    assert columns.values is not None
    return gae_step(
        token_level_rewards,
        columns.values.float(),
        response_mask,
        _steps(columns, response_mask),
        gamma=config.gamma,
        lam=config.lam,
        whiten=config.credit.whiten,
    )


@register_adv_est("turn_grpo")
def _turn_grpo(
    token_level_rewards: Tensor, response_mask: Tensor, config: Any, index: Any, **_: Any
) -> tuple[Tensor, Tensor]:
    columns = _inputs("turn_grpo", critic=False)
    if columns.turn_ids is None:
        raise RuntimeError(
            "algorithm.adv_estimator=turn_grpo needs the column turn_ids, which the agent loop `bfcl` writes"
        )
    return turn_grpo(
        token_level_rewards,
        response_mask,
        torch.where(response_mask.bool(), columns.turn_ids, -1),
        list(index),
        gamma=config.gamma,
        norm_by_std=config.norm_adv_by_std_in_grpo,
    )


def check_names(config: Any) -> None:
    """Raises ValueError for an estimator or a policy loss that nobody registered; verl would raise it in the first
    step."""
    for key, name, find in (
        ("algorithm.adv_estimator", config.algorithm.adv_estimator, get_adv_estimator_fn),
        (
            "actor_rollout_ref.actor.policy_loss.loss_mode",
            config.actor_rollout_ref.actor.policy_loss.loss_mode,
            get_policy_loss_fn,
        ),
    ):
        try:
            find(name)
        except ValueError as error:
            raise ValueError(
                f"{key}={name} is not known: {error}. Set one that is, or choose by algorithm=NAME"
            ) from error
