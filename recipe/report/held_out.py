"""How much the held-out tasks moved, from the first validation of a stage to its last.

Only tasks for reporting: those for choosing may have decided something. They stand for tasks that nobody has played, so
the standard error of a run covers which tasks they are, and which episodes were sampled.
"""

from collections import defaultdict
from collections.abc import Hashable
from pathlib import Path
from textwrap import fill

from interaction.environment import task_key_of
from recipe.columns import aligned
from recipe.report.episodes import headers, validation_files
from recipe.report.rise import Rise, compare
from recipe.report.tables import difference_text, run_text, trained_stages, windows_text
from recipe.stage import choosing

METRICS = ("acc", "acc_official")
WHAT = (
    "Held-out tasks for reporting: the first validation of a stage against its last, each task counting the same. +- "
    "is one standard error over tasks."
)


def held_out(stages: list[Path], metric: str) -> Rise | None:
    """How a metric moved in a stage of several runs; None if any has not validated twice, or no such tasks."""
    runs = []
    for stage in stages:
        files = validation_files(stage)
        if len(files) < 2:
            return None
        difference = compare(_values(files[0], metric), _values(files[-1], metric), drawn=True)
        if difference is None:
            return None
        runs.append(difference)
    return Rise(tuple(runs)) if runs else None


def table(runs: list[Path]) -> str:
    """The stages that have validated twice, as text; empty where there is none."""
    lines = [["stage", "runs", "tasks", "of", "first -> last", "difference", "each run"]]
    for stage in trained_stages(runs[0]):
        stages = [run / stage.name for run in runs if (run / stage.name / "metrics").is_dir()]
        head = [stage.name, str(len(stages))]
        for metric in METRICS:
            if (moved := held_out(stages, metric)) is None:
                continue
            tasks = str(max(run.tasks for run in moved.runs))
            each = ", ".join(map(run_text, moved.runs)) if len(moved.runs) > 1 else ""
            lines.append([*head, tasks, metric, windows_text(moved), difference_text(moved), each])
            head = ["", ""]
    if len(lines) == 1:
        return ""
    if not any(line[-1] for line in lines[1:]):
        lines = [line[:-1] for line in lines]
    return f"{aligned(lines)}\n\n{fill(WHAT, 120)}"


def _values(path: Path, metric: str) -> dict[Hashable, list[float]]:
    """Task -> values of its episodes, of the tasks for reporting."""
    values: dict[Hashable, list[float]] = defaultdict(list)
    for place in headers(path):
        value = (place.header.get("reward") or {}).get(metric)
        part = place.header.get("part") or choosing.part_of_row(place.header)
        if part == "report" and isinstance(value, int | float):
            values[task_key_of(place.header)].append(float(value))
    return values
