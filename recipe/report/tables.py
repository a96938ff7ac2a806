"""How much the reward of each stage moved, and how sure that is.

Within a run the first and the last steps are compared task by task, on the tasks that both have: a window with easier
tasks is no progress. Several runs are taken as seeds of one experiment. The interval is that of
`recipe.evaluation.intervals`: over clusters of tasks, and over seeds.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from textwrap import fill
from typing import Any, NamedTuple

from interaction.environment import task_key_of
from recipe.evaluation.intervals import CHANGE, Interval, brackets, interval
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
    "Five steps are compared with five, of fewer than ten half with half, on tasks that both have. Brackets are 95 %: "
    "over clusters of tasks, and over seeds of several runs. The correlation is the smallest of the probabilities that "
    "engine and trainer give the sampled tokens; far below 1 the two have different weights."
)

Episodes = Mapping[Hashable, tuple[Hashable, Sequence[float]]]
"""Task -> its cluster, and a value of each of its episodes in one window of steps."""


class Task(NamedTuple):
    """A task that both windows have: the means over its episodes."""

    cluster: Hashable
    first: float
    last: float


@dataclass(frozen=True)
class Difference:
    """One run: the mean over tasks in its first steps and in its last, each task counting the same."""

    first: float
    last: float
    tasks: Mapping[Hashable, Task]
    """Those that are compared; none where step means are."""
    missing: str = ""  # why no task is compared
    all_tasks: bool = True  # whether both windows have the same tasks

    def __str__(self) -> str:
        some = f" on {len(self.tasks)} tasks" if self.tasks and not self.all_tasks else ""
        some = f" ({self.missing})" if self.missing else some
        return f"{self.last - self.first:+.3f}{some}"


@dataclass(frozen=True)
class Rise:
    """The same stage in one or several runs, which are never pooled as if they were one."""

    runs: tuple[Difference, ...]
    of_shares: bool = True  # whether the values lie between 0 and 1

    @property
    def first(self) -> float:
        return fmean(run.first for run in self.runs)

    @property
    def last(self) -> float:
        return fmean(run.last for run in self.runs)

    @property
    def difference(self) -> float:
        return self.last - self.first

    @property
    def interval(self) -> Interval | None:
        """95 % interval of the difference."""
        tasks = [(number, task) for number, run in enumerate(self.runs) for task in run.tasks.values()]
        if not all(run.tasks for run in self.runs):
            return None
        moves = [task.last - task.first for _, task in tasks]
        clusters, seeds = [task.cluster for _, task in tasks], [number for number, _ in tasks]
        return interval(moves, clusters, seeds, CHANGE if self.of_shares else None)

    @property
    def windows(self) -> str:
        """The means of the two windows."""
        return f"{self.first:.3f} -> {self.last:.3f}"

    def __str__(self) -> str:
        one = len(self.runs) == 1
        said = f"{self.runs[0]}" if one else f"{self.difference:+.3f}"
        return f"{said}{brackets(self.interval)}{', one run' if one else ''}"


def compare(first: Episodes, last: Episodes) -> Difference | None:
    """The difference between two windows on the tasks that both have; None without any."""
    tasks = {task: Task(first[task][0], fmean(first[task][1]), fmean(last[task][1])) for task in first if task in last}
    if not tasks:
        return None
    means = (fmean(task.first for task in tasks.values()), fmean(task.last for task in tasks.values()))
    return Difference(*means, tasks, all_tasks=len(tasks) == len(first) == len(last))


def stage_dirs(run: Path) -> list[Path]:
    """The folders of a run that hold metrics of training, in the order in which they were first started."""
    files = sorted(run.glob("*/metrics/*"), key=lambda path: (path.name, path))
    return [stage for stage in dict.fromkeys(path.parents[1] for path in files) if stage.name != BEFORE]


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
    """How a metric of training moved in a stage of several runs; None if any has fewer than two steps.

    Where a step of a window has no stored episodes, step means have to do, and there is no interval.
    """
    runs = []
    for stage in stages:
        steps = {step: numbers[metric] for step, numbers in read_steps(stage).items() if metric in numbers}
        if not (size := min(WINDOW, len(steps) // 2)):
            return None
        first, last = [*steps][:size], [*steps][-size:]
        start, end = (_episodes(stage, part, metric) for part in (first, last))
        before, after = (fmean(steps[step] for step in part) for part in (first, last))
        if not start or not end:
            missing = "the data's rewards" if (stage / BATCHES_FILE).exists() else "no stored episodes"
            runs.append(Difference(before, after, {}, missing))
        else:
            runs.append(compare(start, end) or Difference(before, after, {}, "no task in both windows"))
    return Rise(tuple(runs), of_shares=metric != REWARD) if runs else None


def _episodes(stage: Path, steps: list[int], metric: str) -> Episodes:
    """Task -> cluster and values of its stored episodes in these steps; empty if a step has none that is whole."""
    values: dict[Hashable, tuple[Hashable, list[float]]] = {}
    for step in steps:
        found = False
        for path, uids in trained_files(stage, step).items():
            for header in (place.header for place in headers(path)):
                value = header["score"] if metric == REWARD else header["reward"].get(metric.removeprefix("train/"))
                if value is not None and (uids is None or header["uid"] in uids):
                    values.setdefault(task_key_of(header), (cluster_of(header), []))[1].append(float(value))
                    found = True
        if not found:
            return {}
    return values


def cluster_of(header: Mapping[str, Any]) -> tuple[str, str]:
    """The cluster of a stored episode's task; two environments may have clusters of one name."""
    return header["environment"], header["cluster"]


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


def stage_table(runs: Sequence[Path]) -> list[list[str]]:
    """The cells of the table of stages, its head first: reward and progress of the first and the last five steps."""
    lines = [["stage", "runs", "steps", "of", "first -> last 5", "difference", "each run", "corr >=", "s/step"]]
    for row in stage_rows(runs):
        correlation = "-" if row["correlation"] is None else f"{row['correlation']:.4f}"
        tail = [correlation, f"{fmean(row['seconds']):.1f}" if row["seconds"] else "-"]
        head = [row["stage"], str(row["runs"]), str(row["steps"])]
        for name in ("reward", "progress"):
            value: Rise | None = row[name]
            each = ", ".join(map(str, value.runs)) if value and len(value.runs) > 1 else ""
            windows, difference = (value.windows, str(value)) if value else ("-", "one step")
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
