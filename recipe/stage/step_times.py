"""Where the time of training steps went.

verl logs how long each part of a step took (`timing_s/<name>`). The part in which episodes are played is one of them;
what these waited for in it (`train/seconds/<name>`, `interaction/clock.py`) divides it. Episodes are played side by
side, so this is a division by what the average episode waited for, not by what the machine did.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from math import isfinite
from pathlib import Path

from recipe.stage.metrics_log import read_steps

GENERATION, ENVIRONMENT, USERS, REWARDS, REST = "generation", "environment", "users", "rewards", "rest"

TIMED: dict[str, tuple[str, ...]] = {
    GENERATION: ("gen", "switch_wait"),
    ENVIRONMENT: (),
    USERS: (),
    REWARDS: ("reward",),
    "log-probs": ("old_log_prob", "ref"),
    "values": ("values",),
    "update": ("update_actor",),
    "critic update": ("update_critic",),
    "weights": ("update_weights", "switch_to_rollout", "switch_to_trainer"),
    "checkpoint": ("save_checkpoint",),
    "validation": ("testing",),
    REST: (),
}
"""Parts of a step in the order of a drawing, and verl's names for them; `rest` is what is left of the step."""

OUTSIDE = "testing"
"""Of these the one that verl does not count into the step."""

WAITED = {ENVIRONMENT: "environment", USERS: "user", REWARDS: "reward"}
"""Parts of generation, by their names in `train/seconds/`."""


def parts_of(numbers: Mapping[str, float]) -> dict[str, float]:
    """Seconds of one step by part, in the order of `TIMED`, only parts that it has; empty where no time was logged.

    Where episodes do not say what they waited for, as those of earlier releases, all is `generation`.
    """
    if (whole := _seconds(numbers, "timing_s/step")) is None:
        return {}
    logged = {name: _seconds(numbers, f"timing_s/{name}") or 0.0 for names in TIMED.values() for name in names}
    parts = {part: sum(logged[name] for name in names) for part, names in TIMED.items()}
    parts[REST] = max(0.0, whole + logged[OUTSIDE] - sum(parts.values()))
    if played := _seconds(numbers, "train/seconds/total"):
        generation = parts[GENERATION]
        for part, name in WAITED.items():
            waited = generation * min(1.0, (_seconds(numbers, f"train/seconds/{name}") or 0.0) / played)
            parts[part] += waited
            parts[GENERATION] -= waited
    return {part: seconds for part, seconds in parts.items() if seconds > 0}


def _seconds(numbers: Mapping[str, float], name: str) -> float | None:
    """A logged time; None where there is none, or none that can be one."""
    value = numbers.get(name)
    return value if value is not None and isfinite(value) and value >= 0 else None


def total(steps: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Seconds of several steps by part, in the order of `TIMED`."""
    sums: Counter[str] = Counter()
    for numbers in steps:
        sums.update(parts_of(numbers))
    return {part: sums[part] for part in TIMED if part in sums}


def line(stage: Path) -> str:
    """The parts of a stage's steps that take a hundredth or more, the largest first; empty where none was timed."""
    parts = total(read_steps(stage).values())
    whole = sum(parts.values())
    shares = sorted(
        ((seconds / whole, part) for part, seconds in parts.items() if seconds >= 0.01 * whole), reverse=True
    )
    return f"time: {', '.join(f'{part} {share:.0%}'.replace('%', ' %') for share, part in shares)}" if shares else ""
