"""verl's buffer of the asynchronous trainers, with an end where groups are lost again and again."""

import inspect
from collections import Counter
from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from recipe.training.dynamic_sampling import GroupsLost


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
        options = {name: getattr(buffer, name) for name in inspect.signature(ReplayBuffer).parameters}
        return cls(max_lost_share, batch, **options)

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
        finished = self.finished_keys[partition_id]
        self.finished_keys[partition_id] = finished | self.failure_keys[partition_id]
        try:
            return super()._stale_terminal_keys(global_steps, partition_id)
        finally:
            self.finished_keys[partition_id] = finished

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
