"""Where the time of a run's steps went: a bar for each stage, and the same as a table."""

from dataclasses import dataclass
from pathlib import Path

from recipe.report.plots import STYLE, label, svg
from recipe.report.tables import trained_stages
from recipe.stage import step_times
from recipe.stage.metrics_log import read_steps


@dataclass(frozen=True)
class StageTime:
    """The steps of one stage of one run."""

    run: str
    stage: str
    steps: int
    """Those whose time was logged."""
    parts: dict[str, float]
    """Part -> seconds of all of them, in the order of `step_times.TIMED`."""

    @property
    def seconds(self) -> float:
        """Of all steps; at least one part has some."""
        return sum(self.parts.values())


def stage_times(runs: list[Path]) -> list[StageTime]:
    """The trained stages whose steps say how long they took, run by run."""
    found = []
    for run in runs:
        for stage in trained_stages(run):
            timed = [numbers for numbers in read_steps(stage).values() if step_times.parts_of(numbers)]
            if timed:
                found.append(StageTime(run.name, stage.name, len(timed), step_times.total(timed)))
    return found


def draw(times: list[StageTime]) -> str:
    """A stacked bar for each, seconds of a mean step, as SVG text; empty where there is nothing to draw."""
    if not times:
        return ""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    several = len({time.run for time in times}) > 1
    names = [label(f"{time.run} {time.stage}" if several else time.stage) for time in times]
    shown = [part for part in step_times.TIMED if any(part in time.parts for time in times)]
    with pyplot.rc_context({**STYLE, "svg.hashsalt": "times"}):
        figure, axis = pyplot.subplots(figsize=(13, 0.9 + 0.32 * len(times)))
        begins = [0.0] * len(times)
        for part in shown:
            widths = [time.parts.get(part, 0.0) / time.steps for time in times]
            color = pyplot.get_cmap("tab20")(2 * list(step_times.TIMED).index(part) % 19)
            axis.barh(range(len(times)), widths, left=begins, label=part, color=color, alpha=0.8, height=0.7)
            begins = [begin + width for begin, width in zip(begins, widths, strict=True)]
        axis.set_yticks(range(len(times)), names)
        axis.invert_yaxis()
        axis.set_title("seconds of a mean step", fontsize=9, loc="left")
        axis.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0), framealpha=0.7)
        figure.tight_layout()
        drawn = svg(figure)
        pyplot.close(figure)
    return drawn
