"""Notice that a worker has died while the trainer waits for what it will never send.

verl hands prompts to the agent loop's workers and then looks into a queue until all answers are there. A worker that
the kernel has killed for its memory puts nothing there, and the trainer would look for ever. Every other worker's death
reaches the trainer as an exception of the call it makes.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import ray

EVERY = 5.0
"""Seconds between two questions to the workers."""


class WorkerWatch:
    """Asks each worker now and then whether it is there, without waiting for the answers."""

    def __init__(self, workers: Sequence[Any]) -> None:
        self._workers = list(workers)
        self._asked: list[Any] = []
        self._at = 0.0

    def __call__(self) -> None:
        """Look at the answers, and ask again.

        Raises:
            ray.exceptions.RayActorError: a worker has died.
        """
        if time.monotonic() - self._at < EVERY:
            return
        self._at = time.monotonic()
        if self._asked:
            answered, waiting = ray.wait(self._asked, num_returns=len(self._asked), timeout=0)
            ray.get(answered)
            if waiting:
                return
        self._asked = [worker.__ray_ready__.remote() for worker in self._workers]

    def before(self, wait: Callable[..., Any]) -> Callable[..., Any]:
        """`wait`, but looked before."""

        def watched(*args: Any, **kwargs: Any) -> Any:
            self()
            return wait(*args, **kwargs)

        return watched
