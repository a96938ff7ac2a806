"""Old log-probabilities without a pass of the trainer, in steps where the engine's are the same numbers.

Engine and trainer hold the same weights when a step is played, so what the engine sampled with are the old
log-probabilities, but for rounding. How large that is depends on kernels and precision, and is measured: the first step
of a start and then one of every `stage.old_log_probs_every` computes them with the trainer, as verl does in each. The
others take the engine's, as long as no token's log-probability differed by more than `TOLERANCE` in the last step that
was measured. Their `actor/ppo_kl` is then the mean difference of the two, and `actor/entropy` is not known.
"""

from functools import cached_property
from math import nan
from typing import Any

import transfer_queue as tq
from omegaconf import DictConfig
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from recipe.trajectories import is_offline

DIFFERENCE = "training/rollout_log_probs_diff_max"
"""The largest difference between the two log-probabilities of a token in a step. verl logs that of the probabilities,
which is small for every token that is unlikely."""

TOLERANCE = 1e-3
"""Rounding in float32 stays far below this; in bfloat16 it is above, and every step is measured."""


class Schedule:
    """Says of each step whether the trainer computes them.

    Args:
        every: `stage.old_log_probs_every`; 1 is every step.
    """

    def __init__(self, every: int) -> None:
        self.every, self._left, self._said = every, 0, False

    @classmethod
    def of(cls, config: DictConfig) -> "Schedule":
        """As the setting says; in every step where each token is corrected for, nothing was sampled here, or the
        engine's are not kept."""
        correction, kept = config.algorithm.rollout_correction, config.actor_rollout_ref.rollout.calculate_log_probs
        corrected = correction.rollout_is or correction.rollout_rs or correction.bypass_mode
        return cls(1 if corrected or is_offline(config) or not kept else config.stage.old_log_probs_every)

    @property
    def due(self) -> bool:
        """Whether the step that begins is to be measured."""
        return self._left == 0

    def measured(self, difference: float) -> None:
        """Takes the largest difference of a step that was; NaN is no agreement. The first one is said."""
        self._left = self.every - 1 if difference <= TOLERANCE else 0
        if not (self._left or self._said):
            self._said = True
            print(
                f"NOTE engine and trainer differ by {difference:.1e} in a token's log-probability, more than "
                f"{TOLERANCE:g}: after such a step the next is measured too (stage.old_log_probs_every={self.every})",
                flush=True,
            )

    def skipped(self) -> None:
        """Notes a step that took the engine's."""
        self._left -= 1


class OldLogProbs(PPOTrainer):
    """What a trainer whose episodes are all of its own policy leaves out."""

    _compared = True
    """Whether the trainer computed those of this step."""

    @cached_property
    def _schedule(self) -> Schedule:
        return Schedule.of(self.config)

    def _compute_old_log_prob(self, batch: Any, metrics: dict) -> Any:
        """verl's, in the steps that measure; in the others the engine's, stored as verl's own bypass mode does."""
        self._compared = self._schedule.due
        if self._compared:
            batch = super()._compute_old_log_prob(batch, metrics)
            if self._schedule.every > 1:
                metrics[DIFFERENCE] = _difference(batch)
                self._schedule.measured(metrics[DIFFERENCE])
            return batch
        self._schedule.skipped()
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["rollout_log_probs"])
        data["old_log_probs"] = data.pop("rollout_log_probs")
        tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=data)
        return batch

    def _compute_advantage(self, batch: Any, metrics: dict) -> Any:
        """verl's, without its comparison of engine and trainer where these are the same numbers."""
        batch = super()._compute_advantage(batch, metrics)
        if not self._compared:
            for name in [name for name in metrics if name.startswith("rollout_corr/")]:
                del metrics[name]
        return batch


def _difference(batch: Any) -> float:
    """The largest difference over the tokens that the model wrote, of a batch that has both log-probabilities."""
    names = ["old_log_probs", "rollout_log_probs", "response_mask"]
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names).to_padded_tensor()
    apart = (data["old_log_probs"] - data["rollout_log_probs"]).abs()
    written = apart[data["response_mask"].bool()]
    return written.max().item() if written.numel() else nan
