"""Gates: when a stage has learned what it is for. Pure functions of the values a metric had.

    leave_at   leave the stage as soon as the metric is at `value`
    plateau    leave it when the metric has not risen by more than `min_delta` for `patience` values
    minimum    train all steps; then the metric must be at `value`

"The metric" is always the mean over its last `window` values: one value of a reward is mostly luck. A metric of the
validation has a value only where one was made. Without a gate a stage trains its epochs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from statistics import fmean
from typing import Any

NEEDS_VALUE = ("leave_at", "minimum")
KINDS = (*NEEDS_VALUE, "plateau")


class GateError(ValueError):
    """A gate that cannot work. The message says what to change."""


@dataclass(frozen=True)
class Gate:
    """One stage's gate, as `stage.gate` states it."""

    kind: str
    metric: str = "critic/score/mean"
    value: float | None = None
    """For a plateau: the lowest one that counts, so that a stage that never began to learn is not left; null: any."""
    window: int = 5
    patience: int = 20
    min_delta: float = 0.01
    required: bool = False
    """Whether the curriculum stops when a stage ends without having got there; a minimum is always required."""

    @classmethod
    def parse(cls, setting: Mapping[str, Any] | None) -> "Gate | None":
        """The gate of a `stage.gate`; None where it is null. Raises GateError for what it cannot be."""
        if setting is None:
            return None
        known = [field.name for field in fields(cls)]
        if unknown := sorted(set(setting) - set(known)):
            raise GateError(f"stage.gate has no setting {', '.join(unknown)}; it takes {', '.join(known)}.")
        kind = setting.get("kind")
        if kind not in KINDS:
            raise GateError(f"stage.gate.kind={kind}; expected {', '.join(KINDS)}, or stage.gate=null for no gate.")
        gate = cls(**setting)
        if gate.value is None and kind in NEEDS_VALUE:
            raise GateError(f"stage.gate.kind={kind} needs stage.gate.value, the {gate.metric} to reach.")
        for name, low in (("window", 1), ("patience", 1)):
            if not isinstance(getattr(gate, name), int) or getattr(gate, name) < low:
                raise GateError(f"stage.gate.{name}={getattr(gate, name)}; expected a whole number from {low} on.")
        return gate

    @property
    def stops(self) -> bool:
        """Whether the curriculum ends when this gate fails."""
        return self.required or self.kind == "minimum"

    def means(self, values: Sequence[float]) -> list[float]:
        """Mean of each `window` successive values; one shorter start of a series has no mean yet."""
        return [fmean(values[end - self.window : end]) for end in range(self.window, len(values) + 1)]

    def reason_to_leave(self, values: Sequence[float]) -> str | None:
        """Why to leave the stage now, given the metric's values so far; None to stay."""
        means = self.means(values)
        if not means:
            return None
        if self.kind == "leave_at" and self.value is not None and means[-1] >= self.value:
            return f"{self.metric} reached {means[-1]:.3f} (gate {self.value:g})"
        if self.kind == "plateau" and self._flat_for(means) >= self.patience:
            if self.value is None or means[-1] >= self.value:
                return f"{self.metric} stays at {means[-1]:.3f} for {self.patience} values"
        return None

    def _flat_for(self, means: list[float]) -> int:
        """How many means have come since the last one that was a rise."""
        best, since = means[0], 0
        for mean in means[1:]:
            best, since = (mean, 0) if mean > best + self.min_delta else (best, since + 1)
        return since

    def judge(self, values: Sequence[float]) -> tuple[bool, str]:
        """Whether the gate is passed at the end of a stage, and a sentence about it."""
        means = self.means(values)
        where = f"{self.metric} over the last {self.window} values"
        if self.kind == "plateau" and self.value is None:
            return True, f"{self.metric} was still moving at the last step" if means else "too few steps for a plateau"
        if not means or self.value is None:
            return False, f"{len(values)} values of {self.metric}, fewer than the gate's window of {self.window}"
        passed = means[-1] >= self.value
        return passed, f"{where} is {means[-1]:.3f}, {'not below' if passed else 'below'} the gate's {self.value:g}"

    def check_metric(self, logged: Mapping[str, Any]) -> None:
        """Raises GateError when a step has logged its kind of metric and not this one: a gate must not be deaf."""
        check_logged("stage.gate.metric", self.metric, logged)


def check_logged(setting: str, metric: str, logged: Mapping[str, Any]) -> None:
    """Raises GateError when a step has logged metrics of the kind (of validation, or of training) and not this one."""
    same = [name for name in logged if name.startswith("val") == metric.startswith("val")]
    if metric not in logged and same:
        close = get_close_matches(metric, same, n=3, cutoff=0.3)
        raise GateError(f"{setting}={metric} is not logged; close to it: {', '.join(close)}.")


def values_until(steps: Mapping[int, Mapping[str, float]], metric: str, last: int) -> list[float]:
    """The values a metric had in the steps up to `last`, which a resumed stage goes on from."""
    return [numbers[metric] for step, numbers in steps.items() if step <= last and metric in numbers]
