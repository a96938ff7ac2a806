"""What validation said: shares and means over held-out tasks, each with its 95 % interval, from the stored episodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from recipe.evaluation.intervals import Interval, mean_interval, proportion_interval
from recipe.report.episodes import Place, headers, validation_files
from recipe.report.tables import trained_stages
from recipe.stage import choosing


@dataclass(frozen=True)
class Measured:
    """A mean over held-out tasks with its 95 % interval."""

    value: float
    interval: Interval


@dataclass(frozen=True)
class Validation:
    """One validation of one category."""

    stage: str
    step: int
    category: str
    tasks: int
    acc: Measured
    acc_official: Measured
    progress: Measured


METRICS = {"acc": "solved", "acc_official": "solved, official", "progress": "progress"}

GUARD_MARK = ", guard"
"""Behind the category of what a guard played."""

OVERALL, GUARDED = "all", f"all{GUARD_MARK}"
"""Categories that stand for all of a validation, and for all that its guard has played."""


def validations(run: Path, every: bool = False) -> list[Validation]:
    """The first and the last validation of each stage, or all of them, from the stored episodes.

    Where a part of the tasks has decided something in this run, those of the other part only.
    """
    rows = []
    for stage in trained_stages(run):
        files = validation_files(stage)
        for path in files if every else dict.fromkeys([*files[:1], *files[-1:]]):
            rows += validation(run, path)
    return rows


def overall(rows: Sequence[Validation]) -> Validation | None:
    """Of one validation what stands for all its tasks but a guard's; None where it played none."""
    own = [row for row in rows if not row.category.endswith(GUARD_MARK)]
    return next((row for row in own if row.category == OVERALL), own[0] if len(own) == 1 else None)


def first_and_last(rows: Sequence[Validation]) -> list[Validation]:
    """Of all validations of a run those that are the first or the last of their stage."""
    steps: dict[str, list[int]] = {}
    for row in rows:
        steps.setdefault(row.stage, []).append(row.step)
    return [row for row in rows if row.step in (min(steps[row.stage]), max(steps[row.stage]))]


@dataclass(frozen=True)
class Beside:
    """One category of a stage's validations in several runs."""

    stage: str
    category: str
    runs: Sequence[Sequence[Validation]]
    """Of each run the first and the last, one where it has one only, none where it has none."""


def beside(runs: Sequence[Sequence[Validation]]) -> list[Beside]:
    """What the validations of several runs said, stage by stage and category by category."""
    ends = [first_and_last(rows) for rows in runs]
    keys = dict.fromkeys((row.stage, row.category) for rows in ends for row in rows)
    return [
        Beside(*key, [[row for row in rows if (row.stage, row.category) == key] for rows in ends])
        for key in sorted(keys, key=lambda key: key[0])
    ]


def validation(run: Path, path: Path) -> list[Validation]:
    """One validation of a run: each category, then all together where there are several; a guard's apart.

    Args:
        path: `<run>/<stage>/rollouts/val/<step>.jsonl`.
    """
    rows, stage = [], path.parents[2].name
    found = [place.header for place in reported(run, path)]
    kinds = sorted({(*kind_of(header), is_guard(header)) for header in found})
    names = [category for category, _, _ in kinds]
    for category, environment, guard in kinds:
        name = category if names.count(category) < 2 else f"{environment}/{category}"
        chosen = [header for header in found if (*kind_of(header), is_guard(header)) == (category, environment, guard)]
        rows.append(_validation(stage, name + GUARD_MARK * guard, chosen))
    for name, guard in ((OVERALL, False), (GUARDED, True)):
        of_part = [header for header in found if is_guard(header) is guard]
        if len({kind_of(header) for header in of_part}) > 1:
            rows.append(_validation(stage, name, of_part))
    return rows


def is_guard(header: dict[str, Any]) -> bool:
    """Whether an episode was played for `environment.guard`: such episodes are reported apart."""
    return header.get("part") == choosing.GUARD


def reported(run: Path, path: Path) -> list[Place]:
    """The episodes of one validation of a run; where the tasks for choosing decided something, of the others only."""
    decided = choosing.of_run(run)
    left_out = {"choose", "train"} if decided and choosing.all_by_choosing_part(decided) else set()
    return [
        place
        for place in headers(path)
        if (place.header.get("part") or choosing.part_of_row(place.header)) not in left_out
    ]


def _validation(stage: str, category: str, found: list[dict[str, Any]]) -> Validation:
    clusters = [(header["environment"], header["cluster"]) for header in found]

    def values(name: str) -> list[float]:
        return [float(header.get("reward", {}).get(name, 0.0)) for header in found]

    def share(name: str) -> Measured:
        return Measured(fmean(values(name)), proportion_interval(values(name), clusters))

    progress = Measured(fmean(values("progress")), mean_interval(values("progress"), clusters))
    step = int(found[0]["step"])
    return Validation(stage, step, category, len(found), share("acc"), share("acc_official"), progress)


def kind_of(header: dict[str, Any]) -> tuple[str, str]:
    """Category and environment, such as `multi_turn_base` and `bfcl`."""
    return str(header["category"]), str(header["environment"])
