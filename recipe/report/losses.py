"""A warm start as numbers: the loss on the conversations that it learns from, and on those that were held out."""

from pathlib import Path
from statistics import fmean
from typing import Any

from recipe.columns import aligned
from recipe.report.plots import color
from recipe.report.tables import REWARD, WINDOW, stage_dirs, values_of
from recipe.stage.metrics_log import read_steps

TRAIN, HELD_OUT = "train/loss", "val/loss"


def warm_starts(run: Path) -> list[Path]:
    """The folders of a run with steps of supervised training."""
    return [stage for stage in stage_dirs(run) if values_of(stage, TRAIN) and not values_of(stage, REWARD)]


def loss_rows(run: Path) -> list[dict[str, Any]]:
    """One row for each warm start, in nats a token of the model; `held_out` is None where nothing was."""
    rows = []
    for stage in warm_starts(run):
        losses = values_of(stage, TRAIN)
        held_out = {step: values[HELD_OUT] for step, values in read_steps(stage).items() if HELD_OUT in values}
        row: dict[str, Any] = {"stage": stage.name, "steps": len(losses), "held_out": None}
        row |= {"first": fmean(losses[:WINDOW]), "last": fmean(losses[-WINDOW:])}
        if held := [*held_out.values()]:
            lowest = min(held_out, key=held_out.__getitem__)
            row["held_out"] = {"first": held[0], "last": held[-1], "lowest": held_out[lowest], "step": lowest}
        rows.append(row)
    return rows


def loss_table(run: Path) -> str:
    """The warm starts as text; empty where there is none."""
    lines = [["warm start", "steps", "loss, first 5 -> last 5", "validation loss, first -> last", "lowest"]]
    for row in loss_rows(run):
        held = row["held_out"]
        moved, lowest = ("-", "-")
        if held:
            moved = f"{held['first']:.3f} -> {held['last']:.3f}"
            lowest = f"{held['lowest']:.3f} at step {held['step']}"
        lines.append([row["stage"], str(row["steps"]), f"{row['first']:.3f} -> {row['last']:.3f}", moved, lowest])
    return aligned(lines) if len(lines) > 1 else ""


def draw_losses(axis: Any, runs: list[Path]) -> None:
    """The losses of all warm starts of some runs over their own steps; dotted: of what was held out."""
    for number, stage in enumerate(stage for run in runs for stage in warm_starts(run)):
        steps = read_steps(stage)
        for name, style, dot in ((TRAIN, "-", None), (HELD_OUT, ":", ".")):
            points = [(step, values[name]) for step, values in steps.items() if name in values]
            if points:
                axis.plot(*zip(*points, strict=True), style, color=color(number), lw=1.3, marker=dot)
    axis.set_title("warm start: loss, validation loss (dotted)", fontsize=9, loc="left")
    axis.set_xlabel("step of the warm start", fontsize=7)
