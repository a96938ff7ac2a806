"""The figures of a page: SVG with the page's own ink and ground, so that they can be read in light and in dark."""

import io
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from pathlib import Path
from statistics import fmean
from typing import Any

from recipe.evaluation.intervals import Interval
from recipe.report.tables import CORRELATION, HELD_OUT_LOSS, LOSS, REWARD, trained_stages, warm_starts
from recipe.report.validation import CALLED, METRICS, OVERALL, Measured, Validation
from recipe.stage.metrics_log import read_steps
from rewards.metrics import STOP_REASONS

CORRELATED = "engine-actor correlation"
CURVES: dict[str, Sequence[str]] = {
    "reward": [REWARD],
    "progress": ["train/progress"],
    "solved (acc)": ["train/acc"],
    "well-formed messages": ["train/format_rate"],
    "successful calls": ["train/call_success_rate"],
    "KL to the reference": ["actor/kl_loss", "actor/reward_kl_penalty"],
    "KL of one update": ["actor/ppo_kl"],
    "entropy": ["actor/entropy"],
    "response tokens": ["response_length/mean"],
    "groups left out, all alike": ["train/filtered_groups"],
    "tasks replaced in an epoch": ["resample/replaced"],
    "long episodes: price, left out": ["train/overlong_penalty", "train/overlong_left_out"],
    "gradient norm": ["actor/grad_norm"],
    "learning rate": ["actor/lr"],
    "value loss": ["critic/vf_loss"],
    CORRELATED: [CORRELATION],
}
"""Title and the metrics drawn under it; a title of which a run has nothing is left out."""

SHARES: dict[str, tuple[str, Sequence[str]]] = {
    "why episodes ended": ("train/stop/", STOP_REASONS),
    "tasks in play": ("resample/", ("out_of_reach", "edge", "mastered")),
}
"""Title, and the metrics of the first run that are drawn together: how all of their names begin, and how each ends."""
SAME = 1e-6
"""A metric that varies by less is not drawn, but named."""
INK, GROUND = "#1c1e21", "#fefefe"
"""Stand for the page's: in SVG the first becomes `currentColor`, the second `var(--page)`."""
COLORS = ["#1f77b4", "#c8640a", "#2c8f2c", "#d62728", "#9467bd", "#a0685a", "#cf5aa6", "#7f7f7f", "#858616", "#138fa0"]
"""Of the lines, by number of the run; each differs by 3 : 1 or more from the page in light and in dark."""
STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.facecolor": GROUND,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
}
"""matplotlib's settings."""

Points = Sequence[tuple[float, float]]
"""Step and value."""


@dataclass(frozen=True)
class Line:
    """A line of a panel."""

    name: str
    points: Points
    number: int = 0
    """Decides its colour."""
    style: str = "-"
    band: Sequence[Interval] = ()
    """An interval around each point."""


@dataclass(frozen=True)
class Panel:
    """One small figure."""

    title: str
    lines: Sequence[Line]
    begins: Sequence[int] = ()
    """Steps before each stage but the first."""
    below: str = "step"
    legend: bool = False

    def on(self, axis: Any) -> None:
        """Draw it."""
        for line in self.lines:
            color, marker = COLORS[line.number % len(COLORS)], "." if line.band or len(line.points) < 6 else None
            steps, values = zip(*line.points, strict=True)
            axis.plot(steps, values, line.style, color=color, lw=1.3, marker=marker, label=label(line.name))
            if line.band:
                axis.fill_between(steps, *zip(*line.band, strict=True), color=color, alpha=0.15, linewidth=0)
        axis.set_title(label(self.title), fontsize=9, loc="left")
        axis.set_xlabel(label(self.below), fontsize=7)
        axis.xaxis.get_major_locator().set_params(integer=True)
        for begin in self.begins:
            axis.axvline(begin + 0.5, color="0.6", linewidth=0.8)
        if self.title == CORRELATED:
            axis.set_ylim(min(0.99, axis.get_ylim()[0]), 1.001)  # or rounding at 1.0 would look like a curve
        if self.legend:
            axis.legend(fontsize=7, framealpha=0.7)


def label(name: str) -> str:
    """A name as it is: matplotlib reads what is between two dollars as a formula, and hides what begins with _."""
    return (f" {name}" if name.startswith("_") else name).replace("$", r"\$")


def stage_begins(run: Path) -> dict[str, int]:
    """Stage -> steps of the run before it."""
    begins, total = {}, 0
    for stage in trained_stages(run):
        begins[stage.name] = total
        total += max(read_steps(stage), default=0)
    return begins


def curves(runs: Sequence[Path]) -> tuple[list[Panel], list[str]]:
    """The panels of the metrics of some runs, a line for each run, and words on those that never change.

    A line ends with its stage: the next one has other tasks and, often, another reward. A warm start has a panel of its
    own, whose steps are no steps of the stages.
    """
    begins, panels, constant = stage_begins(runs[0]), list[Panel](), list[str]()
    where: dict[str, Any] = {"begins": [*begins.values()][1:], "below": f"step ({', then '.join(begins)})"}
    found = [_metrics(run) for run in runs]
    for title, names in CURVES.items():
        lines = [
            Line(run.name, metrics[name], number, style)
            for number, (run, metrics) in enumerate(zip(runs, found, strict=True))
            for style, name in zip("-:", names, strict=False)
            if name in metrics
        ]
        values = [value for line in lines for _, value in line.points if value == value]
        if values and max(values) - min(values) < SAME:
            constant.append(f"{title} {fmean(values):.4g}")
        elif values:
            panels.append(Panel(title, lines, **where, legend=not panels and len(runs) > 1))
    for title, (begin, shares) in SHARES.items():
        drawn = [Line(name, found[0].get(f"{begin}{name}", []), number) for number, name in enumerate(shares)]
        if lines := [line for line in drawn if any(value > 0 for _, value in line.points)]:
            panels.append(Panel(title, lines, **where, legend=True))
    losses = []
    for number, stage in enumerate(stage for run in runs for stage in warm_starts(run)):
        for style, name in (("-", LOSS), (":", HELD_OUT_LOSS)):
            points = [(step, values[name]) for step, values in read_steps(stage).items() if name in values]
            losses += [Line(stage.name, points, number, style)] if points else []
    if losses:
        panels.append(Panel("warm start: loss, validation loss (dotted)", losses, below="step of the warm start"))
    return panels, constant


def _metrics(run: Path) -> dict[str, list[tuple[float, float]]]:
    """Metric -> (step of the whole run, value); not a number between two stages."""
    points: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for stage, before in stage_begins(run).items():
        for step, numbers in read_steps(run / stage).items():
            for name, value in numbers.items():
                if before and name in points and points[name][-1][0] <= before:
                    points[name].append((before + 0.5, nan))
                points[name].append((before + step, value))
    return points


def validation_panels(
    names: Sequence[str], validated: Sequence[Sequence[Validation]], begins: Mapping[str, int]
) -> list[Panel]:
    """All tasks by each metric, then each category, with 95 % intervals; a line for each run that validated twice."""
    lines: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for number, (name, rows) in enumerate(zip(names, validated, strict=True)):
        points: dict[tuple[str, str], list[tuple[int, Measured]]] = defaultdict(list)
        for row in rows:
            refusals = ("acc", CALLED) if "irrelevance" in row["category"] else ("acc",)
            for metric in METRICS if row["category"] == OVERALL else refusals:
                if row["stage"] in begins and isfinite(row[metric].value):
                    points[row["category"], metric].append((begins[row["stage"]] + row["step"], row[metric]))
        for key, found in points.items():
            if len(found) > 1:
                drawn = [(step, measured.value) for step, measured in found]
                band = [measured.interval or (nan, nan) for _, measured in found]
                lines[key].append(Line(name, drawn, number, band=band))
    panels = list[Panel]()
    for category, metric in sorted(lines, key=lambda key: key[0] != OVERALL):
        title = METRICS[metric] + ("" if category == OVERALL else f": {category}")
        legend = not panels and len(names) > 1
        panels.append(Panel(title, lines[category, metric], [*begins.values()][1:], legend=legend))
    return panels


def draw_panels(panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """Of each panel its SVG, which takes the page's colours, and its lines for the page's script."""
    import matplotlib
    from matplotlib.figure import Figure

    drawn = []
    for panel in panels:
        with matplotlib.rc_context({**STYLE, "svg.hashsalt": panel.title}):
            figure, made = Figure(figsize=(4.3, 2.1)), io.StringIO()
            axis = figure.subplots()
            panel.on(axis)
            figure.tight_layout()
            figure.savefig(made, format="svg", metadata={"Date": None}, transparent=True)
        lines = [(line.name, [point for point in line.points if isfinite(point[1])]) for line in panel.lines]
        place = [*axis.get_position().extents, *axis.get_xlim(), *axis.get_ylim()]
        drawn.append(
            {"svg": _of_page(made.getvalue()), "hover": {"place": place, "lines": lines}, "title": panel.title}
        )
    return drawn


def _of_page(svg: str) -> str:
    """A figure as an element that takes the page's colours."""
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor").replace(GROUND, "var(--page)")
    used = set(re.findall(r"#([\w-]+)", svg))  # other names would stand on the page once for each figure
    return re.sub(r' id="([^"]+)"', lambda found: found[0] if found[1] in used else "", svg)
