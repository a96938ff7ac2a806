"""What became of one call, and how an environment judges."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Facts = Mapping[str, Any]
"""What only one environment knows, for rewards and reports: plain JSON values by name."""


class ErrorKind(StrEnum):
    """Why a call was not a success. The text that the model reads is the environment's own, whatever the kind."""

    UNKNOWN_FUNCTION = "unknown_function"
    """No function of this name belongs to the task."""
    WITHHELD_FUNCTION = "withheld_function"
    """The function exists, but is published in a later turn."""
    BAD_ARGUMENTS = "bad_arguments"
    """The call failed, and its arguments do not fit the function's documentation."""
    EXECUTION = "execution"
    """The function raised although its arguments fit the documentation."""
    RESULT = "result"
    """The function answered with an error of its own, such as BFCL's `{"error": ...}`."""
    LIMIT = "limit"
    """A bound on sizes, numbers, call count or output was hit; the call may not have been executed."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The outcome of one call."""

    text: str
    """Exactly what the environment's source would return, error texts included (our own text only at a bound)."""
    error: ErrorKind | None = None
    """None for a success."""
    hint: str | None = None
    """Advice beside the text, where the environment gives any."""
    facts: Facts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The judgement of one user turn."""

    user: str
    """The user's words."""
    passed: bool | None
    """None where the environment judges the episode only."""
    difference: tuple[Mapping[str, str], ...] = ()
    """Why it did not pass, in short texts."""
    facts: Facts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The judgement of an episode."""

    turns: tuple[TurnResult, ...]
    """Of the turns that there are, in order: those not reached too, where they are known beforehand."""
    passed: bool
    """Of the whole episode."""
    components: Mapping[str, float] = field(default_factory=dict)
    """What the judgement is made of, where it has parts; `passed` is their product."""
    facts: Facts = field(default_factory=dict)
