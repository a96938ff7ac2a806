"""A run that has logged numbers."""

import json
from pathlib import Path

from interaction.episode_file import append, path_of

STAGE = "stage1_format"


def write_metrics(run: Path, stage: str, name: str, lines: list[tuple[int, dict]]) -> None:
    folder = run / stage / "metrics"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(json.dumps({"step": step, "data": data}) + "\n" for step, data in lines))


def a_run(folder: Path, values: list[float], stage: str = STAGE) -> Path:
    lines = [
        (step, {"critic/score/mean": value, "train/progress": value / 2, "timing_s/step": 1.0})
        for step, value in enumerate(values, start=1)
    ]
    write_metrics(folder, stage, "20260101-000000.jsonl", lines)
    return folder


def validated(run: Path, step: int, passed: dict, part="test", stage=STAGE, reward=(), **other: str) -> None:
    """A validation of these tasks, a value an episode, with that reward; that of step 0 is logged too."""
    if step == 0:
        write_metrics(run, stage, "0.jsonl", [(0, {})])
    for task, values in passed.items():
        category, _, cluster = task.rpartition("_")
        named = {"environment": "bfcl", "category": category, "cluster": cluster or task, "part": part} | other
        for number, value in enumerate(values):
            header = {"step": step, "split": "val", "uid": f"{part}{task}", "session_id": number, "task_id": task}
            line = {**header, **named, "score": value, "reward": {"acc": value, "acc_official": 1.0, **dict(reward)}}
            append(path_of(run / stage / "rollouts", "val", step), {**line, "episode": {}})
