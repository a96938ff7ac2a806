"""verl's synchronous trainer with the metrics of this recipe.

verl logs the extra values of a reward in validation only, waits two seconds between looks into its replay buffer,
and trains on whatever samples are left when some were lost. This subclass logs the values in training as well, per
category, makes the wait a setting, and stops when too many samples are lost. Everything else is `super()`.
"""

import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

import transfer_queue as tq
from omegaconf import DictConfig
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync


class CurriculumTrainer(PPOTrainerSync):
    """One stage of the curriculum. `recipe.train` puts it into verl's registry under the name "sync"."""

    def __init__(self, config: DictConfig):
        super().__init__(config)
        self.replay_buffer.poll_interval = config.stage.poll_interval

    def _init_dataloader(self) -> None:
        """verl's data loaders; notes how many steps they make, which only verl knows after its length filter."""
        super()._init_dataloader()
        if self.total_training_steps < 1:
            raise ValueError(
                f"{len(self.train_dataset)} rows of data.train_files={self.config.data.train_files} pass verl's length "
                f"filter, fewer than data.train_batch_size={self.config.data.train_batch_size}: no step would be "
                "made. Raise data.max_prompt_length or lower data.train_batch_size."
            )
        note = Path(self.config.paths.stage) / "total_steps.json"
        note.write_text(json.dumps({"total_steps": self.total_training_steps}) + "\n")

    def _compute_metrics(self, batch: Any, metrics: dict, timing_raw: dict, global_steps: int, epoch: int) -> None:
        """verl's metrics of a step, then those of the reward: `train/<name>` and `train/<data_source>/<name>`."""
        super()._compute_metrics(batch, metrics, timing_raw, global_steps, epoch)
        metrics.update(self._reward_metrics(batch))

    def _reward_metrics(self, batch: Any) -> dict[str, float]:
        keys = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding", False)]
        expected = self.config.data.train_batch_size * self.config.actor_rollout_ref.rollout.n
        lost = 1.0 - len(keys) / expected
        if lost > self.config.stage.max_lost_share:
            raise RuntimeError(
                f"{expected - len(keys)} of {expected} samples of step {self.global_steps} were lost because the "
                f"inference engine failed; more than stage.max_lost_share={self.config.stage.max_lost_share} allows. "
                "The log above says how it failed. The last checkpoint is intact; start again to resume from it."
            )
        data = tq.kv_batch_get(
            keys=keys, partition_id=batch.partition_id, select_fields=["data_source", "extra_fields"]
        )
        values = defaultdict(list)
        for source, extra in zip(data.pop("data_source").tolist(), data.pop("extra_fields").tolist(), strict=True):
            for name, value in extra.get("reward_extra_info", {}).items():
                if isinstance(value, int | float):
                    values[f"train/{name}"].append(value)
                    values[f"train/{source}/{name}"].append(value)
        return {"train/lost_samples": lost, **{name: fmean(numbers) for name, numbers in values.items()}}
