"""One stored trajectory, whatever file it comes from, and what is wrong with one that cannot be used."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from interaction.token_rewards import rewards_of
from interaction.trajectory import Trajectory


class Mistake(ValueError):
    """What is wrong with a trajectory: the field, and what was expected of it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a trajectory stands."""

    path: Path
    at: int
    """Byte at which its line begins, or its row."""
    name: str
    """For people: `line 3` or `row 3`, both from 1."""

    def __str__(self) -> str:
        return f"{self.path}, {self.name}"


@dataclass(frozen=True, slots=True)
class Stored:
    """One trajectory."""

    group: str
    """Trajectories of one group are attempts at one task, which estimators such as GRPO compare."""
    source: str
    """Data source, such as `bfcl/base`: metrics are logged by it."""
    trajectory: Trajectory
    """Token ids, mask, log-probabilities where they were stored, steps."""
    score: float
    step_scores: list[float] | None
    """One for each step; None where there is the score alone."""
    reward: Mapping[str, float] = field(default_factory=dict)
    """What else the reward returned; logged as it is in a stage that plays."""
    truncated: bool = False
    """Whether a token limit cut it, as `interaction.overlong.train=false` asks."""


def check_rewards(stored: Stored) -> None:
    """The scores are finite, one a step, and sum up.

    Raises:
        Mistake: they are not.
    """
    spans, mask = stored.trajectory.spans, stored.trajectory.mask
    try:
        rewards_of(stored.score, stored.step_scores, steps=len(spans), spans=spans, mask=mask)
    except (ValueError, OverflowError) as error:
        raise Mistake(f"score, step_scores: {error}") from error
