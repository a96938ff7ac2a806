"""Replay buffers of verl's with an end: dynamic sampling, and groups that are lost again and again.

With `algorithm.filter_groups.enable=true` verl trains only on groups whose episodes differ in
`algorithm.filter_groups.metric`, and plays other prompts in place of the rest (DAPO, arXiv 2503.14476, section 3.2). It
goes on for ever where all groups are alike, takes a group that the engine lost for one whose reward lacks the metric,
and does not look at a group in which the reward raised. The buffers here look at all of them, and count:

- a group whose episodes are all alike is *filtered*: its samples were good and are not lost;
- a group of which no episode came back, or a single one, which differs from nothing, is *lost*: another one is played
  for it and `stage.max_lost_share` applies;
- after `stage.max_gen_batches` batches of prompts a step that is still not full ends the training with a message.
"""

import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from omegaconf import DictConfig
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync


class GroupsAlike(RuntimeError):
    """Not enough groups differ in the metric, however many were played."""


class GroupsLost(RuntimeError):
    """Of more groups than allowed at most one episode came back."""


class Counting(ReplayBuffer):
    """Counts the lost groups of a step; more than `stage.max_lost_share` of the groups it has seen end the training.

    Args:
        config: of the stage.
        options: those of verl's buffer.
    """

    verls: type[ReplayBuffer]
    """The buffer of verl's that this one replaces."""

    def __init__(self, config: DictConfig, **options: Any) -> None:
        super().__init__(**options)
        self.config, self._step = config, 0
        self._start_step()

    @classmethod
    def instead_of(cls, buffer: ReplayBuffer, config: DictConfig) -> ReplayBuffer | Self:
        """This buffer with the options of verl's; a user's own stays."""
        if type(buffer) is not cls.verls:
            return buffer
        return cls(config, **{name: getattr(buffer, name) for name in inspect.signature(ReplayBuffer).parameters})

    def _start_step(self) -> None:
        self.lost = 0
        """Groups with fewer than two episodes."""
        self.failed = 0
        """Groups in which the reward raised: those of them, and in asynchronous modes those of the batch."""
        self.lone = 0
        """Samples of lost groups, which are left out."""

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> Any:
        """verl's batch and metrics.

        Raises:
            GroupsAlike: the limit was reached before there were enough groups.
            GroupsLost: too many groups were lost.
        """
        self._enter(global_steps, partition_id)
        return super().sample(global_steps, partition_id, batch_size)

    def _enter(self, global_steps: int, partition_id: str) -> None:
        if partition_id != "val" and global_steps != self._step:
            self._step = global_steps
            self._start_step()

    def _lost(self, partition_id: str, uids: set[str]) -> set[str]:
        """Which of these groups are lost."""
        keys = [key.split("_") for key in self.partitions[partition_id]]  # {uid}_{rollout}_{number of the output}
        episodes = Counter(uid for uid, _ in {(key[0], key[1]) for key in keys})
        return {uid for uid in uids if episodes[uid] < 2}

    def _count(self, partition_id: str, lost: set[str]) -> None:
        self.lost += len(lost)
        self.failed += len(self.failure_keys[partition_id] & lost)
        self.lone += sum(key.split("_")[0] in lost for key in self.partitions[partition_id])
        if self.lost > self.config.stage.max_lost_share * (self.config.data.train_batch_size + self.lost):
            raise GroupsLost(f"{self.lost} groups")

    @contextmanager
    def _failed_too(self, partition_id: str) -> Iterator[None]:
        """Within it verl's buffer takes groups that lost an episode to the reward for finished ones."""
        finished = self.finished_keys[partition_id]
        self.finished_keys[partition_id] = finished | self.failure_keys[partition_id]
        try:
            yield
        finally:
            self.finished_keys[partition_id] = finished


class DynamicSampling(Counting):
    """verl's buffer of the synchronous trainer, for runs that filter groups."""

    verls = ReplayBuffer
    train_batch_size: int

    def __init__(self, config: DictConfig, **options: Any) -> None:
        super().__init__(config, **options)
        self._play: Callable[[int], Any] = options["refill_fn"]
        self.refill_fn = self._refill

    @classmethod
    def instead_of(cls, buffer: ReplayBuffer, config: DictConfig) -> ReplayBuffer | Self:
        """This buffer where verl's filters groups."""
        filters = getattr(buffer, "filter_groups_metric", None) is not None
        return super().instead_of(buffer, config) if filters else buffer

    def _start_step(self) -> None:
        super()._start_step()
        self.played = self.train_batch_size
        """Groups of this step, those still running included."""
        self.alike: Counter[float] = Counter()
        """Value of the metric -> filtered groups."""

    def _refill(self, prompts: int) -> None:
        """Play so many more prompts, as far as the limit allows."""
        prompts = min(prompts, self.config.stage.max_gen_batches * self.train_batch_size - self.played)
        if prompts > 0:
            self.played += prompts
            self._play(prompts)

    def _terminal_eviction_reasons(self, global_steps: int, partition_id: str) -> tuple[set, set, set, Counter]:
        """verl's, which tells apart what is evicted why; groups that were lost as a whole are with the failed ones."""
        if partition_id == "val":
            return super()._terminal_eviction_reasons(global_steps, partition_id)
        finished, failed = self.finished_keys[partition_id], self.failure_keys[partition_id]
        lost = self._lost(partition_id, finished | failed)
        self._count(partition_id, lost)
        finished -= lost  # or verl would look for the metric in episodes that are not there
        failed -= lost
        stale, alike, others, values = super()._terminal_eviction_reasons(global_steps, partition_id)
        self.alike.update(values)
        return stale, alike, others | lost, values

    def _dapo_filtered_keys(self, partition_id: str) -> tuple[set, Counter]:
        """verl's, which looks at finished groups only; those that lost an episode to the reward are among them here."""
        with self._failed_too(partition_id):
            return super()._dapo_filtered_keys(partition_id)

    def _wait_for_next_poll(self, partition_id: str, last_debug_time: float) -> float:
        """verl's; it is asked for when the batch is not full, so nothing must be left to wait for here."""
        if partition_id == "val" or self.pending_keys[partition_id] | self.running_keys[partition_id]:
            return super()._wait_for_next_poll(partition_id, last_debug_time)
        found = len(self.finished_keys[partition_id] | self.failure_keys[partition_id])
        values = ", ".join(f"{number} at {value:g}" for value, number in self.alike.most_common(5))
        raise GroupsAlike(
            f"only {found} of the {self.train_batch_size} groups that a step needs differ in "
            f"algorithm.filter_groups.metric={self.filter_groups_metric}: {self.played} groups were played, "
            f"stage.max_gen_batches={self.config.stage.max_gen_batches} batches, and in {self.alike.total()} all "
            f"rollouts had one value ({values}). Take another stage or a metric that differs sooner, or raise "
            "actor_rollout_ref.rollout.temperature, rollout.n or stage.max_gen_batches; start again to resume."
        )


class AsyncSampling(Counting, ReplayBufferAsync):
    """verl's buffer of the asynchronous trainers, which plays another prompt for each group in which the reward raised.

    It would do so for ever, and for one episode throw its whole group away. Here a group is trained on as long as two
    of its episodes came back, as in every mode.
    """

    verls = ReplayBufferAsync

    def _stale_terminal_keys(self, global_steps: int, partition_id: str) -> set[str]:
        """verl's, which looks at finished groups only; those that lost an episode to the reward get as old."""
        with self._failed_too(partition_id):
            return super()._stale_terminal_keys(global_steps, partition_id)

    def _terminal_eviction_reasons(self, global_steps: int, partition_id: str) -> tuple[set, set, set, Counter]:
        """verl's, but of the groups in which the reward raised those alone that have fewer than two episodes left."""
        stale, alike, failed, values = super()._terminal_eviction_reasons(global_steps, partition_id)
        return stale, alike, self._lost(partition_id, failed), values

    def wait_for_sampleable(self, global_steps: int, partition_id: str, target_count: int) -> Any:
        """verl's. With `enable_switch` the trainer calls it too, before it samples."""
        self._enter(global_steps, partition_id)
        return super().wait_for_sampleable(global_steps, partition_id, target_count)

    def _evict_terminal_groups(self, global_steps: int, partition_id: str, reasons: Any) -> Any:
        """verl's; counts lost groups, once: their reasons are looked at several times."""
        self._count(partition_id, reasons[2])
        return super()._evict_terminal_groups(global_steps, partition_id, reasons)

    def _materialize_batch(self, partition_id: str, selected_prompt_uids: list[str], *given: Any) -> Any:
        """verl's; counts the groups in it in which the reward raised."""
        if partition_id != "val":
            self.failed += len(self.failure_keys[partition_id] & {*selected_prompt_uids})
        return super()._materialize_batch(partition_id, selected_prompt_uids, *given)
