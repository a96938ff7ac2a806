"""verl's buffer of the asynchronous trainers, with an end where groups are lost again and again."""

import inspect
from collections import Counter
from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from recipe.training.dynamic_sampling import GroupsLost


class AsyncSampling(ReplayBufferAsync):
    """verl's buffer of the asynchronous trainers, which plays another prompt for each group in which the reward raised.

    It would do so for ever; here `stage.max_lost_share` holds as in every mode.

    Args:
        max_lost_share: of the groups that a step has seen; more end the training.
        batch: groups that a step needs.
        options: those of verl's buffer.
    """

    lone = 0
    """Samples that were left out with a lost group: such a group is thrown away whole."""

    def __init__(self, max_lost_share: float, batch: int, **options: Any) -> None:
        super().__init__(**options)
        self.max_lost_share, self.batch = max_lost_share, batch
        self.lost = 0
        """Groups of this step that were thrown away because the reward raised in them."""

    @classmethod
    def instead_of(cls, buffer: ReplayBuffer, max_lost_share: float, batch: int) -> ReplayBuffer:
        """This buffer with the options of verl's; one of a user's own stays."""
        if type(buffer) is not ReplayBufferAsync:
            return buffer
        options = {name: getattr(buffer, name) for name in inspect.signature(ReplayBuffer).parameters}
        return cls(max_lost_share, batch, **options)

    @property
    def failed(self) -> int:
        """The same: nothing else makes it lose a group."""
        return self.lost

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> Any:
        """verl's batch and metrics.

        Raises:
            GroupsLost: too many groups were lost.
        """
        if partition_id != "val":
            self.lost = 0
        return super().sample(global_steps, partition_id, batch_size)

    def _terminal_eviction_reasons(self, global_steps: int, partition_id: str) -> tuple[set, set, set, Counter]:
        """verl's; counts what has failed."""
        reasons = super()._terminal_eviction_reasons(global_steps, partition_id)
        self.lost += len(reasons[2])
        if self.lost > self.max_lost_share * (self.batch + self.lost):
            raise GroupsLost(f"{self.lost} groups")
        return reasons
