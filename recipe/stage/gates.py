"""Gates: when a stage has learned what it is for. Pure functions of the values a metric had.

A gate compares the mean over the metric's last `window` values: one value of a reward is mostly luck. A metric of the
validation has a value only where one was made. Without a gate a stage trains its epochs.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from statistics import fmean
from typing import Annotated, Any, Literal

from pydantic import Field

from recipe.files import PreflightError, Strict


@dataclass(frozen=True)
class Gate(Strict):
    """One stage's gate, as `stage.gate` states it."""

    kind: Literal["leave_at", "minimum", "plateau"]
    """Leave as soon as the metric is at `value` (leave_at), when it has stopped rising (plateau), or train all steps
    and ask for `value` at the end (minimum)."""
    metric: Annotated[str, Field(min_length=1)] = "critic/score/mean"
    """Name of the metric in the log; critic/score/mean is the reward."""
    value: float | None = None
    """What the metric has to reach. For a plateau: the lowest one that counts, so that a stage that never began to
    learn is not left; null: any."""
    window: Annotated[int, Field(ge=1)] = 5
    """Values of the metric that are averaged before anything is compared."""
    patience: Annotated[int, Field(ge=1)] = 20
    """Of a plateau: for how many values the mean must not have risen."""
    min_delta: Annotated[float, Field(ge=0)] = 0.01
    """Of a plateau: a rise is one of more than this."""
    required: bool = False
    """Whether the curriculum stops when a stage ends without having got there; a minimum is always required."""

    def __post_init__(self) -> None:
        if self.value is None and self.kind != "plateau":
            raise ValueError(f"a value for kind={self.kind}, the {self.metric} to reach: set stage.gate.value")

    @property
    def stops(self) -> bool:
        """Whether the curriculum ends when this gate fails."""
        return self.required or self.kind == "minimum"

    @property
    def _least(self) -> float:
        """What the metric has to reach. NaN never does."""
        return -math.inf if self.value is None else self.value

    def _means(self, values: Sequence[float]) -> list[float]:
        return [fmean(values[end - self.window : end]) for end in range(self.window, len(values) + 1)]

    def reason_to_leave(self, values: Sequence[float]) -> str | None:
        """Why to leave the stage now, given the metric's values so far; None to stay."""
        means = self._means(values)
        reached = bool(means) and means[-1] >= self._least
        if self.kind == "leave_at" and reached:
            return f"{self.metric} reached {means[-1]:.3f} (gate {self.value:g})"
        if self.kind == "plateau" and reached:
            best, since = -math.inf, 0  # means since the last one that was a rise
            for mean in means:
                best, since = (mean, 0) if mean > best + self.min_delta else (best, since + 1)
            if since >= self.patience:
                return f"{self.metric} stays at {means[-1]:.3f} for {self.patience} values"
        return None

    def judge(self, values: Sequence[float]) -> tuple[bool, str]:
        """Whether the gate is passed at the end of a stage, and a sentence about it."""
        means = self._means(values)
        if not means and self.value is None:
            return True, "too few steps for a plateau"
        if not means:
            return False, f"{len(values)} values of {self.metric}, fewer than the gate's window of {self.window}"
        passed = means[-1] >= self._least
        if passed and self.value is None:
            return True, f"{self.metric} was still moving at the last step"
        how = f"is {means[-1]:.3f}" + (f", and the gate asks for {self.value:g}" if self.value is not None else "")
        return passed, f"{self.metric} over the last {self.window} values {how}"


def check_logged(setting: str, metric: str, logged: Mapping[str, Any]) -> None:
    """Raises PreflightError when a step has logged metrics of this kind (validation, training) and not this one."""
    same = [name for name in logged if name.startswith("val") == metric.startswith("val")]
    if metric not in logged and same:
        close = get_close_matches(metric, same, n=3, cutoff=0.3)
        raise PreflightError(f"{setting}={metric} is not logged; close to it: {', '.join(close)}.")


def values_until(steps: Mapping[int, Mapping[str, float]], metric: str, last: int) -> list[float]:
    """The values a metric had in the steps up to `last`, which a resumed stage goes on from."""
    return [numbers[metric] for step, numbers in steps.items() if step <= last and metric in numbers]
