"""The numbers a run has logged, read back from its `metrics/*.jsonl` (verl's file logger, one file a launch)."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from recipe.files import lines

LAST_STEP = 2**53
"""No run has more steps."""


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
            if 0 <= step < LAST_STEP:
                steps.setdefault(step, {}).update((name, value) for name, value in data if _is_number(value))
    return dict(sorted(steps.items()))


def _is_number(value: Any) -> bool:
    """Whether it is one that a float holds; NaN is, and shows that something went wrong."""
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < LAST_STEP)
