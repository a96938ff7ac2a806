"""Held-out tasks: shares and means of each validation with 95 % intervals, and how much they moved over a run.

Where the dev tasks have decided something in a run, only test tasks count. They stand for tasks that
nobody has played, so the standard error of a move covers which tasks they are, and which episodes were sampled.
"""

import re
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from statistics import fmean
from textwrap import fill
from typing import Any

from interaction.environment import task_key_of
from recipe.evaluation.intervals import Interval, mean_interval, proportion_interval
from recipe.files import aligned
from recipe.report.episodes import Place, headers, validation_files
from recipe.report.tables import Rise, brackets, compare, trained_stages
from recipe.stage import choosing
from recipe.stage.metrics_log import read_steps
from recipe.stage.starts import BEFORE

METRICS = {"acc": "solved", "acc_official": "solved, official", "progress": "progress"}
OVERALL, GUARD_MARK = "all", ", guard"
"""The category that stands for all of a validation; behind the category of what its guard played."""
PROGRESS, WARM_START = ", progress", "warm start"
MEANING = (
    "Shares of test tasks that are solved, each task counting the same; since: how far the last "
    "column is above that one, task by task. Brackets are 95 %."
)

Values = dict[Hashable, list[float]]
"""Task -> a value of each of its episodes."""


@dataclass(frozen=True)
class Measured:
    """A mean over held-out tasks with its 95 % interval."""

    value: float
    interval: Interval

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.interval[0]:.3f}, {self.interval[1]:.3f}]"


Validation = dict[str, Any]
"""One validation of one category: stage, step, category, tasks, and what was `Measured` of each of `METRICS`."""


def validations(run: Path) -> list[Validation]:
    """All validations of each stage, from the stored episodes."""
    return [row for stage in trained_stages(run) for path in validation_files(stage) for row in validation(run, path)]


def validation(run: Path, path: Path) -> list[Validation]:
    """One validation of a run: each category, then all together where there are several; a guard's apart.

    Args:
        path: `<run>/<stage>/rollouts/val/<step>.jsonl`.
    """
    rows, stage, played = [], path.parents[2].name, [place.header for place in reported(run, path)]
    groups: dict[tuple[bool, str, str], list[dict[str, Any]]] = defaultdict(list)
    for header in played:
        groups[is_guard(header), header["category"], header["environment"]].append(header)
    names = [category for _, category, _ in groups]
    for (guard, category, environment), found in sorted(groups.items(), key=lambda item: (item[0][1:], item[0][0])):
        name = category if names.count(category) < 2 else f"{environment}/{category}"
        rows.append(_validation(stage, name + GUARD_MARK * guard, found))
    for guard in (False, True):
        if sum(key[0] is guard for key in groups) > 1:
            of_part = [header for header in played if is_guard(header) is guard]
            rows.append(_validation(stage, OVERALL + GUARD_MARK * guard, of_part))
    return rows


def is_guard(header: Mapping[str, Any]) -> bool:
    """Whether an episode was played for `environment.guard`: such episodes are reported apart."""
    return header.get("part") == choosing.GUARD


def reported(run: Path, path: Path) -> list[Place]:
    """The episodes of one validation of a run; where the dev tasks decided something, of the others only."""
    decided = choosing.of_run(run)
    left_out = {"dev", "train"} if decided and choosing.all_by_dev_part(decided) else set()
    return [place for place in headers(path) if place.header["part"] not in left_out]


def _validation(stage: str, category: str, found: list[dict[str, Any]]) -> Validation:
    clusters = [(header["environment"], header["cluster"]) for header in found]
    row = {"stage": stage, "step": found[0]["step"], "category": category, "tasks": len(found)}
    for name in METRICS:
        values = [float(header["reward"].get(name, 0.0)) for header in found]
        interval = (mean_interval if name == "progress" else proportion_interval)(values, clusters)
        row[name] = Measured(fmean(values), interval)
    return row


def overall(rows: Sequence[Validation]) -> Validation | None:
    """Of one validation the row of all its tasks but a guard's; None where it played none."""
    own = [row for row in rows if not row["category"].endswith(GUARD_MARK)]
    return next((row for row in own if row["category"] == OVERALL), own[0] if len(own) == 1 else None)


def first_and_last(rows: Sequence[Validation]) -> list[Validation]:
    """Of all validations of a run those that are the first or the last of their stage."""
    steps: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        steps[row["stage"]].append(row["step"])
    return [row for row in rows if row["step"] in (min(steps[row["stage"]]), max(steps[row["stage"]]))]


def beside(runs: Sequence[Sequence[Validation]]) -> list[dict[str, Any]]:
    """The first and the last validations of several runs, stage by stage and category by category."""
    ends = [first_and_last(rows) for rows in runs]
    keys = sorted(
        dict.fromkeys((row["stage"], row["category"]) for rows in ends for row in rows), key=lambda key: key[0]
    )
    return [
        {"stage": key[0], "category": key[1]}
        | {"runs": [[row for row in rows if (row["stage"], row["category"]) == key] for rows in ends]}
        for key in keys
    ]


def columns(run: Path) -> dict[str, Path]:
    """Title -> validation: of the model before the warm start, the first one of all stages, the last one of each.

    A validation that was not played to its end has not been logged, and is left out: its short episodes came first.
    """
    found: dict[str, Path] = {}
    for stage in (run / BEFORE, *trained_stages(run)):
        logged = read_steps(stage)
        for path in validation_files(stage):
            if (step := int(path.stem)) not in logged:
                continue
            if step > 0 or stage.name == BEFORE:
                found[stage.name] = path
            elif set(found) <= {BEFORE}:
                found[WARM_START if found else "start"] = path
    return found


Row = tuple[str, list[tuple[float, int]], dict[str, Rise]]
"""Name; of each column the share of tasks solved and the number of tasks; title of an earlier column -> the move to
the last one."""


def rows(runs: Sequence[Path]) -> tuple[list[str], list[Row]]:
    """Titles of the columns that all runs have, and a row for each category; nothing with fewer than two columns."""
    found = [columns(run) for run in runs]
    titles = [title for title in found[0] if all(title in one for one in found)]
    if len(titles) < 2:
        return [], []
    played = [[_values(one[title]) for title in titles] for one in found]
    listed, keys = [], sorted(played[0][-1])
    for key in keys:
        same = [other for other in keys if other[:2] == key[:2] and PROGRESS not in other[2]]
        if key[1] or same != [key]:  # a category alone is the same as all
            listed.append(_row(titles, key[2], [[column.get(key, {}) for column in one] for one in played]))
    return titles, [row for row in listed if row]


def _row(titles: Sequence[str], name: str, played: Sequence[Sequence[Values]]) -> Row | None:
    """One row from the values in each column of each run; None where columns have no task in common."""
    since = {}
    for at, title in enumerate(titles[:-1]):
        if at == 0 or title == WARM_START:
            moved = [one for run in played if (one := compare(run[at], run[-1], drawn=True))]
            if len(moved) < len(played):
                return None
            since[title] = Rise(tuple(moved))
    of_tasks = [[[*map(fmean, run[at].values())] for run in played] for at in range(len(titles))]
    return name, [(fmean(map(fmean, runs)) if all(runs) else nan, len(runs[0])) for runs in of_tasks], since


def _values(path: Path) -> dict[tuple[str, int, str], Values]:
    """What a validation has of each row, under a key by which the rows are sorted: guard, kind of row, name."""
    found: dict[tuple[str, int, str], Values] = defaultdict(lambda: defaultdict(list))
    played = [place.header for place in headers(path)]
    known = {(header["category"], header["environment"]) for header in played}
    for header in played:
        mark, category = {"test": "", choosing.GUARD: GUARD_MARK}.get(header["part"]), header["category"]
        if sum(one == category for one, _ in known) > 1:
            category = f"{header['environment']}/{category}"
        names = [(0, category, "acc"), (1, OVERALL, "acc"), (2, f"{OVERALL}, official", "acc_official")]
        if header["category"].startswith("multi_turn"):
            names.insert(1, (0, category + PROGRESS, "progress"))
        for kind, name, metric in names[: -1 if mark else None]:
            if mark is not None and (value := header["reward"].get(metric)) is not None:
                found[mark, kind, name + mark][task_key_of(header)].append(float(value))
    return found


def moved(runs: Sequence[Path]) -> list[list[str]]:
    """The cells of the table of held-out tasks, its head first; empty where there is nothing to compare."""
    titles, found = rows(runs)
    if not found:
        return []
    several, short = len(runs) > 1, [re.sub(r"^(stage\d+)_.*", r"\1", title) for title in titles]
    heads = short if len(set(short)) == len(short) else titles
    cells = [["held-out", "tasks", *heads, *(f"since {title}" for title in found[0][2]), *["each run"] * several]]
    for name, counted, since in found:
        tasks, rises = counted[-1][1], [*since.values()]
        shares = [f"{share:.3f}{'' if count == tasks else f' of {count}'}" for share, count in counted]
        texts = [f"{rise.difference:+.3f}{brackets(rise.interval or rise.runs[0].interval)}" for rise in rises]
        cells.append([name, str(tasks), *shares, *texts, *[", ".join(map(str, rises[-1].runs))] * several])
    return cells


def table(runs: Sequence[Path]) -> str:
    """The table of held-out tasks as text; empty where there is none."""
    cells = moved(runs)
    return f"{aligned(cells)}\n\n{fill(MEANING, 120)}" if cells else ""
