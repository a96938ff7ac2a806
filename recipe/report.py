"""What happened in a run: a table for the terminal and one HTML page that opens without a network.

    python -m recipe.report RUN_DIR [RUN_DIR ...]

Several runs are taken as seeds of one experiment: the table then pools them. The page is written into the first.
"""

import argparse
import base64
import io
import json
import random
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import fmean, variance
from typing import Any

from jinja2 import Environment, FileSystemLoader, select_autoescape

from recipe.metrics_log import read_steps

REWARD = "critic/score/mean"
CORRELATION = "training/rollout_actor_probs_pearson_corr"
CURVES = {
    REWARD: "reward",
    "train/progress": "progress",
    "train/format_rate": "well-formed messages",
    "train/call_success_rate": "successful calls",
    "train/acc": "episodes solved",
    "actor/entropy": "entropy",
    "response_length/mean": "response tokens",
    CORRELATION: "engine-actor correlation",
}
WINDOW = 5
EPISODES_A_STAGE = 12


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
    for stage in stage_dirs(runs[0]):
        stages = [run / stage.name for run in runs if (run / stage.name / "metrics").is_dir()]
        if not values_of(stage, REWARD):
            continue
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
                "seconds": fmean(values_of(stage, "timing_s/step")),
            }
        )
    return rows


def _rise_text(value: Rise | None) -> str:
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
                _rise_text(row["reward"]),
                _rise_text(row["progress"]),
                "-" if row["correlation"] is None else f"{row['correlation']:.4f}",
                f"{row['seconds']:.1f}",
            ]
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def validation_rows(run: Path) -> list[dict[str, Any]]:
    """Held-out accuracy and progress per category: the first validation of a stage, if there were two, and the last."""
    rows = []
    for stage in stage_dirs(run):
        steps = read_steps(stage)
        names = sorted({n for numbers in steps.values() for n in numbers if n.startswith(("val-core/", "val-aux/"))})
        for name in names:
            parts = name.split("/")
            if parts[-2:-1] and parts[-2] in ("acc", "acc_official", "progress", "format_rate") and "mean" in parts[-1]:
                series = [(step, numbers[name]) for step, numbers in steps.items() if name in numbers]
                rows.append(
                    {
                        "stage": stage.name,
                        "category": "/".join(parts[1:-2]),
                        "metric": parts[-2],
                        "before": series[0][1] if len(series) > 1 else None,
                        "after": series[-1][1],
                    }
                )
    return rows


def curves_png(runs: list[Path]) -> bytes:
    """All curves over the steps of the whole run, a line for each run, stages separated by vertical lines."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = 2
    lines = -(-len(CURVES) // columns)
    figure, axes = pyplot.subplots(lines, columns, figsize=(12, 2.4 * lines), sharex=True)
    stages = [stage.name for stage in stage_dirs(runs[0]) if values_of(stage, REWARD)]
    for axis, (name, title) in zip(axes.flat, CURVES.items(), strict=False):
        for number, run in enumerate(runs):
            offset = 0
            for stage in stages:
                series = values_of(run / stage, name)
                axis.plot(range(offset + 1, offset + 1 + len(series)), series, color=f"C{number}", linewidth=1.4)
                offset += len(values_of(run / stage, REWARD))
                axis.axvline(offset + 0.5, color="0.8", linewidth=0.8)
        if name == CORRELATION:
            axis.set_ylim(min(0.99, *axis.get_ylim()), 1.001)  # or rounding at 1.0 would look like a curve
        axis.set_title(title, fontsize=9, loc="left")
        axis.tick_params(labelsize=8)
    for axis in axes[-1]:
        axis.set_xlabel("step (" + ", then ".join(stages) + ")", fontsize=8)
    figure.tight_layout()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    pyplot.close(figure)
    return buffer.getvalue()


def read_records(path: Path) -> list[dict[str, Any]]:
    """The episodes of one step's JSONL file; where one was repeated after a resume, the later one."""
    records = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue  # cut off by a crash
        records[record["scenario_id"], record["session_id"]] = record
    return list(records.values())


def sample_episodes(stage: Path, count: int = EPISODES_A_STAGE) -> list[dict[str, Any]]:
    """A fixed random sample of a stage's training episodes, half from its first step, half from its last."""
    files = sorted((stage / "rollouts" / "train").glob("*.jsonl"))
    chosen = []
    for path in [files[0], files[-1]] if len(files) > 1 else files:
        records = read_records(path)
        chosen += random.Random(0).sample(records, min(count // 2, len(records)))
    return chosen


def write(run: Path, others: tuple[Path, ...] = ()) -> Path:
    """Write `report.html` and `curves.png` into `run`; returns the page's path."""
    runs = [run, *others]
    png = curves_png(runs)
    (run / "curves.png").write_bytes(png)
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=select_autoescape(default=True)
    )
    stages = [stage for stage in stage_dirs(run) if values_of(stage, REWARD)]
    page = environment.get_template("report.html").render(
        run=run.name,
        table=table(runs),
        curves=base64.b64encode(png).decode(),
        validation=validation_rows(run),
        stages=[{"name": stage.name, "episodes": sample_episodes(stage)} for stage in stages],
    )
    path = run / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


def main() -> None:
    """Entry point of `python -m recipe.report`."""
    parser = argparse.ArgumentParser(description="Table and HTML page of one run, or of several seeds of one.")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN_DIR", help="a folder such as outputs/default")
    runs = parser.parse_args().runs
    for run in runs:
        if not any(values_of(stage, REWARD) for stage in stage_dirs(run)):
            parser.error(f"{run} holds no training metrics; give the folder of a run, such as outputs/default")
    page = write(runs[0], tuple(runs[1:]))
    print(table(runs))
    print(f"\nreport  {page}")


if __name__ == "__main__":
    main()
