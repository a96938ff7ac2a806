"""The numbers a run has logged, read back from its `metrics/*.jsonl` (verl's file logger, one file a launch)."""

import json
from collections.abc import Collection
from pathlib import Path


def read_steps(stage: Path, skip: Collection[str] = ()) -> dict[int, dict[str, float]]:
    """Global step -> metrics of a stage's folder, ascending. Where a step was repeated after a resume, the later
    launch wins; a line cut off by a crash is left out, and so are the files named in `skip`."""
    steps: dict[int, dict[str, float]] = {}
    for path in sorted(path for path in (stage / "metrics").glob("*.jsonl") if path.name not in skip):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                entry = json.loads(line)
                step, data = int(entry["step"]), entry["data"]
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
                continue
            if not isinstance(data, dict):
                continue
            numbers = {name: value for name, value in data.items() if isinstance(value, int | float)}
            steps.setdefault(step, {}).update(numbers)
    return dict(sorted(steps.items()))
