"""What an episode hands back: the result of one call and the verdict on one turn."""

from dataclasses import dataclass
from enum import StrEnum


class ErrorKind(StrEnum):
    """Why a call was not a success. The text that the model reads is BFCL's own, whatever the kind."""

    UNKNOWN_FUNCTION = "unknown_function"
    """No function of this name belongs to the scenario."""
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
    """Exactly what BFCL would return, error texts included (our own text only where a bound was hit)."""
    error: ErrorKind | None = None
    """None for a success."""
    hint: str | None = None
    """Advice from the augmentation layer; always None when augmentation is off."""


@dataclass(frozen=True, slots=True)
class TurnVerdict:
    """The judgement of one user turn."""

    passed: bool
    """Our rule: BFCL's for turns with gold calls; a turn without gold passes if it ended with an answer, left the
    state as it was and called no unknown or withheld function."""
    passed_official: bool
    """BFCL's rule, which does not judge turns without gold calls (True for them)."""
    state_matches: bool
    """Public attributes equal gold's at the end of the turn; without gold calls: equal those at its start."""
    responses_match: bool
    """Gold's result texts of this turn are a multiset subset of all result texts so far."""
    difference: tuple[dict[str, str], ...] = ()
    """What did not match: class, attribute, expected, actual; all short texts. Empty when everything matched."""
