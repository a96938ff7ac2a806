"""Replay buffers of verl's with an end: dynamic sampling, and groups that are lost again and again.

With `algorithm.filter_groups.enable=true` verl trains only on groups whose episodes differ in
`algorithm.filter_groups.metric`, and plays other prompts in place of the rest (DAPO, arXiv 2503.14476, section 3.2). It
goes on for ever where all groups are alike, as they are when a model solves nothing or everything, takes a group that
the engine lost for one whose reward lacks the metric, and does not look at a group in which the reward raised for an
episode. This buffer looks at all of them, and counts:

- a group whose episodes are all alike is *filtered*: its samples were good and are not lost;
- a group of which no episode came back, or a single one, which differs from nothing, is *lost*: another one is played
  for it and `stage.max_lost_share` applies;
- after `stage.max_gen_batches` batches of prompts a step that is still not full ends the training with a message.
"""

import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync


class GroupsAlike(RuntimeError):
    """Not enough groups differ in the metric, however many were played."""


class GroupsLost(RuntimeError):
    """Of more groups than allowed at most one episode came back."""


def _options(buffer: ReplayBuffer) -> dict[str, Any]:
    return {name: getattr(buffer, name) for name in inspect.signature(ReplayBuffer).parameters}


@contextmanager
def _failed_too(buffer: ReplayBuffer, partition_id: str) -> Iterator[None]:
    """Within it verl's buffer takes groups that lost an episode to the reward for finished ones."""
    finished = buffer.finished_keys[partition_id]
    buffer.finished_keys[partition_id] = finished | buffer.failure_keys[partition_id]
    try:
        yield
    finally:
        buffer.finished_keys[partition_id] = finished


class DynamicSampling(ReplayBuffer):
    """verl's buffer of the synchronous trainer, for runs that filter groups.

    Args:
        max_batches: prompts that a step may play, in batches of `train_batch_size`.
        max_lost_share: of the groups a step needs, lost ones included; more end the training.
        options: those of verl's buffer.
    """

    train_batch_size: int
    filter_groups_metric: str

    def __init__(self, max_batches: int, max_lost_share: float, **options: Any) -> None:
        super().__init__(**options)
        self.max_batches, self.max_lost_share = max_batches, max_lost_share
        self._play: Callable[[int], Any] = options["refill_fn"]
        self.refill_fn = self._refill
        self._start_step()

    @classmethod
    def instead_of(cls, buffer: ReplayBuffer, max_batches: int, max_lost_share: float) -> ReplayBuffer:
        """This buffer with the options of verl's, where that one filters groups; otherwise that one."""
        if type(buffer) is not ReplayBuffer or buffer.filter_groups_metric is None:
            return buffer
        return cls(max_batches, max_lost_share, **_options(buffer))

    def _start_step(self) -> None:
        self.played = self.train_batch_size
        """Groups of this step, those still running included."""
        self.lost = 0
        """Groups with fewer than two episodes."""
        self.failed = 0
        """Those of them in which the reward raised."""
        self.lone = 0
        """Samples of lost groups, which are left out: those of single episodes."""
        self.alike: Counter[float] = Counter()
        """Value of the metric -> filtered groups."""

    @property
    def filtered(self) -> int:
        """Groups of this step whose episodes were all alike."""
        return self.alike.total()

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> Any:
        """verl's batch and metrics.

        Raises:
            GroupsAlike: the limit was reached before there were enough groups.
            GroupsLost: too many groups were lost.
        """
        if partition_id != "val":
            self._start_step()
        return super().sample(global_steps, partition_id, batch_size)

    def _refill(self, prompts: int) -> None:
        """Play so many more prompts, as far as the limit allows."""
        prompts = min(prompts, self.max_batches * self.train_batch_size - self.played)
        if prompts > 0:
            self.played += prompts
            self._play(prompts)

    def _terminal_eviction_reasons(self, global_steps: int, partition_id: str) -> tuple[set, set, set, Counter]:
        """verl's, which tells apart what is evicted why; groups that were lost as a whole are with the failed ones."""
        if partition_id == "val":
            return super()._terminal_eviction_reasons(global_steps, partition_id)
        keys = [key.split("_") for key in self.partitions[partition_id]]  # {uid}_{rollout}_{number of the output}
        episodes = Counter(uid for uid, _ in {(key[0], key[1]) for key in keys})
        finished, failed = self.finished_keys[partition_id], self.failure_keys[partition_id]
        lost = {uid for uid in finished | failed if episodes[uid] < 2}
        self.lost += len(lost)
        self.lone += sum(key[0] in lost for key in keys)
        self.failed += len(failed & lost)
        finished -= lost  # or verl would look for the metric in episodes that are not there
        failed -= lost
        stale, alike, others, values = super()._terminal_eviction_reasons(global_steps, partition_id)
        self.alike.update(values)
        if self.lost > self.max_lost_share * (self.train_batch_size + self.lost):
            raise GroupsLost(f"{self.lost} of {self.played} groups")
        return stale, alike, others | lost, values

    def _dapo_filtered_keys(self, partition_id: str) -> tuple[set, Counter]:
        """verl's, which looks at finished groups only; those that lost an episode to the reward are among them here."""
        with _failed_too(self, partition_id):
            return super()._dapo_filtered_keys(partition_id)

    def _wait_for_next_poll(self, partition_id: str, last_debug_time: float) -> float:
        """verl's; it is asked for when the batch is not full, so nothing must be left to wait for here."""
        if partition_id != "val" and not self.pending_keys[partition_id] | self.running_keys[partition_id]:
            raise GroupsAlike(self._alike_text(partition_id))
        return super()._wait_for_next_poll(partition_id, last_debug_time)

    def _alike_text(self, partition_id: str) -> str:
        found = len(self.finished_keys[partition_id] | self.failure_keys[partition_id])
        values = ", ".join(f"{number} at {value:g}" for value, number in self.alike.most_common(5))
        return (
            f"only {found} of the {self.train_batch_size} groups that a step needs differ in "
            f"algorithm.filter_groups.metric={self.filter_groups_metric}: {self.played} groups were played, "
            f"stage.max_gen_batches={self.max_batches} batches, and in {self.filtered} of them all episodes were alike "
            f"({values}). Where the model fails at everything, start from a better one or an easier stage, raise "
            "actor_rollout_ref.rollout.temperature or n, or choose a metric that differs sooner (progress, reward). "
            "Where it solves everything, the stage has nothing left to teach: set a gate. Or raise "
            "stage.max_gen_batches, or set algorithm.filter_groups.enable=false. Nothing of this step was trained on "
            "and the last checkpoint is intact; start again to resume from it."
        )


class AsyncSampling(ReplayBufferAsync):
    """verl's buffer of the asynchronous trainers, which plays another prompt for each group in which the reward raised.

    It would do so for ever, and for one episode throw its whole group away. Here a group is trained on as long as two
    of its episodes came back, as in every mode, and `stage.max_lost_share` holds.

    Args:
        max_lost_share: of the groups that a step has seen; more end the training.
        batch: groups that a step needs.
        options: those of verl's buffer.
    """

    def __init__(self, max_lost_share: float, batch: int, **options: Any) -> None:
        super().__init__(**options)
        self.max_lost_share, self.batch = max_lost_share, batch
        self.lost = 0
        """Groups of this step that were thrown away: the reward raised in them, and at most one episode came back."""
        self.lone = 0
        """Samples of these."""
        self.failed = 0
        """Groups in which the reward raised: these, and those of the step's batch."""

    @classmethod
    def instead_of(cls, buffer: ReplayBuffer, max_lost_share: float, batch: int) -> ReplayBuffer:
        """This buffer with the options of verl's; one of a user's own stays."""
        if type(buffer) is not ReplayBufferAsync:
            return buffer
        return cls(max_lost_share, batch, **_options(buffer))

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> Any:
        """verl's batch and metrics.

        Raises:
            GroupsLost: too many groups were lost.
        """
        if partition_id != "val":
            self.lost = self.lone = self.failed = 0
        return super().sample(global_steps, partition_id, batch_size)

    def _stale_terminal_keys(self, global_steps: int, partition_id: str) -> set[str]:
        """verl's, which looks at finished groups only; those that lost an episode to the reward get as old."""
        with _failed_too(self, partition_id):
            return super()._stale_terminal_keys(global_steps, partition_id)

    def _terminal_eviction_reasons(self, global_steps: int, partition_id: str) -> tuple[set, set, set, Counter]:
        """verl's, but of the groups in which the reward raised those alone that have fewer than two episodes left."""
        stale, alike, failed, values = super()._terminal_eviction_reasons(global_steps, partition_id)
        keys = [key.split("_") for key in self.partitions[partition_id]]  # {uid}_{rollout}_{number of the output}
        left = Counter(uid for uid, _ in {(key[0], key[1]) for key in keys})
        lost = {uid for uid in failed if left[uid] < 2}
        self.lost += len(lost)
        self.failed += len(lost)
        self.lone += sum(left[uid] for uid in lost)
        if self.lost > self.max_lost_share * (self.batch + self.lost):
            raise GroupsLost(f"{self.lost} groups")
        return stale, alike, lost, values

    def _materialize_batch(self, partition_id: str, selected_prompt_uids: list[str], *given: Any) -> Any:
        """verl's; counts the groups in it in which the reward raised."""
        if partition_id != "val":
            self.failed += len(self.failure_keys[partition_id] & {*selected_prompt_uids})
        return super()._materialize_batch(partition_id, selected_prompt_uids, *given)
