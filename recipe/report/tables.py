"""A run as numbers: how the reward of each stage moved, and what validation said.

Several runs are taken as seeds of one experiment and pooled.
"""

from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import fmean, variance
from typing import Any

from recipe.evaluation.intervals import Interval, mean_interval, proportion_interval
from recipe.metrics_log import read_steps
from recipe.report.episodes import headers, validation_files

REWARD = "critic/score/mean"
CORRELATION = "training/rollout_actor_probs_pearson_corr"
WINDOW = 5


@dataclass(frozen=True)
class Rise:
    """How the reward of a stage moved: mean of its last steps minus mean of its first, pooled over runs."""

    first: float
    last: float
    standard_error: float
    runs: int
    steps: int

    @property
    def difference(self) -> float:
        return self.last - self.first

    @property
    def errors(self) -> float:
        """The difference in standard errors."""
        return self.difference / self.standard_error if self.standard_error else float("inf")


def stage_dirs(run: Path) -> list[Path]:
    """The folders of a run that hold metrics, in the order of their names."""
    return sorted(path.parent for path in run.glob("*/metrics") if any(path.iterdir()))


def trained_stages(run: Path) -> list[Path]:
    """Those with steps of reinforcement learning, which a warm start has not."""
    return [stage for stage in stage_dirs(run) if values_of(stage, REWARD)]


def rise(series: list[list[float]], window: int = WINDOW) -> Rise | None:
    """Pool one series of step means per run; None if any has fewer than two windows of steps.

    The standard error of a run's difference comes from the spread of steps within the two windows; errors of
    independent runs add as squares.
    """
    if not series or any(len(values) < 2 * window for values in series):
        return None
    first = [values[:window] for values in series]
    last = [values[-window:] for values in series]
    squares = sum((variance(a) + variance(b)) / window for a, b in zip(first, last, strict=True))
    return Rise(
        first=fmean(map(fmean, first)),
        last=fmean(map(fmean, last)),
        standard_error=sqrt(squares) / len(series),
        runs=len(series),
        steps=min(map(len, series)),
    )


def values_of(stage: Path, name: str) -> list[float]:
    """The series of a metric in a stage, in the order of steps; steps without it are left out."""
    return [numbers[name] for numbers in read_steps(stage).values() if name in numbers]


def stage_rows(runs: list[Path]) -> list[dict[str, Any]]:
    """One row for each stage that the runs have in common, with pooled numbers."""
    rows = []
    for stage in trained_stages(runs[0]):
        stages = [run / stage.name for run in runs if (run / stage.name / "metrics").is_dir()]
        reward = rise([values_of(path, REWARD) for path in stages])
        progress = rise([values_of(path, "train/progress") for path in stages])
        correlation = [value for path in stages for value in values_of(path, CORRELATION)]
        rows.append(
            {
                "stage": stage.name,
                "runs": len(stages),
                "steps": len(values_of(stage, REWARD)),
                "reward": reward,
                "progress": progress,
                "correlation": min(correlation, default=None),
                "seconds": fmean(seconds) if (seconds := values_of(stage, "timing_s/step")) else None,
            }
        )
    return rows


def rise_text(value: Rise | None) -> str:
    """First and last window of a rise with its difference, or why there is none."""
    if value is None:
        return f"fewer than {2 * WINDOW} steps"
    difference = f"{value.difference:+.3f} +- {value.standard_error:.3f} ({value.errors:+.1f} SE)"
    return f"{value.first:.3f} -> {value.last:.3f}  {difference}"


def table(runs: list[Path]) -> str:
    """The stages as text: mean reward and progress of the first and the last five steps, difference, standard error."""
    head = ["stage", "runs", "steps", "reward, first 5 -> last 5", "progress, first 5 -> last 5", "corr >=", "s/step"]
    lines = [head]
    for row in stage_rows(runs):
        lines.append(
            [
                row["stage"],
                str(row["runs"]),
                str(row["steps"]),
                rise_text(row["reward"]),
                rise_text(row["progress"]),
                "-" if row["correlation"] is None else f"{row['correlation']:.4f}",
                "-" if row["seconds"] is None else f"{row['seconds']:.1f}",
            ]
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


@dataclass(frozen=True)
class Measured:
    """A mean over held-out tasks with its 95 % interval."""

    value: float
    interval: Interval


@dataclass(frozen=True)
class Validation:
    """One validation of one category."""

    stage: str
    step: int
    category: str
    tasks: int
    acc: Measured
    acc_official: Measured
    progress: Measured


def validations(run: Path) -> list[Validation]:
    """The first and the last validation of each stage, from the stored episodes."""
    rows = []
    for stage in trained_stages(run):
        files = validation_files(stage)
        for path in dict.fromkeys([*files[:1], *files[-1:]]):
            found = [place.header for place in headers(path)]
            categories = sorted({category_of(header) for header in found})
            for category in categories if len(categories) == 1 else [*categories, "all"]:
                chosen = [header for header in found if category in ("all", category_of(header))]
                rows.append(_validation(stage.name, category, chosen))
    return rows


def _validation(stage: str, category: str, found: list[dict[str, Any]]) -> Validation:
    clusters = [header["scenario_id"].rpartition("_")[2] for header in found]

    def values(name: str) -> list[float]:
        return [float(header.get("reward", {}).get(name, 0.0)) for header in found]

    def share(name: str) -> Measured:
        return Measured(fmean(values(name)), proportion_interval(values(name), clusters))

    progress = Measured(fmean(values("progress")), mean_interval(values("progress"), clusters))
    step = int(found[0]["step"])
    return Validation(stage, step, category, len(found), share("acc"), share("acc_official"), progress)


def category_of(header: dict[str, Any]) -> str:
    """`multi_turn_base` of `multi_turn_base_17`."""
    return header["scenario_id"].rpartition("_")[0]
