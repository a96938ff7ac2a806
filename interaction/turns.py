"""The user turns of an episode: as they are played, and as its record has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .outcome import TurnResult, Verdicts
from .record import StepRecord, TurnEnd, TurnRecord


@dataclass(slots=True)
class Turn:
    """A user turn that was reached."""

    user: str
    ended: TurnEnd | None = None
    steps: list[StepRecord] = field(default_factory=list)
    format_errors: int = 0


def turn_records(played: Sequence[Turn], judged: Verdicts | None) -> tuple[TurnRecord, ...]:
    """All turns, those that were played and those that an environment knows beforehand."""
    known = () if judged is None else judged.turns
    return tuple(
        _record(
            played[number] if number < len(played) else None,
            judged,
            known[number] if number < len(known) else None,
        )
        for number in range(max(len(played), len(known)))
    )


def _record(played: Turn | None, judged: Verdicts | None, result: TurnResult | None) -> TurnRecord:
    return TurnRecord(
        user=result.user if played is None and result else played.user if played else "",
        reached=played is not None,
        ended=None if played is None or played.ended is None else played.ended.value,
        passed=_passed(played, judged, result),
        difference=() if result is None else tuple(dict(item) for item in result.difference),
        facts={} if result is None else dict(result.facts),
        steps=() if played is None else tuple(played.steps),
    )


def _passed(played: Turn | None, judged: Verdicts | None, result: TurnResult | None) -> bool | None:
    """Whether a turn passed: not if it was cut, whatever the environment says; None where it does not judge it."""
    if result is None:
        return False if judged is None else None
    if result.passed is None:
        return None
    return bool(result.passed) and (played is None or played.ended is not TurnEnd.cut)
