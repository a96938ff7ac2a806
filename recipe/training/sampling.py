"""Dynamic sampling with an end: verl's replay buffer, with a limit to the groups that a step may play.

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
from collections.abc import Callable
from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer


class GroupsAlike(RuntimeError):
    """Not enough groups differ in the metric, however many were played."""


class GroupsLost(RuntimeError):
    """Of more groups than allowed at most one episode came back."""


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
        options = {name: getattr(buffer, name) for name in inspect.signature(ReplayBuffer).parameters}
        return cls(max_batches, max_lost_share, **options)

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
        finished = self.finished_keys[partition_id]
        self.finished_keys[partition_id] = finished | self.failure_keys[partition_id]
        try:
            return super()._dapo_filtered_keys(partition_id)
        finally:
            self.finished_keys[partition_id] = finished

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
