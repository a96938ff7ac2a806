r"""Trainings in turn against trainings that play on: wall time to the same number of trained episodes, and the reward.

    python -m benchmarks.long_tail.compare --sync outputs/sync1 outputs/sync2 --async outputs/async1 outputs/async2

Runs are paired in the order given, by seed. Printed for each run: the seconds of its steps and where they went, how old
its episodes were, and how the reward moved, +- one standard error over its episodes; for the pairs how many times as
fast, and the difference of the two rises, each with a 95 % interval by Student's t. With --figure FILE the reward is
drawn against steps and against seconds.
"""

import argparse
from collections.abc import Sequence
from itertools import accumulate
from math import exp, log
from pathlib import Path
from statistics import fmean, median

from recipe.columns import aligned
from recipe.evaluation.intervals import t_interval
from recipe.report.tables import REWARD, Rise, rise, trained_stages
from recipe.stage.metrics_log import read_steps

HEADER = ("run", "steps", "seconds", "s/step", "median", "playing", "log-probs", "update", "rest", "staleness", "max")
STALENESS = "training/off_policy/trajectory_staleness_worst"
PLAYING, LOG_PROBS, UPDATE = ("gen", "switch_wait"), ("old_log_prob", "ref"), ("update_actor", "update_critic")

Steps = dict[int, dict[str, float]]


def seconds(steps: Steps, names: Sequence[str] = ("step",)) -> list[float]:
    """Of each step, in these parts of it."""
    return [sum(numbers.get(f"timing_s/{name}", 0.0) for name in names) for numbers in steps.values()]


def row(name: str, steps: Steps) -> list[str]:
    """A line of the table: means over all steps but the first, in which everything is done for the first time."""
    parts = [fmean(seconds(steps, names)[1:]) for names in (("step",), PLAYING, LOG_PROBS, UPDATE)]
    whole = seconds(steps)
    ages = [numbers.get(f"{STALENESS}/mean", 0.0) for numbers in steps.values()]
    oldest = max(numbers.get(f"{STALENESS}/max", 0.0) for numbers in steps.values())
    return [
        name,
        str(len(steps)),
        f"{sum(whole):.0f}",
        f"{parts[0]:.1f}",
        f"{median(whole[1:]):.1f}",
        *(f"{part:.1f}" for part in (*parts[1:], parts[0] - sum(parts[1:]))),
        f"{fmean(ages):.2f}",
        f"{oldest:.0f}",
    ]


def paired(rises: Sequence[Rise], window: int) -> str:
    """How much more the reward rose while playing on."""
    sync, ahead = (one.runs for one in rises)
    differences = [later.value - earlier.value for earlier, later in zip(sync, ahead, strict=True)]
    text = f"rise of the reward, last {window} steps less first {window}, async less sync: {fmean(differences):+.3f}"
    interval = t_interval(differences) if len(differences) > 1 else None
    return text + (f" [{interval[0]:+.3f}, {interval[1]:+.3f}] over {len(differences)} pairs" if interval else "")


def faster(sync: Sequence[Steps], ahead: Sequence[Steps]) -> str:
    """Seconds to the same number of trained episodes: those of the shorter run of a pair."""
    ratios = []
    for one, other in zip(sync, ahead, strict=True):
        count = min(len(one), len(other))
        ratios.append(log(sum(seconds(one)[:count]) / sum(seconds(other)[:count])))
    text = f"async is {exp(fmean(ratios)):.2f} times as fast"
    interval = t_interval(ratios) if len(ratios) > 1 else None
    return text + (f" [{exp(interval[0]):.2f}, {exp(interval[1]):.2f}] over {len(ratios)} pairs" if interval else "")


def draw(path: Path, modes: dict[str, list[Steps]]) -> None:
    """The reward of each run against steps and against seconds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3), sharey=True)
    for color, (mode, runs) in zip(("C0", "C1"), modes.items(), strict=True):
        for number, steps in enumerate(runs):
            rewards = [numbers[REWARD] for numbers in steps.values()]
            label = mode if number == 0 else None
            axes[0].plot([*steps], rewards, color=color, lw=1.2, label=label)
            axes[1].plot([*accumulate(seconds(steps))], rewards, color=color, lw=1.2)
    axes[0].set(xlabel="step, each trained on as many episodes", ylabel="reward")
    axes[1].set(xlabel="seconds of all steps so far")
    axes[0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main(argv: Sequence[str] | None = None) -> None:
    """Print the comparison."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.long_tail.compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("--sync", type=Path, nargs="+", required=True, metavar="RUN")
    options.add_argument("--async", type=Path, nargs="+", required=True, metavar="RUN", dest="ahead")
    options.add_argument("--stage", help="of each run (default: the first of the first run)")
    options.add_argument("--window", type=int, default=5, help="steps that are the first and the last (default: 5)")
    options.add_argument("--figure", type=Path, metavar="FILE")
    given = options.parse_args(argv)
    if len(given.sync) != len(given.ahead):
        options.error(f"{len(given.sync)} runs with --sync, {len(given.ahead)} with --async: compared are pairs")
    if (stage := given.stage or next((path.name for path in trained_stages(given.sync[0])), None)) is None:
        options.error(f"{given.sync[0]} has no stage with steps of training")
    given_runs = {"sync": given.sync, "async": given.ahead}
    folders = {mode: [run / stage for run in runs] for mode, runs in given_runs.items()}
    modes = {mode: [read_steps(folder) for folder in stages] for mode, stages in folders.items()}
    for folder in (folder for stages in folders.values() for folder in stages):
        if len(steps := read_steps(folder)) < 2:
            options.error(f"{folder} has {len(steps)} steps of training: expected at least 2")
    rises = {mode: rise(stages, REWARD, given.window) for mode, stages in folders.items()}
    names = [folder.parent.name for stages in folders.values() for folder in stages]
    print(aligned([HEADER, *map(row, names, [*modes["sync"], *modes["async"]])]))
    print(faster(modes["sync"], modes["async"]))
    known = [one for one in rises.values() if one is not None]
    for mode, one in rises.items():
        if one is not None:
            print(f"{mode}: reward {one.windows}; {', '.join(map(str, one.runs))}")
    if len(known) == 2:
        print(paired(known, given.window))
    if given.figure:
        draw(given.figure, modes)


if __name__ == "__main__":
    main()
