"""The numbers a run has logged, read back from its `metrics/*.jsonl` (verl's file logger, one file a launch)."""

import json
import math
from collections.abc import Collection
from pathlib import Path
from typing import Any

from recipe.files import lines

LARGEST_INT, LARGEST = 2**53, 1e300
"""A larger whole number is none that a float holds exactly, and a sum of larger numbers none that it holds at all."""


def read_steps(stage: Path, skip: Collection[str] = ()) -> dict[int, dict[str, float]]:
    """Global step -> metrics of a stage's folder, ascending. Where a step was repeated after a resume, the later
    launch wins; a line that is cut off or damaged is left out, and so are the files named in `skip`."""
    steps: dict[int, dict[str, float]] = {}
    for path in sorted(path for path in (stage / "metrics").glob("*.jsonl") if path.name not in skip):
        for _, line in lines(path):
            try:
                entry = json.loads(line)
                step, data = int(entry["step"]), entry["data"].items()
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
                continue
            if 0 <= step <= LARGEST_INT:
                steps.setdefault(step, {}).update((name, value) for name, value in data if _is_number(value))
    return dict(sorted(steps.items()))


def _is_number(value: Any) -> bool:
    """Whether it is one that can be averaged and drawn; NaN and infinity are, and show that something went wrong."""
    if isinstance(value, int):
        return abs(value) <= LARGEST_INT
    return isinstance(value, float) and not LARGEST < abs(value) < math.inf
