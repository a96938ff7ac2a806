"""Learning from stored trajectories with verl's synchronous trainer: they take the place of what is played.

verl's data loader draws from `StoredRows` (`data.custom_cls`). Where its agent loops would play what was drawn,
`StoredTrajectories` (`rollout.agent.agent_loop_manager_class`) puts the stored episodes into TransferQueue, by the same
functions as the agent loop's worker. `OfflineTrainer` builds no engine. All that follows is what every stage does.
"""

import asyncio
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import transfer_queue as tq
from omegaconf import DictConfig, open_dict
from tensordict import TensorDict
from torch.utils.data import Dataset
from verl import DataProto
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ
from verl.workers.utils.padding import response_to_nested

from interaction.episode_output import EpisodeOutput
from recipe.offline.trajectories import Limits, Place, Stored, Survey, read, survey
from recipe.stage.state import BATCHES_FILE
from recipe.training.alarms import not_finite
from recipe.training.trainer import CurriculumTrainer


@lru_cache(maxsize=1)
def _survey(files: tuple[str, ...], *given: Any) -> Survey:
    """Once for both data sets that verl makes: of training, and of the validation, which is off."""
    return survey([Path(file) for file in files], *given)


@dataclass(frozen=True)
class Row:
    """What verl's data loader carries for a row, in one piece: lists it would take apart."""

    places: tuple[Place, ...]
    trajectories: tuple[Stored, ...]


class StoredRows(Dataset):
    """Named in `data.custom_cls`. A row is a group of trajectories, or one where none are compared."""

    def __init__(self, data_files: Any, tokenizer: Any, config: DictConfig, max_samples: int = -1, **_: Any) -> None:
        given = config.stored
        self.tokenizer, self.limits = tokenizer, Limits(**given.limits)
        found = _survey(tuple(data_files), self.limits, tokenizer, given.vocabulary)
        if found.mistakes:
            raise RuntimeError(f"stored trajectories have changed since the start: {found.mistakes[0]}")
        rows = found.items(given.grouped)
        self.rows = rows[:max_samples] if max_samples > 0 else rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> dict[str, Any]:
        """A row as verl's `collate_fn` takes it."""
        places = self.rows[number]
        row = Row(tuple(places), tuple(read(place, self.limits, self.tokenizer) for place in places))
        return {"number": torch.tensor([number]), "raw_prompt": "", "stored": row}


class _Worker(AgentLoopWorkerTQ.__ray_metadata__.modified_class):  # type: ignore[name-defined]
    """verl's worker of the agent loop, of which only the end is used: an episode goes into TransferQueue."""

    def __init__(self) -> None:
        self.processor, self.reward_loop_worker_handles, self.distillation_enabled = None, None, False


class StoredTrajectories:
    """In place of verl's manager of agent loops."""

    def __init__(self, config: DictConfig) -> None:
        self.batches = Path(config.paths.stage) / BATCHES_FILE  # a resumed step is written again
        self.log_probs = bool(config.data.stored.log_probs)
        self.worker = _Worker()

    @classmethod
    def create(cls, config: DictConfig, **_: Any) -> "StoredTrajectories":
        """As verl asks for it; there is neither an engine nor a reward to be given."""
        return cls(config)

    def generate_sequences(self, batch: Any) -> None:
        """Put the stored trajectories of the rows that verl has drawn where it looks for what was played."""
        step, places = int(batch["global_steps"]), list[str]()
        for uid, row in zip(batch["uid"], batch["stored"], strict=True):
            places += map(str, row.places)
            for number, stored in enumerate(row.trajectories):
                about = {"uid": uid, "session_id": number, "global_steps": step, "data_source": stored.source}
                asyncio.run(self.worker._agent_loop_postprocess(output_of(stored, self.log_probs), False, **about))
            tq.kv_put(key=uid, partition_id="train", tag={"status": "finished"})
        with self.batches.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, "trajectories": places}) + "\n")


def output_of(stored: Stored, log_probs: bool) -> EpisodeOutput:
    """A stored trajectory in the form in which an agent loop returns an episode.

    Args:
        log_probs: whether those of the model that sampled it go along.
    """
    trajectory = stored.trajectory
    scores = {} if stored.step_scores is None else {"step_scores": stored.step_scores}
    return EpisodeOutput(
        prompt_ids=trajectory.prompt,
        response_ids=trajectory.response,
        response_mask=trajectory.mask,
        response_logprobs=trajectory.log_probs if log_probs else None,
        reward_score=stored.score,
        num_turns=2 * len(trajectory.spans),
        metrics=AgentLoopMetrics(),
        extra_fields={
            "min_global_steps": 0,  # it is as old as the start
            "max_global_steps": 0,
            "truncated": stored.truncated,
            "reward_extra_info": {**stored.reward, **scores},
        },
        spans=trajectory.spans,
    )


class OfflineTrainer(CurriculumTrainer):
    """One stage that learns from stored trajectories. `recipe.train` puts it into verl's registry under "sync"."""

    _enable_hybrid_replicas = False  # verl's: no inference engine

    def __init__(self, config: DictConfig):
        with open_dict(config):
            config.reward.num_workers = 0  # every trajectory has its reward
            config.actor_rollout_ref.rollout.nnodes = 1  # verl asks for some before it makes no engine on them
        super().__init__(config)
        self.alarms = not_finite  # the others are about what is played

    def on_init_end(self) -> None:
        """There is no engine to give weights to."""

    on_step_end = on_init_end

    def _compute_advantage(self, batch: Any, metrics: dict) -> Any:
        """As everywhere, a KL in the reward with it. Then the start model's log-probabilities may become the old ones,
        and what corrects for them."""
        updated, correction = super()._compute_advantage(batch, metrics), self.config.algorithm.rollout_correction
        if self.config.offline.old_log_probs != "start":
            return updated
        names = ["ref_log_prob", *(["rollout_log_probs", "response_mask"] if correction.rollout_is else [])]
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names)
        fields = {"old_log_probs": data["ref_log_prob"]}
        if correction.rollout_is:
            padded = DataProto(batch=data.to_padded_tensor())
            padded.batch["old_log_probs"] = padded.batch["ref_log_prob"]
            padded, found = compute_rollout_correction_and_add_to_batch(padded, correction)
            metrics.update(found)
            fields["rollout_is_weights"] = response_to_nested(padded.batch["rollout_is_weights"], data["response_mask"])
        given = TensorDict(fields, batch_size=len(batch))
        tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=given)
        return updated

    def _missing_share(self, samples: int) -> float:
        """None is lost: groups of fewer than `rollout.n` are what they are."""
        return 0.0
