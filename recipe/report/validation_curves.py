"""Validation over the steps of a run: lines with the 95 % intervals of the table as bands, runs beside one another."""

from collections.abc import Mapping, Sequence
from itertools import chain, groupby, product
from typing import Any

from recipe.report.plots import STYLE, color, label, svg
from recipe.report.validation import GUARD_MARK, METRICS, OVERALL, Measured, Validation, overall

Points = list[tuple[int, Measured]]
"""Step of the whole run, and what was measured there."""

Timeline = Mapping[tuple[str, str], Points]
"""Category and metric -> points; `OVERALL` is there too where a validation has one category only."""


def timeline(rows: Sequence[Validation], begins: Mapping[str, int]) -> Timeline:
    """The validations of a run; `begins` says after how many steps of the run a stage begins; others are left out."""
    points: dict[tuple[str, str], Points] = {}
    for (stage, step), group in groupby(rows, key=lambda row: (row.stage, row.step)):
        if stage not in begins:
            continue
        found = {row.category: row for row in group}
        if (whole := overall(list(found.values()))) is not None:
            found[OVERALL] = whole
        for category, metric in product(found, METRICS):
            measured = getattr(found[category], metric)
            points.setdefault((category, metric), []).append((begins[stage] + step, measured))
    return points


def draw_band(axis: Any, points: Points, **look: Any) -> None:
    """A line, and the intervals as a band around it."""
    steps = [step for step, _ in points]
    axis.plot(steps, [measured.value for _, measured in points], **look)
    low, high = ([measured.interval[side] for _, measured in points] for side in (0, 1))
    axis.fill_between(steps, low, high, color=look["color"], alpha=0.15, linewidth=0)


def draw(names: Sequence[str], timelines: Sequence[Timeline], ends: Sequence[int] = ()) -> str:
    """All tasks by each metric, then each category, as SVG; empty where no run has validated twice.

    Args:
        names: of the runs.
        timelines: theirs.
        ends: steps at which a line parts two stages.
    """
    shown = _panels(timelines)
    if not shown:
        return ""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = 3
    rows = -(-len(shown) // columns)
    with pyplot.rc_context({**STYLE, "svg.hashsalt": "validation"}):
        figure, axes = pyplot.subplots(rows, columns, figsize=(13, 2.2 * rows + 0.2), sharex=True, squeeze=False)
        for axis, (category, metric) in zip(axes.flat, shown, strict=False):
            for number, points in enumerate(line.get((category, metric), []) for line in timelines):
                if points:
                    look = {"color": color(number), "lw": 1.3, "marker": ".", "label": label(names[number])}
                    draw_band(axis, points, **look)
            axis.set_title(
                METRICS[metric] + ("" if category == OVERALL else f": {label(category)}"), fontsize=9, loc="left"
            )
            axis.set_xlabel("step", fontsize=7)
            for end in ends:
                axis.axvline(end + 0.5, color="0.6", linewidth=0.8)
        for axis in axes.flat[len(shown) :]:
            axis.set_visible(False)
        if len(names) > 1:
            axes.flat[0].legend(fontsize=7)
        figure.tight_layout()
        drawn = svg(figure)
        pyplot.close(figure)
    return drawn


def _panels(timelines: Sequence[Timeline]) -> list[tuple[str, str]]:
    """What is drawn: all tasks by each metric, the share of solved ones by category where there are several."""
    lines = chain.from_iterable(line.items() for line in timelines)
    several = dict.fromkeys(key for key, points in lines if len(points) > 1)
    categories = [category for category, metric in several if metric == "acc" and category != OVERALL]
    own = [category for category in categories if not category.endswith(GUARD_MARK)]
    kept = [category for category in categories if category not in own or len(own) > 1]
    whole = [(OVERALL, metric) for metric in METRICS if (OVERALL, metric) in several]
    return whole + [(category, "acc") for category in kept]
