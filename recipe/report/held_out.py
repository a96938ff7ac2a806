"""How much the held-out tasks moved, from the first validation of a stage to its last.

Only tasks for reporting: those for choosing may have decided something. They stand for tasks that nobody has played, so
the standard error of a run covers which tasks they are, and which episodes were sampled.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from interaction.environment import task_key_of
from recipe.columns import aligned
from recipe.report.episodes import headers, validation_files
from recipe.report.rise import Rise, compare
from recipe.report.tables import brackets, difference_text, run_text, trained_stages, windows_text
from recipe.stage import choosing

METRICS = ("acc", "acc_official")
WHAT = (
    "Held-out tasks for reporting: the first validation of a stage against its last, each task counting the same. +- "
    "is one standard error over tasks."
)


def held_out(stages: list[Path], metric: str, part: str = "report", category: str | None = None) -> Rise | None:
    """How a metric moved in a stage of several runs; None if any has not validated twice, or no such tasks."""
    runs = []
    for stage in stages:
        files = validation_files(stage)
        if len(files) < 2:
            return None
        first, last = (_values(path, metric, part, category) for path in (files[0], files[-1]))
        difference = compare(first, last, drawn=True)
        if difference is None:
            return None
        runs.append(difference)
    return Rise(tuple(runs)) if runs else None


def rows(runs: list[Path]) -> Iterator[tuple[str, list[bool], str, Rise]]:
    """What has moved in each stage of the first run: stage, which runs have it, name of the metric, the move."""
    for stage in trained_stages(runs[0]):
        of_runs = [(run / stage.name / "metrics").is_dir() for run in runs]
        stages = [run / stage.name for run, has in zip(runs, of_runs, strict=True) if has]
        for name, moved in _moved(stages):
            yield stage.name, of_runs, name, moved


def table(runs: list[Path]) -> str:
    """The stages that have validated twice, as text; empty where there is none."""
    lines = [["stage", "runs", "tasks", "of", "first -> last", "difference", "each run"]]
    before, found = "", list(rows(runs))
    for stage, of_runs, name, moved in found:
        head = ["", ""] if stage == before else [stage, str(sum(of_runs))]
        tasks = str(max(run.tasks for run in moved.runs))
        each = ", ".join(map(run_text, moved.runs)) if len(moved.runs) > 1 else ""
        lines.append([*head, tasks, name, windows_text(moved), difference_text(moved), each])
        before = stage
    if len(lines) == 1:
        return ""
    if not any(line[-1] for line in lines[1:]):
        lines = [line[:-1] for line in lines]
    return f"{aligned(lines)}\n\n{fill(explanation([moved for *_, moved in found]), 120)}"


def explanation(moved: Sequence[Rise]) -> str:
    """What the numbers of these rows are."""
    return " ".join([WHAT, *brackets(moved)])


def _moved(stages: list[Path]) -> Iterator[tuple[str, Rise]]:
    """What is shown of a stage: the metrics over all tasks, the first one by category, and what a guard plays."""
    names: list[tuple[str, str, str, str | None]] = [(metric, metric, "report", None) for metric in METRICS]
    files = validation_files(stages[0])
    kinds = sorted({(str(_part(header)), str(header["category"])) for header in _headers(files[-1])} if files else ())
    for part, title in (("report", ""), (choosing.GUARD, ", guard")):
        categories = [category for of, category in kinds if of == part]
        if title and categories:
            names.append((f"{METRICS[0]}{title}", METRICS[0], part, None))
        if len(categories) > 1:
            names += [(f"{METRICS[0]}{title}: {category}", METRICS[0], part, category) for category in categories]
    for name, metric, part, category in names:
        if (rise := held_out(stages, metric, part, category)) is not None:
            yield name, rise


def _values(path: Path, metric: str, part: str, category: str | None) -> dict[Hashable, list[float]]:
    """Task -> values of its episodes."""
    values: dict[Hashable, list[float]] = defaultdict(list)
    for header in _headers(path):
        value = (header.get("reward") or {}).get(metric)
        chosen = _part(header) == part and category in (None, header["category"])
        if chosen and isinstance(value, int | float):
            values[task_key_of(header)].append(float(value))
    return values


def _headers(path: Path) -> list[dict[str, Any]]:
    return [place.header for place in headers(path)]


def _part(header: dict[str, Any]) -> str | None:
    return header.get("part") or choosing.part_of_row(header)
