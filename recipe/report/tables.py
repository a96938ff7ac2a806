"""How much the reward of each stage moved, and how sure that is.

Within a run the first and the last steps are compared task by task, on the tasks that both have: a window with easier
tasks is no progress. The standard error comes from the episodes: it covers which were sampled and which tasks the
windows share. It does not cover another run. Several runs are taken as seeds of one experiment: the mean of their
differences, and an interval from the spread of these.
"""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from pathlib import Path
from statistics import fmean
from textwrap import fill
from typing import Any

import numpy as np

from interaction.environment import task_key_of
from recipe.evaluation.intervals import Interval, t_interval, t_quantile
from recipe.files import aligned
from recipe.report.episodes import headers
from recipe.stage.metrics_log import read_steps, trained_files
from recipe.stage.starts import BEFORE
from recipe.stage.state import BATCHES_FILE

REWARD = "critic/score/mean"
CORRELATION = "training/rollout_actor_probs_pearson_corr"
LOSS, HELD_OUT_LOSS = "train/loss", "val/loss"
WINDOW = 5

MEANING = (
    "+- is one standard error over the run's own episodes, task by task: it says nothing about another run. Brackets "
    "are 95 %: of one run from its standard error, of several by Student's t on the runs' differences. Windows are "
    "compared on the tasks that both have. The correlation is the smallest of the probabilities that engine and "
    "trainer give the sampled tokens; far below 1 the two have different weights."
)

Episodes = Mapping[Hashable, Sequence[float]]
"""Task -> a value of each of its episodes in one window of steps."""


@dataclass(frozen=True)
class Difference:
    """One run: the mean over tasks in its last steps and in its first."""

    first: float
    last: float
    standard_error: float | None = None
    """None where it cannot be told; then `missing` says why."""
    degrees: float = inf
    """Degrees of freedom of the standard error."""
    tasks: int = 0
    """How many are compared; 0 where step means are."""
    all_tasks: bool = True
    """Whether both windows have the same tasks."""
    missing: str = ""

    @property
    def value(self) -> float:
        return self.last - self.first

    @property
    def interval(self) -> Interval | None:
        """95 % interval for this run's difference; None without a standard error."""
        if self.standard_error is None:
            return None
        half = t_quantile(self.degrees) * self.standard_error
        return self.value - half, self.value + half

    def __str__(self) -> str:
        if self.standard_error is None:
            return f"{self.value:+.3f} ({self.missing}: no error)"
        some = "" if self.all_tasks else f" on {self.tasks} tasks"
        return f"{self.value:+.3f} +- {self.standard_error:.3f}{some}"


@dataclass(frozen=True)
class Rise:
    """The same stage in one or several runs, which are never pooled as if they were one."""

    runs: tuple[Difference, ...]

    @property
    def difference(self) -> float:
        return fmean(run.last for run in self.runs) - fmean(run.first for run in self.runs)

    @property
    def interval(self) -> Interval | None:
        """95 % interval: of several runs by Student's t on their differences, of one run its own."""
        return t_interval([run.value for run in self.runs]) if len(self.runs) > 1 else self.runs[0].interval

    @property
    def windows(self) -> str:
        """The means of the two windows."""
        return f"{fmean(run.first for run in self.runs):.3f} -> {fmean(run.last for run in self.runs):.3f}"

    def __str__(self) -> str:
        one = len(self.runs) == 1
        said = f"{self.runs[0]}" if one else f"{self.difference:+.3f}"
        return f"{said}{brackets(self.interval)}{', one run' if one else ''}"


def compare(first: Episodes, last: Episodes, drawn: bool = False) -> Difference | None:
    """The difference between two windows on the tasks that both have, each task counting the same; None without any.

    With G tasks in common, d_t the difference of task t's means and s^2/n the variance of one such mean:

        variance = (1 - f) var(d_t) / G  +  f sum_t (s^2/n in the first window + s^2/n in the last) / G^2

    as of two-stage sampling, tasks and then episodes (W. G. Cochran, Sampling Techniques, 3rd ed. 1977, chapter 10).
    f is the share of all tasks that are compared: 0 where they stand for tasks that nobody has played (`drawn`), else
    f = G^2 / (G1 G2), with G1 and G2 tasks in the windows (Lincoln and Petersen). A task with one episode has no s^2:
    then f is 0, and the error rather too large. Degrees of freedom are Satterthwaite's.
    """
    tasks = [task for task in first if task in last]
    if not tasks:
        return None
    windows = [np.asarray(values, float) for task in tasks for values in (first[task], last[task])]
    sizes = np.array([values.size for values in windows])
    starts, flat = np.cumsum(sizes) - sizes, np.concatenate(windows)
    means = np.add.reduceat(flat, starts) / sizes
    squares = np.add.reduceat((flat - np.repeat(means, sizes)) ** 2, starts)
    start, end = float(means[::2].mean()), float(means[1::2].mean())
    count, all_tasks = len(tasks), len(tasks) == len(first) == len(last)
    share = count**2 / (len(first) * len(last)) if sizes.min() > 1 and not drawn else 0.0
    if share < 1 and count == 1:
        return Difference(start, end, tasks=1, all_tasks=all_tasks, missing="one task in both windows")
    free = sizes - 1.0
    terms = share * squares / np.maximum(free, 1) / sizes / count**2
    if share < 1:
        terms = np.append(terms, (1 - share) * np.var(means[1::2] - means[::2], ddof=1) / count)
        free = np.append(free, count - 1)
    variance = float(terms.sum())
    known = terms > 0
    degrees = variance**2 / float((terms[known] ** 2 / free[known]).sum()) if variance else inf
    return Difference(start, end, sqrt(variance), degrees, count, all_tasks)


def stage_dirs(run: Path) -> list[Path]:
    """The folders of a run that hold metrics of training, in the order of their names."""
    found = (path.parent for path in run.glob("*/metrics") if any(path.iterdir()))
    return sorted(path for path in found if path.name != BEFORE)


def trained_stages(run: Path) -> list[Path]:
    """Stages with steps of reinforcement learning."""
    return [stage for stage in stage_dirs(run) if values_of(stage, REWARD)]


def warm_starts(run: Path) -> list[Path]:
    """Stages with steps of supervised training."""
    return [stage for stage in stage_dirs(run) if values_of(stage, LOSS) and not values_of(stage, REWARD)]


def values_of(stage: Path, name: str) -> list[float]:
    """The series of a metric in a stage, in the order of steps; steps without it are left out."""
    return [numbers[name] for numbers in read_steps(stage).values() if name in numbers]


def rise(stages: list[Path], metric: str) -> Rise | None:
    """How a metric of training moved in a stage of several runs; None if any has fewer than two windows of steps.

    Where a step of a window has no stored episodes, step means have to do, and there is no standard error.
    """
    runs = []
    for stage in stages:
        steps = {step: numbers[metric] for step, numbers in read_steps(stage).items() if metric in numbers}
        if len(steps) < 2 * WINDOW:
            return None
        first, last = [*steps][:WINDOW], [*steps][-WINDOW:]
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
        found = False
        for path, uids in trained_files(stage, step).items():
            for header in (place.header for place in headers(path)):
                value = header["score"] if metric == REWARD else header["reward"].get(metric.removeprefix("train/"))
                if value is not None and (uids is None or header["uid"] in uids):
                    values[task_key_of(header)].append(float(value))
                    found = True
        if not found:
            return {}
    return values


def stage_rows(runs: Sequence[Path]) -> list[dict[str, Any]]:
    """One row for each stage of the first run, over all runs that have it."""
    rows = []
    for stage in trained_stages(runs[0]):
        stages = [path for run in runs if (path := run / stage.name) in stage_dirs(run)]
        found = {"stage": stage.name, "runs": len(stages), "steps": len(values_of(stage, REWARD))}
        found |= {"reward": rise(stages, REWARD), "progress": rise(stages, "train/progress")}
        correlation = [value for path in stages for value in values_of(path, CORRELATION)]
        found |= {"correlation": min(correlation, default=None), "seconds": values_of(stage, "timing_s/step")}
        rows.append(found)
    return rows


def brackets(interval: Interval | None) -> str:
    """A 95 % interval in brackets; nothing where there is none."""
    return "" if interval is None else f" [{interval[0]:+.3f}, {interval[1]:+.3f}]"


def stage_table(runs: Sequence[Path]) -> list[list[str]]:
    """The cells of the table of stages, its head first: reward and progress of the first and the last five steps."""
    lines = [["stage", "runs", "steps", "of", "first 5 -> last 5", "difference", "each run", "corr >=", "s/step"]]
    for row in stage_rows(runs):
        correlation = "-" if row["correlation"] is None else f"{row['correlation']:.4f}"
        tail = [correlation, f"{fmean(row['seconds']):.1f}" if row["seconds"] else "-"]
        head = [row["stage"], str(row["runs"]), str(row["steps"])]
        for name in ("reward", "progress"):
            value: Rise | None = row[name]
            each = ", ".join(map(str, value.runs)) if value and len(value.runs) > 1 else ""
            windows, difference = (value.windows, str(value)) if value else ("-", f"fewer than {2 * WINDOW} steps")
            lines.append([*head, name, windows, difference, each, *tail])
            head, tail = [""] * len(head), [""] * len(tail)
    if not any(line[6] for line in lines[1:]):
        lines = [[*line[:6], *line[7:]] for line in lines]
    return lines


def table(runs: Sequence[Path]) -> str:
    """The table of stages as text."""
    return f"{aligned(stage_table(runs))}\n\n{fill(MEANING, 120)}"


def loss_rows(run: Path) -> list[list[str]]:
    """A head, and a row for each warm start, in nats a token of the model; empty without one."""
    rows = [["warm start", "steps", "loss, first 5 -> last 5 steps", "validation loss, first -> last", "lowest"]]
    for stage in warm_starts(run):
        losses, held = values_of(stage, LOSS), values_of(stage, HELD_OUT_LOSS)
        validated = [f"{held[0]:.3f} -> {held[-1]:.3f}", f"{min(held):.3f}"] if held else ["-", "-"]
        first, last = fmean(losses[:WINDOW]), fmean(losses[-WINDOW:])
        rows.append([stage.name, str(len(losses)), f"{first:.3f} -> {last:.3f}", *validated])
    return rows if len(rows) > 1 else []
