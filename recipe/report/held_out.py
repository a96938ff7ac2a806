"""How many held-out tasks a run solves: before its warm start, after it, and after each stage.

Only tasks for reporting: those for choosing may have decided something. They stand for tasks that nobody has played, so
the standard error of a run covers which tasks they are, and which episodes were sampled.
"""

import re
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from statistics import fmean
from textwrap import fill

from interaction.environment import task_key_of
from recipe.columns import aligned
from recipe.report.episodes import headers, validation_files
from recipe.report.rise import Rise, compare
from recipe.report.tables import brackets, interval_text, run_text, trained_stages
from recipe.stage import choosing
from recipe.stage.metrics_log import read_steps
from recipe.stage.starts import BEFORE

ALL = "all"
MARKS = {"report": "", choosing.GUARD: ", guard"}
WARM_START = "warm start"
WHAT = (
    "Shares of held-out tasks for reporting that are solved, each task counting the same; since: how far the last "
    "column is above that one, task by task."
)

Values = dict[Hashable, list[float]]
"""Task -> a value of each of its episodes."""


@dataclass(frozen=True)
class Row:
    """One category, or all together."""

    name: str
    shares: list[tuple[float, int]]
    """Of each column the mean over tasks and runs, and the number of tasks."""
    since: dict[str, Rise]
    """Title of an earlier column -> the move from it to the last one."""


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


def rows(runs: Sequence[Path]) -> tuple[list[str], list[Row]]:
    """Titles of the columns that all runs have, and a row for each category; nothing with fewer than two columns."""
    found = [columns(run) for run in runs]
    titles = [title for title in found[0] if all(title in one for one in found)]
    if len(titles) < 2:
        return [], []
    played = [[_values(one[title]) for title in titles] for one in found]
    listed, keys = [], sorted(played[0][-1])
    for key in keys:
        if key[1] or sum(key[:2] == other[:2] for other in keys) > 1:  # a category alone is the same as all
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
    return Row(name, [(fmean(map(fmean, runs)) if all(runs) else nan, len(runs[0])) for runs in of_tasks], since)


def _values(path: Path) -> dict[tuple[str, int, str], Values]:
    """What a validation has of each row, under a key by which the rows are sorted: guard, kind of row, name."""
    found: dict[tuple[str, int, str], Values] = defaultdict(lambda: defaultdict(list))
    for header in (place.header for place in headers(path)):
        mark = MARKS.get(str(header.get("part") or choosing.part_of_row(header)))
        names = ((0, str(header["category"]), "acc"), (1, ALL, "acc"), (2, f"{ALL}, official", "acc_official"))
        for kind, name, metric in names[: 2 if mark else 3]:
            if mark is not None and isinstance(value := header["reward"].get(metric), int | float):
                found[mark, kind, name + mark][task_key_of(header)].append(float(value))
    return found


def lines(runs: Sequence[Path]) -> tuple[list[list[str]], str]:
    """The table's cells, its head first, and what they are; empty where there is nothing to compare."""
    titles, found = rows(runs)
    if not found:
        return [], ""
    several, short = len(runs) > 1, [re.sub(r"^(stage\d+)_.*", r"\1", title) for title in titles]
    heads = short if len(set(short)) == len(short) else titles
    cells = [["held-out", "tasks", *heads, *(f"since {title}" for title in found[0].since), *["each run"] * several]]
    for row in found:
        tasks = row.shares[-1][1]
        shares = [f"{share:.3f}{'' if count == tasks else f' of {count}'}" for share, count in row.shares]
        since = [
            f"{rise.difference:+.3f}{interval_text(rise.interval or rise.runs[0].interval)}"
            for rise in row.since.values()
        ]
        each = [", ".join(map(run_text, [*row.since.values()][-1].runs))] * several
        cells.append([row.name, str(tasks), *shares, *since, *each])
    return cells, " ".join([WHAT, *brackets([rise for row in found for rise in row.since.values()])])


def table(runs: Sequence[Path]) -> str:
    """The table as text; empty where there is none."""
    cells, words = lines(runs)
    return f"{aligned(cells)}\n\n{fill(words, 120)}" if cells else ""
