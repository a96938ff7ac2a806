"""The episodes of training that took longest: a step waits for the last of its episodes.

Told from the beginnings of all lines of `rollouts/train`; what a line of an earlier release does not say stays unsaid.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interaction.episode_file import steps_in
from recipe.report.episodes import Place, headers, read_record

SHARE = 0.01
"""Of a stage's episodes, those that are its slowest; at least one."""

LONGEST = 1e9
"""Seconds; whatever says that it took longer is damaged."""

MOST = 10
"""Of these a page names so many of each stage."""


@dataclass(frozen=True)
class Slow:
    """One of the slowest episodes; seconds of which its line says nothing are None."""

    place: Place
    seconds: float
    engine: float | None
    environment: float | None
    user: float | None
    turns: int
    """User turns that were reached."""
    messages: int
    """Of the model."""


@dataclass(frozen=True)
class Slowest:
    """The slowest episodes of one stage."""

    stage: str
    episodes: int
    """All of the stage that say how long they took."""
    mean: float
    """Seconds of all of these."""
    count: int
    """How many of them are the slowest `SHARE`."""
    named: Sequence[Slow]


def slowest(stage: Path) -> Slowest | None:
    """Those of a stage; None where no stored episode says how long it took."""
    number, total, longest = 0, 0.0, list[tuple[float, int, Place]]()
    for path in steps_in(stage / "rollouts" / "train"):
        for place in headers(path):
            if (seconds := _whole(place.header)) is None:
                continue
            number, total = number + 1, total + seconds
            heapq.heappush(longest, (seconds, -number, place))
            if len(longest) > MOST:
                heapq.heappop(longest)
    if not number:
        return None
    count = max(1, round(SHARE * number))
    named = [_slow(place, seconds) for seconds, _, place in sorted(longest, reverse=True)[:count]]
    return Slowest(stage.name, number, total / number, count, [slow for slow in named if slow is not None])


def _whole(header: Mapping[str, Any]) -> float | None:
    """All its seconds; of an episode of an earlier release, which does not say, those that it counted."""
    counted = (_said(header, name) for name in ("generate", "environment"))
    if (whole := _said(header, "total")) is not None:
        return whole
    known = [seconds for seconds in counted if seconds is not None]
    return sum(known) if known else None


def _said(header: Mapping[str, Any], name: str) -> float | None:
    seconds = header.get("seconds")
    value = seconds.get(name) if isinstance(seconds, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < LONGEST else None


def _slow(place: Place, seconds: float) -> Slow | None:
    """None where the line holds no whole episode."""
    if (record := read_record(place)) is None:
        return None
    turns = [turn for turn in record["episode"]["turns"] if isinstance(turn, dict) and turn.get("reached")]
    messages = sum(len(turn["steps"]) for turn in turns if isinstance(turn.get("steps"), list))
    engine, environment, user = (_said(place.header, name) for name in ("generate", "environment", "user"))
    return Slow(place, seconds, engine, environment, user, len(turns), messages)
