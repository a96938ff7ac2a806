"""Where the time of one episode goes, as the episode lives through it.

Waiting in a queue counts for what was waited for: the engine's, the one thread of all environments, a user model's free
connection. So the seconds of many episodes add up to far more than the step that played them, and say, as shares, what
its episodes were waiting for.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Literal

Cause = Literal["generate", "environment", "user"]


@dataclass(slots=True)
class Clock:
    """Runs from the moment it is made. Attempts that a fault has ended are counted with the one that counts."""

    generate: float = 0.0
    """Seconds that it waited for the engine."""
    environment: float = 0.0
    """For its environment: opening it, parsing, calls, judging."""
    user: float = 0.0
    """For whoever plays the user."""
    _began: float = field(default_factory=perf_counter)
    _played: float | None = None

    @contextmanager
    def waiting(self, cause: Cause) -> Iterator[None]:
        """Count what is done within."""
        began = perf_counter()
        try:
            yield
        finally:
            setattr(self, cause, getattr(self, cause) + perf_counter() - began)

    def stop(self) -> None:
        """The last word was said; from now on it waits for its reward."""
        self._played = perf_counter()

    def seconds(self) -> dict[str, float]:
        """By what it was for, `reward`, and `total`, which is more than their sum: tokens are encoded, events wait."""
        now = perf_counter()
        parts = {"generate": self.generate, "environment": self.environment, "user": self.user}
        parts["reward"] = 0.0 if self._played is None else now - self._played
        return {name: round(value, 4) for name, value in {**parts, "total": now - self._began}.items()}
