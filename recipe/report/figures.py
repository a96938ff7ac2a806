"""The figures of a page: SVG with the page's own ink and ground, so that they can be read in light and in dark."""

import io
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby, product
from math import nan
from pathlib import Path
from statistics import fmean
from typing import Any

from numpy import isfinite

from recipe.report.tables import CORRELATION, HELD_OUT_LOSS, LOSS, REWARD, trained_stages, warm_starts
from recipe.report.validation import GUARD_MARK, METRICS, OVERALL, Measured, Validation, overall
from recipe.stage import choosing
from recipe.stage.metrics_log import TIMED, parts_of, read_steps, total_times
from rewards.metrics import STOP_REASONS

CURVES: dict[str, Sequence[str]] = {
    "reward": [REWARD],
    "progress": ["train/progress"],
    "solved (acc)": ["train/acc"],
    "validation: progress": ["val/progress"],
    "validation: solved (acc, official)": ["val/acc", "val/acc_official"],
    "guard: solved (acc)": ["val_guard/acc"],
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
    "engine-actor correlation": [CORRELATION],
}
"""Title and the metrics drawn under it; a title of which a run has nothing is left out."""

SAME = 1e-6
"""A metric that varies by less is not drawn, but named."""
COLUMNS = 3
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
    "axes.prop_cycle": f"cycler(color={COLORS})",
    "legend.facecolor": GROUND,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
}
"""matplotlib's settings."""

Timeline = Mapping[tuple[str, str], list[tuple[int, Measured]]]
"""Category and metric -> (step of the whole run, what was measured there)."""


def label(name: str) -> str:
    """A name as it is: matplotlib reads what is between two dollars as a formula, and hides what begins with _."""
    return (f" {name}" if name.startswith("_") else name).replace("$", r"\$")


@contextmanager
def _pyplot(salt: str) -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with pyplot.rc_context({**STYLE, "svg.hashsalt": salt}):
        yield pyplot
        pyplot.close("all")


def _svg(figure: Any) -> str:
    """A figure as the text of an element; the page's colours show through."""
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None}, transparent=True)
    text = drawn.getvalue()
    text = text[text.index("<svg") :]
    used = set(re.findall(r"#([\w-]+)", text))  # other names would stand on the page once for each figure
    text = re.sub(r' id="([^"]+)"', lambda found: found[0] if found[1] in used else "", text)
    return text.replace(INK, "currentColor").replace(GROUND, "var(--page)")


def _look(number: int, name: str) -> dict[str, Any]:
    return {"color": COLORS[number % len(COLORS)], "lw": 1.3, "label": label(name)}


def stage_begins(run: Path) -> dict[str, int]:
    """Stage -> steps of the run before it."""
    begins, total = {}, 0
    for stage in trained_stages(run):
        begins[stage.name] = total
        total += max(read_steps(stage), default=0)
    return begins


def timeline(rows: Sequence[Validation], begins: Mapping[str, int]) -> Timeline:
    """The validations of a run; those of stages that do not begin in it are left out."""
    points: dict[tuple[str, str], list[tuple[int, Measured]]] = defaultdict(list)
    for (stage, step), group in groupby(rows, key=lambda row: (row["stage"], row["step"])):
        if stage in begins:
            found = {row["category"]: row for row in group}
            if (whole := overall(list(found.values()))) is not None:
                found[OVERALL] = whole
            for category, metric in product(found, METRICS):
                points[category, metric].append((begins[stage] + step, found[category][metric]))
    return points


def _draw_band(axis: Any, points: Sequence[tuple[int, Measured]], **look: Any) -> None:
    """A line, and the intervals as a band around it."""
    steps = [step for step, _ in points]
    axis.plot(steps, [measured.value for _, measured in points], **look)
    low, high = ([measured.interval[side] for _, measured in points] for side in (0, 1))
    axis.fill_between(steps, low, high, color=look["color"], alpha=0.15, linewidth=0)


@dataclass(frozen=True)
class Panel:
    """One small figure: its title, and what draws it."""

    title: str
    draw: Callable[[Any], None]
    begins: Sequence[int] = ()
    """Steps before each stage but the first."""
    below: str = "step"
    last: float | None = None
    """The last step, where panels share their steps."""

    def on(self, axis: Any) -> None:
        """Draw it; a line between two stages."""
        self.draw(axis)
        axis.set_title(self.title, fontsize=9, loc="left")
        axis.set_xlabel(self.below, fontsize=7)
        axis.xaxis.get_major_locator().set_params(integer=True)
        if self.last is not None:
            axis.set_xlim(0, self.last + 0.5)
        for begin in self.begins:
            axis.axvline(begin + 0.5, color="0.6", linewidth=0.8)


def curves(runs: list[Path], validated: Sequence[Timeline]) -> tuple[list[Panel], list[str]]:
    """The panels of the metrics of some runs, a line for each run, and words on those that say nothing.

    A line ends with its stage: the next one has other tasks and, often, another reward. A warm start has a panel of its
    own, whose steps are no steps of the stages.

    Args:
        validated: for each run what its stored validations say; two and more are drawn with their intervals.
    """
    known, begins = CURVES, stage_begins(runs[0])
    decided = [item for run in runs for item in choosing.of_run(run)]
    if decided and choosing.all_by_dev_part(decided):  # then validation is that of the test tasks
        known = {
            title.replace("validation:", "validation, test tasks:"): [
                name.replace("val/", choosing.TEST) for name in names
            ]
            for title, names in CURVES.items()
        }
    lines, panels, constant = [_metrics(run) for run in runs], list[Panel](), list[str]()
    parted, below = [*begins.values()][1:], label("step (" + ", then ".join(begins) + ")")
    last = max((point[0] for line in lines for points in line.values() for point in points), default=None)
    for title, names in known.items():
        values = [value for line in lines for name in names for _, value in line.get(name, ()) if value == value]
        if values and max(values) - min(values) < SAME:
            constant.append(f"{title} {fmean(values):.4g}")
        elif values:
            stored = validated if title.startswith("validation") else ()
            panels.append(Panel(title, partial(_draw_metric, names, runs, lines, stored), parted, below, last))
    ended = [f"train/stop/{reason}" for reason in STOP_REASONS]
    panels.append(Panel("why episodes ended", partial(_draw_stack, ended, lines[0], 1.0), parted, below, last))
    if "resample/edge" in lines[0]:
        standings = [f"resample/{name}" for name in ("out_of_reach", "edge", "mastered")]
        panels.append(Panel("tasks in play", partial(_draw_stack, standings, lines[0], None), parted, below, last))
    if any(warm_starts(run) for run in runs):
        title = "warm start: loss, validation loss (dotted)"
        panels.append(Panel(title, partial(_draw_losses, runs), below="step of the warm start"))
    return panels, constant


def _draw_metric(names: Sequence[str], runs: list[Path], lines: Any, validated: Sequence[Timeline], axis: Any) -> None:
    for number, (run, line) in enumerate(zip(runs, lines, strict=True)):
        stored = validated[number] if validated else {}
        for style, name in zip("-:", names, strict=False):
            look = _look(number, run.name) | {"ls": style}
            points, measured = line.get(name, []), stored.get((OVERALL, name.rpartition("/")[2]), [])
            if len(measured) > 1:
                _draw_band(axis, measured, **look, marker=".")
            elif points:
                axis.plot(*zip(*points, strict=True), **look, marker="." if stored or len(points) < 6 else None)
    if CORRELATION in names:
        axis.set_ylim(min(0.99, axis.get_ylim()[0]), 1.001)  # or rounding at 1.0 would look like a curve


def draw_png(panels: Sequence[Panel]) -> bytes:
    """All panels in one picture."""
    rows = -(-len(panels) // COLUMNS)
    with _pyplot("curves") as pyplot:
        figure, axes = pyplot.subplots(rows, COLUMNS, figsize=(13, 2.1 * rows), squeeze=False)
        for number, axis in enumerate(axes.flat):
            axis.set_visible(number < len(panels))
            if number < len(panels):
                panels[number].on(axis)
        figure.tight_layout()
        png = io.BytesIO()
        figure.savefig(png, format="png", dpi=110)
        return png.getvalue()


def draw_panels(panels: Sequence[Panel], names: Sequence[str]) -> list[dict[str, Any]]:
    """Of each panel its SVG, and its lines as the page's script shows them under the pointer.

    Args:
        names: of the runs; with several, the first panel has a legend.
    """
    drawn = []
    for number, panel in enumerate(panels):
        with _pyplot(panel.title) as pyplot:
            figure, axis = pyplot.subplots(figsize=(4.3, 2.1))
            panel.on(axis)
            if number == 0 and len(names) > 1 and axis.get_legend_handles_labels()[0]:
                axis.legend(fontsize=7)
            figure.tight_layout()
            lines = [(line.get_label().strip(), line.get_xydata()) for line in axis.get_lines()]
            known = [(name, xy[isfinite(xy).all(1)].tolist()) for name, xy in lines if not name.startswith("_child")]
            place = [*axis.get_position().extents, *axis.get_xlim(), *axis.get_ylim()]
            drawn.append({"svg": _svg(figure), "hover": {"place": place, "lines": known}, "title": panel.title})
    return drawn


def _metrics(run: Path) -> dict[str, list[tuple[float, float]]]:
    """Metric -> (step of the whole run, value); not a number between two stages, except of validations."""
    points: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for stage, before in stage_begins(run).items():
        for step, numbers in read_steps(run / stage).items():
            for name, value in numbers.items():
                if before and not name.startswith("val") and points[name] and points[name][-1][0] <= before:
                    points[name].append((before + 0.5, nan))
                points[name].append((before + step, value))
    return points


def _draw_stack(
    names: Sequence[str], line: Mapping[str, Sequence[tuple[float, float]]], most: float | None, axis: Any
) -> None:
    """Shares or numbers on top of each other, such as why episodes ended; of the first run."""
    names = [name for name in names if any(value > 0 for _, value in line.get(name, []))]
    if names:
        steps = [step for step, _ in line[names[0]]]
        values = [[value for _, value in line[name]] for name in names]
        axis.stackplot(steps, values, labels=[label(name.rpartition("/")[2]) for name in names], alpha=0.8)
        axis.set_ylim(0, most)
        axis.legend(fontsize=7, loc="lower left", framealpha=0.7)


def _draw_losses(runs: list[Path], axis: Any) -> None:
    """The losses of all warm starts over their own steps; dotted: of what was held out."""
    for number, stage in enumerate(stage for run in runs for stage in warm_starts(run)):
        steps = read_steps(stage)
        for name, style, dot in ((LOSS, "-", None), (HELD_OUT_LOSS, ":", ".")):
            points = [(step, values[name]) for step, values in steps.items() if name in values]
            if points:
                color = COLORS[number % len(COLORS)]
                name = label(f"{stage.name}{', validation' if name == HELD_OUT_LOSS else ''}")
                axis.plot(*zip(*points, strict=True), style, color=color, lw=1.3, marker=dot, label=name)


def validated_panels(names: Sequence[str], timelines: Sequence[Timeline], begins: Mapping[str, int]) -> list[Panel]:
    """All tasks by each metric, then each category; none where no run has validated twice."""
    several = dict.fromkeys(key for line in timelines for key, points in line.items() if len(points) > 1)
    categories = [category for category, metric in several if metric == "acc" and category != OVERALL]
    own = [category for category in categories if not category.endswith(GUARD_MARK)]
    shown = [(OVERALL, metric) for metric in METRICS if (OVERALL, metric) in several]
    shown += [(category, "acc") for category in categories if category not in own or len(own) > 1]

    def draw(key: tuple[str, str], axis: Any) -> None:
        for number, points in enumerate(line.get(key, []) for line in timelines):
            if points:
                _draw_band(axis, points, **_look(number, names[number]), marker=".")

    return [
        Panel(
            METRICS[metric] + ("" if category == OVERALL else f": {label(category)}"),
            partial(draw, (category, metric)),
            [*begins.values()][1:],
        )
        for category, metric in shown
    ]


def stage_times(runs: list[Path]) -> list[dict[str, Any]]:
    """Run, stage, number of steps and seconds by part of the trained stages whose steps say how long they took."""
    found = []
    for run in runs:
        for stage in trained_stages(run):
            if timed := [numbers for numbers in read_steps(stage).values() if parts_of(numbers)]:
                parts = total_times(timed)
                found.append({"run": run.name, "stage": stage.name, "steps": len(timed), "parts": parts})
    return found


def draw_times(times: Sequence[Mapping[str, Any]]) -> str:
    """A stacked bar for each stage, seconds of a mean step, as SVG text; empty where there is nothing to draw."""
    if not times:
        return ""
    several = len({time["run"] for time in times}) > 1
    names = [label(f"{time['run']} {time['stage']}" if several else time["stage"]) for time in times]
    with _pyplot("times") as pyplot:
        figure, axis = pyplot.subplots(figsize=(13, 0.9 + 0.32 * len(times)))
        begins = [0.0] * len(times)
        for number, part in enumerate(TIMED):
            if any(part in time["parts"] for time in times):
                widths = [time["parts"].get(part, 0.0) / time["steps"] for time in times]
                color = pyplot.get_cmap("tab20")(2 * number % 19)
                axis.barh(range(len(times)), widths, left=begins, label=part, color=color, alpha=0.8, height=0.7)
                begins = [begin + width for begin, width in zip(begins, widths, strict=True)]
        axis.set_yticks(range(len(times)), names)
        axis.invert_yaxis()
        axis.set_title("seconds of a mean step", fontsize=9, loc="left")
        axis.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0), framealpha=0.7)
        figure.tight_layout()
        return _svg(figure)
