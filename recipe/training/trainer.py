"""verl's trainers with the metrics of this recipe.

It logs the values of a reward in training as well as in validation, per category, raises alarms, stops when too many
samples are lost, and leaves the stage at its gate. Everything else is `super()`. One step of verl's:

    rollouts         interaction/agent_loop.py, with the engine's log-probabilities
    rewards          recipe/reward.py calls the reward; `rm_scores` has it on tokens (interaction/token_rewards.py)
    old log-probs    of the policy before the update (old_log_probs.py), and of the reference
    advantages       verl.trainer.ppo.core_algos, recipe/credit/estimators.py
    update           the actor's loss is one of verl.trainer.ppo.core_algos or recipe/credit/policy_loss.py
    weights          to the engine

Faults are counted apart: the model's as `stop/*`; the environment's as `stop/environment_error`; those of the engine,
of services behind tools and of a played user as `engine_faults`, `tool_faults` and `user_faults` (episodes played
again, per sample) and, together with the reward's, as `lost_samples`; the reward's alone as `failed_rewards` (share of
prompts that lost samples to it). Dynamic sampling leaves out `filtered_groups`, a share of `played_groups`.

verl takes the raw score of a rollout whose siblings were all lost for its advantage. Here it is left out of the step
(`lone_samples`) and counts, with the lost ones, against `stage.max_lost_share`.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import transfer_queue as tq
from omegaconf import DictConfig, OmegaConf
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from recipe import reward
from recipe.credit import is_grouped, registry
from recipe.credit.kl_control import EpisodeKLController, episode_kl
from recipe.settings import is_offline, on_policy
from recipe.stage import choosing
from recipe.stage.end import StageEnd
from recipe.stage.state import prune
from recipe.training.alarms import Alarms
from recipe.training.left_out import leave_out_cut_episodes
from recipe.training.old_log_probs import OldLogProbs
from recipe.training.resampling import Resampler, progress_of, resampled
from recipe.training.sampling import AsyncSampling, Counting, DynamicSampling, GroupsLost


def _played(batch: KVBatchMeta) -> list[str]:
    """The keys of its samples, without those that verl has filled it up with."""
    return [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding", False)]


class Curriculum(PPOTrainer):
    """What a stage of the curriculum adds to a trainer of verl's, whatever its mode."""

    total_training_steps: int
    train_dataloader: Any
    resampler: Resampler | None = None
    """Of the training rows, with `stage.resample.pool`."""
    _kl_controller: EpisodeKLController | None = None

    def __init__(self, config: DictConfig):
        super().__init__(config)
        self.replay_buffer.poll_interval = config.stage.poll_interval
        taught = OmegaConf.select(config, "distillation.enabled")
        rewarded = not taught or config.distillation.distillation_loss.use_task_rewards
        self.alarms: Callable[[Mapping[str, float]], list[str]] = Alarms(config.stage.alarms, rewarded)
        control = config.algorithm.kl_ctrl
        if config.algorithm.use_kl_in_reward and control.type == "adaptive":
            self._kl_controller = EpisodeKLController(control.kl_coef, control.target_kl, control.horizon)
            self.kl_ctrl_in_reward = self._kl_controller

    def _build_replay_buffer(self) -> Any:
        """verl's; with `algorithm.filter_groups` one that knows when to stop."""
        return DynamicSampling.instead_of(super()._build_replay_buffer(), self.config)

    def _init_dataloader(self) -> None:
        """verl's data loaders; stops where they make no step, which only verl knows after its length filter."""
        if not self.config.data.val_files:  # nothing is validated, and verl makes a data set of some rows all the same
            self.config.data.val_files = self.config.data.train_files
        super()._init_dataloader()
        if self.total_training_steps < 1:
            given, batch = len(self.train_dataset), f"data.train_batch_size={self.config.data.train_batch_size}"
            found = f"{given} rows pass verl's length filter, fewer than {batch}"
            raise ValueError(f"{found}. Raise data.max_prompt_length or lower the batch.")
        if self.config.stage.resample.pool:
            processors = {"tokenizer": self.tokenizer, "processor": self.processor}
            self.train_dataloader = resampled(self.config, self.train_dataloader, **processors)
            self.resampler = self.train_dataloader.sampler

    def fit(self, agent_loop_manager: Any) -> None:
        """verl's training, which the stage's gate may end early."""
        planned = min(self.total_training_steps, self.steps_per_epoch * self.config.trainer.total_epochs)
        self.stage_end = StageEnd(self.config, planned, self.global_steps)
        self.total_training_steps = self.stage_end.last
        self.config.trainer.val_before_train |= self.stage_end.owed is not None
        self.config.trainer.val_only |= self.global_steps >= self.stage_end.last
        super().fit(agent_loop_manager)

    def _validate(self) -> dict[str, float]:
        """verl's; one that an earlier start owes may be of the best step, or reach the gate."""
        metrics = super()._validate()
        if self.global_steps == self.stage_end.owed:
            self.total_training_steps = self.stage_end(self.global_steps, metrics)
        return metrics

    @property
    def _checkpoint(self) -> Path:
        """Folder of the checkpoint of this step."""
        return Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"

    def _load_checkpoint(self) -> None:
        """verl's; then the KL coefficient that the checkpoint had come to."""
        super()._load_checkpoint()
        if self.global_steps and self._kl_controller:
            known = self._kl_controller.load(self._checkpoint)
            source = "of the checkpoint" if known else "as at the start: the checkpoint has none"
            print(f"KL coefficient {self._kl_controller.value:.4g} {source}", flush=True)

    def _save_checkpoint(self) -> None:
        """verl's checkpoint; then the old ones go, those of earlier starts too, which verl does not know."""
        if self._kl_controller:  # before verl calls the checkpoint whole
            self._kl_controller.save(self._checkpoint)
        super()._save_checkpoint()
        prune(self.config)

    def _compute_metrics(self, batch: Any, metrics: dict, timing_raw: dict, global_steps: int, epoch: int) -> None:
        """verl's metrics of a step, then those of the reward: `train/<name>` and `train/<data_source>/<name>`."""
        super()._compute_metrics(batch, metrics, timing_raw, global_steps, epoch)
        metrics.update(self._reward_metrics(batch))
        if self.resampler and (not global_steps % self.steps_per_epoch or global_steps >= self.total_training_steps):
            metrics.update(self.resampler.metrics())
        for line in self.alarms(metrics):
            print(f"{line} (step {global_steps})", flush=True)
        self.total_training_steps = self.stage_end(global_steps, metrics)

    def step(self, metrics: dict, timing_raw: dict) -> Any:
        """verl's step; says what happened where no sample, or of too many groups none, came back.

        The progress of its tasks is noted here, before a checkpoint is saved.
        """
        try:
            batch = super().step(metrics, timing_raw)
        except GroupsLost as error:
            kept = self.config.data.train_batch_size * self.config.actor_rollout_ref.rollout.n
            raise RuntimeError(self._lost_text(kept, self.replay_buffer.lone, self.replay_buffer.failed)) from error
        except RuntimeError as error:
            if "no materializable trajectories" not in str(error):
                raise
            raise RuntimeError(self._lost_text(0, 0, len(self.replay_buffer.failure_keys["train"]))) from error
        if self.resampler:
            fields = ["extra_info", "extra_fields"]
            keys = _played(batch)
            data = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=fields)
            self.resampler.observe(progress_of(data))
        return batch

    def on_sample_end(self) -> None:
        """Notes in how many prompts the reward raised, before the replay buffer looks again."""
        super().on_sample_end()
        buffer = self.replay_buffer
        self.failed_prompts = buffer.failed if isinstance(buffer, Counting) else 0
        if not isinstance(buffer, AsyncSampling):  # its failures may be those of later steps
            self.failed_prompts += len(buffer.failure_keys["train"])

    @property
    def _prompts(self) -> int:
        """Prompts played for a step: its batch, and one for each group that was lost."""
        lost = self.replay_buffer.lost if isinstance(self.replay_buffer, Counting) else 0
        return self.config.data.train_batch_size + lost

    def _lost_text(self, kept: int, lone: int, failed_prompts: int) -> str:
        expected = self._prompts * self.config.actor_rollout_ref.rollout.n
        path, name = reward.named(self.config.reward.custom_reward_function)
        cause = "the inference engine failed, or whoever plays the user (interaction.user)"
        cause += ", or gold (from_gold)" * bool(OmegaConf.select(self.config, "interaction.train.from_gold"))
        if failed_prompts:
            cause = f"the reward {name} of {path} failed for {failed_prompts} prompts"
            cause += ", or the teacher" * bool(OmegaConf.select(self.config, "distillation.enabled"))
        return (
            f"{expected - kept - lone} of {expected} samples of step {self.global_steps} were lost because {cause}; "
            f"{lone} more are alone in their group. stage.max_lost_share={self.config.stage.max_lost_share} allows "
            "fewer. The log above has each failure; start again to resume."
        )

    def _missing_share(self, samples: int) -> float:
        return 1.0 - samples / (self._prompts * self.config.actor_rollout_ref.rollout.n)

    def _balance_batch(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        """verl's first look at the samples of a step. Stops here, before the update, if too many are missing."""
        batch = self._with_siblings(batch)
        if not batch.keys or self._missing_share(len(batch.keys)) > self.config.stage.max_lost_share:
            raise RuntimeError(self._lost_text(len(batch.keys), self.lone_samples, self.failed_prompts))
        return super()._balance_batch(batch, *args, **kwargs)

    def _with_siblings(self, batch: KVBatchMeta) -> KVBatchMeta:
        """The samples without those that are alone in their group, where groups are compared."""
        self.lone_samples = self.replay_buffer.lone if isinstance(self.replay_buffer, DynamicSampling) else 0
        if not is_grouped(self.config.algorithm):
            return batch
        rollouts = {key.rsplit("_", 1)[0] for key in batch.keys}  # keys are {uid}_{rollout}_{number of the output}
        size = Counter(rollout.rsplit("_", 1)[0] for rollout in rollouts)
        kept = [key for key in batch.keys if size[key.rsplit("_", 2)[0]] > 1]
        self.lone_samples += len(batch.keys) - len(kept)
        if len(kept) == len(batch.keys):
            return batch
        tq.kv_clear(keys=sorted(set(batch.keys) - set(kept)), partition_id=batch.partition_id)
        return batch.select_keys(kept)

    def _compute_ref_log_prob(self, batch: Any, metrics: dict) -> Any:
        """verl's, without its mark `no_lora_adapter` on the batch: the critic comes next and has no adapter."""
        batch = super()._compute_ref_log_prob(batch, metrics)
        batch.extra_info.pop("no_lora_adapter", None)
        return batch

    def _update_actor(self, batch: Any, metrics: dict) -> Any:
        """verl's, with a mark for the CPU engine (recipe/cpu/engine.py)."""
        batch.extra_info["on_policy"] = on_policy(self.config)
        return super()._update_actor(batch, metrics)

    def _compute_advantage(self, batch: Any, metrics: dict) -> Any:
        """verl's advantages, with what the estimators of `recipe.credit` need beside; then the overlong filter."""
        names = ["response_mask", "values", "step_ids", "turn_ids"]
        if self._kl_controller:
            names += ["old_log_probs", "ref_log_prob"]
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names)
        with registry.given(registry.columns_of(data), self.config.algorithm):
            updated = super()._compute_advantage(batch, metrics)
        if self._kl_controller:
            estimator = "low_var_kl" if is_offline(self.config) else self.config.algorithm.kl_penalty
            kl, episodes = episode_kl(data, estimator)
            self._kl_controller.observe(kl, episodes)
            metrics["actor/reward_kl_per_episode"] = kl
        if not self.config.interaction.overlong.train:
            metrics["train/overlong_left_out"] = leave_out_cut_episodes(tq, batch)
        return updated

    def _reward_metrics(self, batch: Any) -> dict[str, float]:
        keys = _played(batch)
        names = ["data_source", "extra_fields", "rm_scores"]
        data = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=names)
        scores: dict[str, list[float]] = defaultdict(list)
        for key, score in zip(keys, data["rm_scores"].sum(dim=1).tolist(), strict=True):
            scores[key.rsplit("_", 2)[0]].append(round(score, 5))
        alike = [len({*group}) == 1 for group in scores.values() if len(group) > 1]
        values: dict[str, list[float]] = defaultdict(list)
        for source, extra in zip(data.pop("data_source").tolist(), data.pop("extra_fields").tolist(), strict=True):
            for name, value in extra.get("reward_extra_info", {}).items():
                if isinstance(value, int | float):
                    values[f"train/{name}"].append(value)
                    values[f"train/{source}/{name}"].append(value)
            for name in ("engine_faults", "tool_faults", "user_faults"):
                values[f"train/{name}"].append(extra.get(name, 0))
            for name, value in extra.get("seconds", {}).items():
                values[f"train/seconds/{name}"].append(value)
        found = {
            "train/lost_samples": self._missing_share(len(keys) + self.lone_samples),
            "train/failed_rewards": self.failed_prompts / self._prompts,
            "train/lone_samples": self.lone_samples,
        }
        if alike:
            found["train/groups_alike"] = fmean(alike)
        if isinstance(buffer := self.replay_buffer, DynamicSampling):
            found["train/played_groups"] = float(buffer.played)
            found["train/filtered_groups"] = buffer.alike.total() / buffer.played
        return found | {name: fmean(numbers) for name, numbers in values.items()}

    def _val_metrics_update(
        self, data_sources: list[str], sample_uids: list[str], infos: dict[str, list], *args: Any, **kwargs: Any
    ) -> dict[str, float]:
        """verl's metrics of a validation, which are per category, and those of `stage.choosing` over all of them."""
        metrics = super()._val_metrics_update(data_sources, sample_uids, infos, *args, **kwargs)
        metrics.update(choosing.validation_metrics(data_sources, infos))
        if expected := sum((kwargs.get("expected_acc_counts") or {}).values()):
            metrics["val/lost_samples"] = 1.0 - len(sample_uids) / expected
        return metrics


class CurriculumTrainer(OldLogProbs, Curriculum, PPOTrainerSync):
    """One stage of the curriculum. `recipe.train` puts it into verl's registry under the name "sync"."""
