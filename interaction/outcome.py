"""What became of one call."""

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
