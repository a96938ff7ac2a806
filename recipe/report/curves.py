"""The curves of a run, all stages on one time line of steps."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recipe.report.losses import draw_losses, warm_starts
from recipe.report.tables import CORRELATION, REWARD, trained_stages
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

STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
"""matplotlib's settings for what a page shows."""

STOPS = [f"train/stop/{reason}" for reason in STOP_REASONS]


def draw(runs: list[Path]) -> tuple[bytes, str]:
    """The curves as PNG and as SVG text; a line for each run, stages separated by vertical lines.

    A warm start has a panel of its own, whose steps are no steps of the stages.
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
        ends = _ends(runs[0], stages)
        for axis, title in zip(axes.flat, titles, strict=False):
            for number, line in enumerate(lines):
                for style, name in zip("-:", curves[title], strict=False):
                    if points := line.get(name):
                        dot = "." if len(points) < 3 or title.startswith("validation") else None
                        look = {"color": f"C{number}", "lw": 1.3, "marker": dot, "label": label(runs[number].name)}
                        axis.plot(*zip(*points, strict=True), style, **look)
            axis.set_title(title, fontsize=9, loc="left")
            if CORRELATION in curves[title]:
                axis.set_ylim(min(0.99, axis.get_ylim()[0]), 1.001)  # or rounding at 1.0 would look like a curve
        if len(runs) > 1:
            axes.flat[0].legend(fontsize=7)
        _draw_stops(axes.flat[len(titles)], lines[0])
        for axis in axes.flat[: len(titles) + 1]:
            for end in ends[:-1]:
                axis.axvline(end + 0.5, color="0.75", linewidth=0.8)
        for axis in axes.flat[len(titles) + 1 :]:
            axis.set_visible(False)
        for axis in axes[-1]:
            axis.set_xlabel(label("step (" + ", then ".join(stages) + ")"), fontsize=7)
        if warm:
            draw_losses(figure.add_subplot(rows, columns, len(titles) + 2), runs)
        figure.tight_layout()
        png, svg = io.BytesIO(), io.StringIO()
        figure.savefig(png, format="png", dpi=110)
        figure.savefig(svg, format="svg", metadata={"Date": None})
        pyplot.close(figure)
    return png.getvalue(), svg.getvalue()[svg.getvalue().index("<svg") :]


def label(name: str) -> str:
    """A name as it is: matplotlib reads what is between two dollars as a formula, and hides what begins with _."""
    return (f" {name}" if name.startswith("_") else name).replace("$", r"\$")


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


def _ends(run: Path, stages: list[str]) -> list[int]:
    """The last step of each stage, counted from the first stage's first."""
    ends, total = [], 0
    for stage in stages:
        total += max(read_steps(run / stage), default=0)
        ends.append(total)
    return ends


def _timeline(run: Path, stages: list[str]) -> dict[str, list[tuple[int, float]]]:
    """Metric -> (step of the whole run, value)."""
    points: dict[str, list[tuple[int, float]]] = {}
    for stage, end in zip(stages, [0, *_ends(run, stages)], strict=False):
        for step, numbers in read_steps(run / stage).items():
            for name, value in numbers.items():
                points.setdefault(name, []).append((end + step, value))
    return points


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
