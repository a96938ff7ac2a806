"""The verdict on one user turn."""

from dataclasses import dataclass


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
