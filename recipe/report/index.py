"""An index of the runs in a folder: how far each got, how much its reward and its held-out tasks moved, its page."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from recipe.files import write_atomic
from recipe.report import losses, tables
from recipe.report.episodes import validation_files
from recipe.report.held_out import ALL, rows
from recipe.report.page import entries
from recipe.report.render import render
from recipe.report.rise import Rise
from recipe.report.validation import Validation, overall, validation
from recipe.stage.metrics_log import read_steps
from recipe.stage.notes import DONE, TARGET

PAGE = "report.html"


@dataclass(frozen=True)
class StageLine:
    """One stage of a run."""

    name: str
    status: str
    steps: int
    target: int | None
    """Steps at which it ends; None where it has not been noted."""
    reward: Rise | None
    validated: Validation | None
    """All tasks of its last validation; None without one."""


@dataclass(frozen=True)
class Listed:
    """One run."""

    name: str
    begun: str
    """When its first start was, as the manifest says it; empty where it does not."""
    has_page: bool
    stages: Sequence[StageLine]
    moved: Rise | None
    """The share of held-out tasks solved, from the run's first validation to its last."""

    @property
    def done(self) -> int:
        """Stages that have ended."""
        return sum(stage.status == "done" for stage in self.stages)


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run that has begun."""
    begun = any((folder / name).exists() for name in ("manifest.json", "curriculum.json"))
    return begun or bool(tables.trained_stages(folder) or losses.warm_starts(folder))


def write(folder: Path) -> tuple[Path, int]:
    """Write `index.html` into a folder of runs, the latest first; returns its path, and how many it lists.

    A folder without a run gets none.

    Raises:
        OSError: the folder cannot be read or written.
    """
    runs = [_listed(run) for run in sorted(folder.iterdir()) if run.is_dir() and is_run(run)]
    path = folder / "index.html"
    if runs:
        runs.sort(key=lambda run: run.begun, reverse=True)
        write_atomic(path, render("index.html", folder=folder.absolute().name, runs=runs, tables=tables, page=PAGE))
    return path, len(runs)


def _listed(run: Path) -> Listed:
    begun = next((str(start.get("time", "")) for start in entries(run / "manifest.json", "starts")), "")
    listed = entries(run / "curriculum.json", "stages")
    planned = {str(entry.get("folder") or entry.get("name")): str(entry.get("status")) for entry in listed}
    folders = {stage.name: stage for stage in tables.stage_dirs(run)}
    names = dict.fromkeys([*(name for name in planned if name in folders), *folders])
    stages = [_stage(run, folders[name], planned.get(name)) for name in names]
    waiting = [StageLine(name, status, 0, None, None, None) for name, status in planned.items() if name not in names]
    moved = next((rise for row in rows([run])[1] if row.name == ALL for rise in row.since.values()), None)
    return Listed(run.name, begun, (run / PAGE).exists(), stages + waiting, moved)


def _stage(run: Path, stage: Path, planned: str | None) -> StageLine:
    done, target = DONE.read_or_none(stage / "done.json"), TARGET.read_or_none(stage / "total_steps.json")
    files = validation_files(stage)
    return StageLine(
        stage.name,
        "done" if done else planned or "begun",
        max(read_steps(stage), default=0),
        target.total_steps if target else None,
        tables.rise([stage], tables.REWARD),
        overall(validation(run, files[-1])) if files else None,
    )
