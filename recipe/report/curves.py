"""The curves of a run, all stages on one time line of steps."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recipe.report.losses import draw_losses, warm_starts
from recipe.report.plots import STYLE, color, label, svg
from recipe.report.tables import CORRELATION, REWARD, stage_ends, trained_stages
from recipe.report.validation import OVERALL
from recipe.report.validation_curves import Timeline, draw_band
from recipe.stage import choosing
from recipe.stage.metrics_log import read_steps
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
    "long episodes: price, left out": ["train/overlong_penalty", "train/overlong_left_out"],
    "gradient norm": ["actor/grad_norm"],
    "learning rate": ["actor/lr"],
    "value loss": ["critic/vf_loss"],
    "engine-actor correlation": [CORRELATION],
}
"""Title and the metrics drawn under it; a title of which a run has nothing is left out. In a run in which the tasks for
choosing have decided something, validation is that of the tasks for reporting."""

STOPS = [f"train/stop/{reason}" for reason in STOP_REASONS]


def draw(runs: list[Path], validated: Sequence[Timeline] = ()) -> tuple[bytes, str]:
    """The curves as PNG and as SVG text; a line for each run, stages separated by vertical lines.

    A warm start has a panel of its own, whose steps are no steps of the stages.

    Args:
        validated: for each run what its stored validations say; two and more are drawn with their intervals.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    curves = _curves_of(runs)
    stages = [stage.name for stage in trained_stages(runs[0])]
    lines = [_timeline(run, stages) for run in runs]
    titles = [title for title, names in curves.items() if any(name in line for line in lines for name in names)]
    columns, warm = 3, any(warm_starts(run) for run in runs)
    rows = -(-(len(titles) + 1 + warm) // columns)
    with pyplot.rc_context({**STYLE, "svg.hashsalt": "curves"}):
        figure, axes = pyplot.subplots(rows, columns, figsize=(13, 2.1 * rows), sharex=True, squeeze=False)
        ends = stage_ends(runs[0], stages)
        for axis, title in zip(axes.flat, titles, strict=False):
            banded = validated if title.startswith("validation") else ()
            for number, (run, line) in enumerate(zip(runs, lines, strict=True)):
                look = {"color": color(number), "lw": 1.3, "label": label(run.name)}
                _draw_lines(axis, curves[title], line, banded[number] if banded else {}, look)
            axis.set_title(title, fontsize=9, loc="left")
            if CORRELATION in curves[title]:
                axis.set_ylim(min(0.99, axis.get_ylim()[0]), 1.001)  # or rounding at 1.0 would look like a curve
        if len(runs) > 1:
            axes.flat[0].legend(fontsize=7)
        _draw_stops(axes.flat[len(titles)], lines[0])
        for axis in axes.flat[: len(titles) + 1]:
            for end in ends[:-1]:
                axis.axvline(end + 0.5, color="0.6", linewidth=0.8)
        for axis in axes.flat[len(titles) + 1 :]:
            axis.set_visible(False)
        for axis in axes[-1]:
            axis.set_xlabel(label("step (" + ", then ".join(stages) + ")"), fontsize=7)
        if warm:
            draw_losses(figure.add_subplot(rows, columns, len(titles) + 2), runs)
        figure.tight_layout()
        png = io.BytesIO()
        figure.savefig(png, format="png", dpi=110)
        drawn = svg(figure)
        pyplot.close(figure)
    return png.getvalue(), drawn


def _curves_of(runs: list[Path]) -> dict[str, Sequence[str]]:
    """`CURVES`, with the validation that these runs may report."""
    decided = [item for run in runs for item in choosing.of_run(run)]
    if not decided or not choosing.all_by_choosing_part(decided):
        return CURVES
    return {
        title.replace("validation:", "validation, reporting tasks:"): [
            name.replace("val/", choosing.REPORT) for name in names
        ]
        for title, names in CURVES.items()
    }


def _timeline(run: Path, stages: list[str]) -> dict[str, list[tuple[int, float]]]:
    """Metric -> (step of the whole run, value)."""
    points: dict[str, list[tuple[int, float]]] = {}
    for stage, end in zip(stages, [0, *stage_ends(run, stages)], strict=False):
        for step, numbers in read_steps(run / stage).items():
            for name, value in numbers.items():
                points.setdefault(name, []).append((end + step, value))
    return points


def _draw_lines(
    axis: Any, names: Sequence[str], line: Mapping[str, Sequence[tuple[int, float]]], stored: Timeline, look: Any
) -> None:
    """A run's line for each of a panel's metrics; with a band where its stored episodes say how sure it is."""
    for style, name in zip("-:", names, strict=False):
        points, measured = line.get(name, []), stored.get((OVERALL, name.rpartition("/")[2]), [])
        if len(measured) > 1:
            draw_band(axis, measured, **look, ls=style, marker=".")
        elif points:
            axis.plot(*zip(*points, strict=True), **look, ls=style, marker="." if stored or len(points) < 3 else None)


def _draw_stops(axis: Any, line: dict[str, list[tuple[int, float]]]) -> None:
    """Why episodes ended, as shares on top of each other; of the first run."""
    names = [name for name in STOPS if any(value > 0 for _, value in line.get(name, []))]
    axis.set_title("why episodes ended", fontsize=9, loc="left")
    if names:
        steps = [step for step, _ in line[names[0]]]
        shares = [[value for _, value in line[name]] for name in names]
        axis.stackplot(steps, shares, labels=[name.rpartition("/")[2] for name in names], alpha=0.8)
        axis.set_ylim(0, 1)
        axis.legend(fontsize=7, loc="lower left", framealpha=0.7)
