"""A run that has logged numbers."""

import json
from pathlib import Path


def write_metrics(run: Path, stage: str, name: str, lines: list[tuple[int, dict]]) -> None:
    folder = run / stage / "metrics"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(json.dumps({"step": step, "data": data}) + "\n" for step, data in lines))


def a_run(folder: Path, values: list[float]) -> Path:
    lines = [
        (step, {"critic/score/mean": value, "train/progress": value / 2, "timing_s/step": 1.0})
        for step, value in enumerate(values, start=1)
    ]
    write_metrics(folder, "stage1_format", "20260101-000000.jsonl", lines)
    return folder
