"""Old log-probabilities without a pass of the trainer, in steps where the engine's are the same numbers.

Engine and trainer hold the same weights when a step is played, so the engine's are the old log-probabilities, but for
rounding. That is measured: the first step of a start and then one of every `stage.old_log_probs_every` computes them
with the trainer. The others take the engine's, as long as a token's differed by no more than `TOLERANCE` in the mean of
the last step that was measured; `actor/entropy` is then not known. With one update a step, `recipe.cpu.engine` takes
the policy's own in their place, so that no ratio weighs rounding.
"""

from functools import cached_property
from typing import Any

import transfer_queue as tq
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from recipe.settings import is_offline, on_policy

DIFFERENCE = "training/rollout_log_probs_diff_mean"
"""The mean difference between the two log-probabilities of a token in a step. verl logs that of the probabilities,
which is small for every token that is unlikely."""

TOLERANCE = 0.05
"""Rounding came to .005 to .024 in bfloat16, and to far less in float32."""


class OldLogProbs(PPOTrainer):
    """What a trainer whose episodes are all of its own policy leaves out."""

    _to_skip = 0  # steps that still take the engine's
    _compared = True  # whether the trainer computed those of this step

    @cached_property
    def _every(self) -> int:
        """The setting; 1 where rounding would be weighed, nothing was sampled here, or the engine's are not kept."""
        config, correction = self.config, self.config.algorithm.rollout_correction
        weighed = correction.rollout_is or correction.rollout_rs or config.algorithm.use_kl_in_reward
        kept = config.actor_rollout_ref.rollout.calculate_log_probs and not is_offline(config)
        return config.stage.old_log_probs_every if kept and on_policy(config) and not weighed else 1

    def _compute_old_log_prob(self, batch: Any, metrics: dict) -> Any:
        """verl's, in the steps that measure; in the others the engine's, stored as verl's own bypass mode does."""
        self._compared = self._to_skip == 0
        rows: Any = {"keys": batch.keys, "partition_id": batch.partition_id}
        if not self._compared:
            self._to_skip -= 1
            data = tq.kv_batch_get(**rows, select_fields=["rollout_log_probs"])
            data["old_log_probs"] = data.pop("rollout_log_probs")
            tq.kv_batch_put(**rows, fields=data)
            return batch
        batch = super()._compute_old_log_prob(batch, metrics)
        if self._every > 1:
            names = ["old_log_probs", "rollout_log_probs", "response_mask"]
            data = tq.kv_batch_get(**rows, select_fields=names).to_padded_tensor()
            apart = (data["old_log_probs"] - data["rollout_log_probs"]).abs()[data["response_mask"].bool()]
            metrics[DIFFERENCE] = difference = apart.mean().item()  # NaN of none
            self._to_skip = self._every - 1 if difference <= TOLERANCE else 0  # NaN is no agreement
        return batch

    def _compute_advantage(self, batch: Any, metrics: dict) -> Any:
        """verl's, without its comparison of engine and trainer where these are the same numbers."""
        batch = super()._compute_advantage(batch, metrics)
        if not self._compared:
            for name in [*metrics]:
                if name.startswith("rollout_corr/"):
                    del metrics[name]
        return batch
