"""A run as numbers: how the reward of each stage moved.

Several runs are taken as seeds of one experiment: the mean of their differences, and how far they lie apart.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from math import isfinite
from pathlib import Path
from statistics import fmean
from textwrap import fill
from typing import Any

from interaction.environment import task_key_of
from recipe.columns import aligned
from recipe.evaluation.intervals import Interval
from recipe.report.episodes import Place, headers
from recipe.report.rise import Difference, Rise, compare
from recipe.stage import trained
from recipe.stage.metrics_log import read_steps
from recipe.stage.notes import BATCHES_FILE
from recipe.stage.starts import BEFORE

REWARD = "critic/score/mean"
CORRELATION = "training/rollout_actor_probs_pearson_corr"
WINDOW = 5


def stage_dirs(run: Path) -> list[Path]:
    """The folders of a run that hold metrics of training, in the order of their names."""
    found = (path.parent for path in run.glob("*/metrics") if any(path.iterdir()))
    return sorted(path for path in found if path.name != BEFORE)


def trained_stages(run: Path) -> list[Path]:
    """Those with steps of reinforcement learning, which a warm start has not."""
    return [stage for stage in stage_dirs(run) if values_of(stage, REWARD)]


def stage_ends(run: Path, stages: Sequence[str]) -> list[int]:
    """The last step of each stage, counted from the first stage's first."""
    ends, total = [], 0
    for stage in stages:
        total += max(read_steps(run / stage), default=0)
        ends.append(total)
    return ends


def rise(stages: list[Path], metric: str, window: int = WINDOW) -> Rise | None:
    """How a metric of training moved in a stage of several runs; None if any has fewer than two windows of steps.

    From the stored episodes of the first and the last steps. Where a step of a window has none, step means have to do,
    and there is no standard error: five of them say too little about their own spread.
    """
    runs = []
    for stage in stages:
        steps = {step: numbers[metric] for step, numbers in read_steps(stage).items() if metric in numbers}
        if len(steps) < 2 * window:
            return None
        first, last = ([*steps][:window], [*steps][-window:])
        start, end = (_episodes(stage, part, metric) for part in (first, last))
        before, after = (fmean(steps[step] for step in part) for part in (first, last))
        if not start or not end:
            missing = "the data's rewards" if (stage / BATCHES_FILE).exists() else "no stored episodes"
            runs.append(Difference(before, after, missing=missing))
        else:
            runs.append(compare(start, end) or Difference(before, after, missing="no task in both windows"))
    return Rise(tuple(runs)) if runs else None


def _episodes(stage: Path, steps: list[int], metric: str) -> dict[Hashable, list[float]]:
    """Task -> values of its stored episodes in these steps; empty if a step has none that is whole."""
    values: dict[Hashable, list[float]] = defaultdict(list)
    for step in steps:
        before = sum(map(len, values.values()))
        for place in _trained_on(stage, step):
            reward = place.header.get("reward") or {}
            value = place.header.get("score") if metric == REWARD else reward.get(metric.removeprefix("train/"))
            if isinstance(value, int | float) and isfinite(value):
                values[task_key_of(place.header)].append(float(value))
        if sum(map(len, values.values())) == before:
            return {}
    return values


def _trained_on(stage: Path, step: int) -> Iterator[Place]:
    for path, uids in trained.files_of(stage, step).items():
        for place in headers(path):
            if uids is None or place.header.get("uid") in uids:
                yield place


def values_of(stage: Path, name: str) -> list[float]:
    """The series of a metric in a stage, in the order of steps; steps without it are left out."""
    return [numbers[name] for numbers in read_steps(stage).values() if name in numbers]


def stage_rows(runs: list[Path]) -> list[dict[str, Any]]:
    """One row for each stage of the first run, over all runs that have it."""
    rows = []
    for stage in trained_stages(runs[0]):
        stages = [run / stage.name for run in runs if (run / stage.name / "metrics").is_dir()]
        reward, progress = (rise(stages, metric) for metric in (REWARD, "train/progress"))
        correlation = [value for path in stages for value in values_of(path, CORRELATION)]
        rows.append(
            {
                "stage": stage.name,
                "runs": len(stages),
                "of_runs": [run / stage.name in stages for run in runs],
                "steps": len(values_of(stage, REWARD)),
                "reward": reward,
                "progress": progress,
                "correlation": min(correlation, default=None),
                "seconds": fmean(seconds) if (seconds := values_of(stage, "timing_s/step")) else None,
            }
        )
    return rows


def each_run(value: Rise | None, of_runs: Sequence[bool]) -> list[str]:
    """A text for each run of a report: its own difference; empty for one that has no such stage."""
    texts = iter(map(run_text, value.runs) if value else ())
    return [next(texts, "") if has else "" for has in of_runs]


def difference_text(value: Rise | None) -> str:
    """The mean difference and what is known of its error, or why there is none."""
    if value is None:
        return f"fewer than {2 * WINDOW} steps"
    if value.interval is None:
        (run,) = value.runs
        return f"{run_text(run)}{interval_text(run.interval)}, one run"
    return f"{value.difference:+.3f}{interval_text(value.interval)}"


def interval_text(interval: Interval | None) -> str:
    """A 95 % interval in brackets; nothing where there is none."""
    return "" if interval is None else f" [{interval[0]:+.3f}, {interval[1]:+.3f}]"


def run_text(run: Difference) -> str:
    """One run's difference with its own standard error, or why there is none."""
    if run.standard_error is None:
        return f"{run.value:+.3f} ({run.missing}: no error)"
    some = "" if run.all_tasks else f" on {run.tasks} tasks"
    return f"{run.value:+.3f} +- {run.standard_error:.3f}{some}"


def windows_text(value: Rise | None) -> str:
    """The means of the two windows."""
    return "-" if value is None else f"{value.first:.3f} -> {value.last:.3f}"


def explanation(rows: list[dict[str, Any]]) -> str:
    """What the errors of these rows are, and what they do not cover."""
    moved = [row[name] for row in rows for name in ("reward", "progress") if row[name] is not None]
    each = [run for rise in moved for run in rise.runs]
    parts = []
    if any(run.standard_error is not None for run in each):
        parts.append(
            "+- is one standard error over the run's own episodes, task by task: it says how well this run's "
            "difference is known, and nothing about another run."
        )
    if any(run.tasks and not run.all_tasks for run in each):
        parts.append(
            "Where the first steps play other tasks than the last, the tasks that both have are compared, and the "
            "error covers which those are."
        )
    parts += brackets(moved)
    if any(row["correlation"] is not None for row in rows):
        parts.append(
            "The correlation is the smallest, over the steps that measured it, of the probabilities that engine and "
            "trainer give the sampled tokens; far below 1 the two have different weights."
        )
    return " ".join(parts)


def brackets(moved: Sequence[Rise]) -> list[str]:
    """What the brackets behind these differences are: of one run, and of several, as far as there are any."""
    parts = []
    if any(len(rise.runs) == 1 and rise.runs[0].interval is not None for rise in moved):
        parts.append("Of one run the brackets are 95 % from its standard error.")
    if any(len(rise.runs) > 1 for rise in moved):
        parts.append("Of several runs the brackets are 95 % for their mean, by Student's t on the runs' differences.")
    return parts


def table(runs: list[Path]) -> str:
    """The stages as text: reward and progress of the first and the last five steps, their difference, its error."""
    rows = stage_rows(runs)
    lines = [["stage", "runs", "steps", "of", "first 5 -> last 5", "difference", "each run", "corr >=", "s/step"]]
    for row in rows:
        correlation = "-" if row["correlation"] is None else f"{row['correlation']:.4f}"
        seconds = "-" if row["seconds"] is None else f"{row['seconds']:.1f}"
        head, tail = [row["stage"], str(row["runs"]), str(row["steps"])], [correlation, seconds]
        for name in ("reward", "progress"):
            value = row[name]
            each = ", ".join(map(run_text, value.runs)) if value and len(value.runs) > 1 else ""
            lines.append([*head, name, windows_text(value), difference_text(value), each, *tail])
            head, tail = [""] * len(head), [""] * len(tail)
    if not any(line[6] for line in lines[1:]):
        lines = [[*line[:6], *line[7:]] for line in lines]
    return f"{aligned(lines)}\n\n{fill(explanation(rows), 120)}".rstrip()
