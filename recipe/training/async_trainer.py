"""Playing on while the policy is updated: verl's asynchronous trainers as a stage of the curriculum.

Prompts are handed out ahead of the batch that is waited for. On the devices that train (`colocate_async`) the engine is
interrupted as soon as a batch of groups is finished; on devices of its own (`separate_async`) it plays through the
update. An episode may be older than the policy, in parts or as a whole: verl bounds it
(`trainer.v1.sampler.max_off_policy_threshold`), logs it and corrects for it (`algorithm.rollout_correction`).
"""

import json
import logging
from pathlib import Path
from typing import Any

import transfer_queue as tq
from verl.trainer.ppo.v1 import trainer_separate_async
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync
from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync

from recipe.files import write_atomic
from recipe.stage.metrics_log import note_trained
from recipe.stage.state import QUEUE_FILE
from recipe.training.sampling import AsyncSampling
from recipe.training.trainer import Curriculum


class PlayingOn(Curriculum):
    """What a stage adds to either of verl's asynchronous trainers."""

    def _build_replay_buffer(self) -> Any:
        """verl's, with an end."""
        return AsyncSampling.instead_of(super()._build_replay_buffer(), self.config)

    def _save_checkpoint(self) -> None:
        """As everywhere, with a note that it holds what is in play, before verl calls it whole."""
        self._checkpoint.mkdir(parents=True, exist_ok=True)
        rollouts = self.config.actor_rollout_ref.rollout.n
        write_atomic(self._checkpoint / QUEUE_FILE, json.dumps({"rollouts": rollouts}))
        super()._save_checkpoint()

    def _load_checkpoint(self) -> None:
        """As everywhere. The batch that the step was trained on was saved with it, and is not needed again."""
        super()._load_checkpoint()
        found = (tq.kv_list("train") or {}).get("train", {})
        prompts = {key for key, tag in found.items() if tag.get("is_prompt", False)}
        if trained_on := [key for key in found if not {key, key.rsplit("_", 2)[0]} & prompts]:
            tq.kv_clear(keys=trained_on, partition_id="train")

    def _compute_metrics(self, batch: Any, metrics: dict, timing_raw: dict, global_steps: int, epoch: int) -> None:
        """As everywhere; then which episodes the step was trained on, which lie under the step of their prompts."""
        super()._compute_metrics(batch, metrics, timing_raw, global_steps, epoch)
        note_trained(Path(self.config.paths.stage), global_steps, batch.keys, batch.tags)


class AsyncTrainer(PlayingOn, PPOTrainerColocateAsync):
    """One stage of the curriculum. `recipe.train` puts it into verl's registry under the name "colocate_async"."""


class Unflushed(logging.LoggerAdapter):
    """verl's logger without `flush`, which verl 0.9.1 asks of it where engines have devices of their own."""

    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        """Without that argument, of which a logger would raise."""
        return msg, {name: value for name, value in kwargs.items() if name != "flush"}


class SeparateTrainer(PlayingOn, PPOTrainerSeparateAsync):
    """One stage of the curriculum. `recipe.train` puts it into verl's registry under the name "separate_async"."""

    def _setup(self) -> None:
        """verl's, which ends with a line for the log."""
        trainer_separate_async.logger = Unflushed(trainer_separate_async.logger)  # type: ignore[assignment]
        super()._setup()

    def _compute_old_log_prob(self, batch: Any, metrics: dict) -> Any:
        """That of the other modes: verl's own first copies all weights to the host, for further updates of a batch."""
        return PPOTrainer._compute_old_log_prob(self, batch, metrics)
