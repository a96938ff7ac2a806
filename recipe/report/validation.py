"""Held-out tasks: shares and means of each validation with 95 % intervals, and how much they moved over a run.

Where the dev tasks have decided something in a run, only test tasks count. They stand for tasks that nobody has played,
so an interval covers which tasks they are.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from pathlib import Path
from statistics import fmean
from textwrap import fill
from typing import Any

from interaction.environment import DEFAULT, task_key_of, task_name
from recipe.evaluation.intervals import SHARE, Interval, brackets, interval
from recipe.files import aligned
from recipe.report.episodes import Place, headers, validation_files
from recipe.report.tables import Episodes, Rise, cluster_of, compare, trained_stages, warm_starts
from recipe.stage import choosing
from recipe.stage.starts import BEFORE

CALLED, SURPLUS = "called", "surplus"
METRICS = {
    "acc": "solved",
    "acc_official": "solved, official",
    "progress": "progress",
    CALLED: CALLED,
    SURPLUS: SURPLUS,
}
"""Of an episode's reward, and what a table calls it; the last two are whether it made a call, and more than gold."""
OVERALL, GUARD_MARK = "all", ", guard"
"""The category that stands for all of a validation; behind the category of what its guard played."""
WARM_START = "warm start"
MEANING = (
    "Shares of test tasks that are solved, each task counting the same (called: of tasks with at least one call; "
    "surplus: with more calls in a turn than gold makes); "
    "since: how far the last column is above that one, task by task. Brackets are 95 %: over clusters of tasks, and "
    "over seeds where there are several runs. Where no task moved there is none."
)


@dataclass(frozen=True)
class Measured:
    """A mean over held-out tasks with its 95 % interval."""

    value: float
    interval: Interval | None

    def __str__(self) -> str:
        return ("-" if isnan(self.value) else f"{self.value:.3f}") + brackets(self.interval, ".3f")


Header = Mapping[str, Any]
"""The beginning of a stored episode's line."""
Validation = dict[str, Any]
"""One validation of one category: stage, step, category, tasks, and what was `Measured` of each of `METRICS`."""


def validations(run: Path) -> list[Validation]:
    """All validations of each stage, from the stored episodes."""
    return [row for stage in trained_stages(run) for path in validation_files(stage) for row in validation(run, path)]


def validation(run: Path, path: Path) -> list[Validation]:
    """One validation of a run, `<run>/<stage>/rollouts/val/<step>.jsonl`: each category, all together, a guard's."""
    rows = []
    for category, played in by_category(place.header for place in reported(run, path)).items():
        clusters = [cluster_of(header) for header in played]
        row = {"stage": path.parents[2].name, "step": int(path.stem), "category": category, "tasks": len(played)}
        for name in METRICS:
            values = [value_of(header, name) for header in played]
            known = [value for value in values if value is not None]
            row[name] = Measured(nan, None)
            if known and len(known) == len(values):
                row[name] = Measured(fmean(known), interval(known, clusters, bounds=SHARE))
        rows.append(row)
    return rows


def value_of(header: Header, metric: str) -> float | None:
    """One of `METRICS` of a stored episode; None where its reward has none."""
    value = header["reward"].get("calls" if metric == CALLED else metric)
    return value if value is None else float(value > 0) if metric in (CALLED, SURPLUS) else float(value)


def by_category(played: Iterable[Header]) -> dict[str, list[Header]]:
    """Category -> its episodes, then `all`; after these what was played for a guard. A category alone is `all`.

    An environment of several categories that others have too, such as generated tasks in one wording, is a row.
    """
    groups: dict[bool, dict[str, list[Header]]] = {False: defaultdict(list), True: defaultdict(list)}
    episodes = [*played]
    categories = {(header["environment"], header["category"]) for header in episodes}
    own, common = (Counter(pair[at] for pair in categories) for at in (0, 1))
    alike = {environment for environment, name in categories if own[environment] > 1 and common[name] > 1}
    for header in episodes:
        environment, category = header["environment"], header["category"]
        name = environment if environment in alike - {DEFAULT} else task_name(environment, category)
        groups[is_guard(header)][name].append(header)
    found: dict[str, list[Header]] = {}
    for guard, rows in groups.items():
        mark = GUARD_MARK if guard else ""
        if len(rows) > 1:
            found |= {name + mark: rows[name] for name in sorted(rows)}
        if rows:
            found[OVERALL + mark] = [header for played in rows.values() for header in played]
    return found


def is_guard(header: Header) -> bool:
    """Whether an episode was played for `environment.guard`: such episodes are reported apart."""
    return header.get("part") == choosing.GUARD


def reported(run: Path, path: Path) -> list[Place]:
    """The episodes of one validation of a run; where the dev tasks decided something, of the others only."""
    left_out = {"dev", "train"} if choosing.of_run(run) else set()
    return [place for place in headers(path) if place.header["part"] not in left_out]


def ends(names: Sequence[str], validated: Sequence[Sequence[Validation]]) -> list[list[str]]:
    """The cells of a table: of each stage, category and run the first validation and the last; a head first."""
    found: dict[tuple[str, str, str], list[Validation]] = defaultdict(list)
    for name, rows in zip(names, validated, strict=True):
        for row in rows:
            found[row["stage"], row["category"], name].append(row)
    lines = [["stage", "category", "run", "episodes", "step", *METRICS.values()]]
    for key, rows in sorted(found.items(), key=lambda item: item[0][0]):
        first, last = rows[:1] if len(rows) > 1 else [], rows[-1]
        known = {name: [row for row in first if not isnan(row[name].value)] for name in METRICS}
        means = [
            "-"
            if isnan(last[name].value)
            else " -> ".join([*(f"{row[name].value:.3f}" for row in known[name]), str(last[name])])
            for name in METRICS
        ]
        steps = " -> ".join(str(row["step"]) for row in [*first, last])
        lines.append([*key, str(last["tasks"]), steps, *means])
    return lines if found else []


def columns(run: Path) -> dict[str, Path]:
    """Title -> validation: of the model before the warm start, the first one of all stages, the last one of each."""
    found: dict[str, Path] = {}
    for stage in (run / BEFORE, *trained_stages(run)):
        for path in validation_files(stage):
            if int(path.stem) > 0 or stage.name == BEFORE:
                found[stage.name] = path
            elif set(found) <= {BEFORE}:
                found[WARM_START if found or warm_starts(run) else "start"] = path
    return found


Row = tuple[str, list[tuple[float, int]], dict[str, Rise]]
"""Name; of each column the share of tasks solved and the number of tasks; title of an earlier column -> the move to
the last one."""


def rows(runs: Sequence[Path]) -> tuple[list[str], list[Row]]:
    """Titles of the columns that all runs have, and a row for each category; nothing with fewer than two columns."""
    columns_of = [columns(run) for run in runs]
    titles = [title for title in columns_of[0] if all(title in one for one in columns_of)]
    if len(titles) < 2:
        return [], []
    played = [[by_row(one[title]) for title in titles] for one in columns_of]
    found: list[Row] = []
    for name in played[0][-1]:
        values = [[column.get(name, {}) for column in one] for one in played]
        since = {}
        for at, title in enumerate(titles[:-1]):
            if at == 0 or title == WARM_START:
                since[title] = [one for run in values if (one := compare(run[at], run[-1]))]
        if all(len(moved) == len(runs) for moved in since.values()):  # else columns have no task in common
            means = [[[fmean(given) for _, given in run[at].values()] for run in values] for at in range(len(titles))]
            shares = [(fmean(map(fmean, one)) if all(one) else nan, len(one[0])) for one in means]
            found.append((name, shares, {title: Rise(tuple(moved)) for title, moved in since.items()}))
    return titles, found


def by_row(path: Path) -> dict[str, Episodes]:
    """Row of the table of held-out tasks -> task -> what a validation has of it."""
    found: dict[str, Any] = {}
    shown = [place.header for place in headers(path) if place.header["part"] in ("test", choosing.GUARD)]
    for name, played in by_category(shown).items():
        metrics = {name: "acc"}
        if name == OVERALL:
            metrics[f"{name}, official"] = "acc_official"
        elif name.startswith("multi_turn"):
            metrics[f"{name}, progress"] = "progress"
        if name in (OVERALL, OVERALL + GUARD_MARK) or "irrelevance" in name:
            metrics[f"{name}, {CALLED}"] = CALLED  # a model that hardly calls refuses well
        if name in (OVERALL, OVERALL + GUARD_MARK):
            metrics[f"{name}, {SURPLUS}"] = SURPLUS
        for row, metric in metrics.items():
            values: dict[Any, Any] = {}
            for header in played:
                if (value := value_of(header, metric)) is not None:
                    values.setdefault(task_key_of(header), (cluster_of(header), []))[1].append(value)
            found |= {row: values} if values else {}
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
        shares = [f"{share:.3f}{f' of {count}' * (count != tasks)}" if count else "-" for share, count in counted]
        texts = [f"{rise.difference:+.3f}{brackets(rise.interval)}" for rise in rises]
        cells.append([name, str(tasks), *shares, *texts, *[", ".join(map(str, rises[-1].runs))] * several])
    return cells


def table(runs: Sequence[Path]) -> str:
    """The table of held-out tasks as text; empty where there is none."""
    cells = moved(runs)
    return f"{aligned(cells)}\n\n{fill(MEANING, 120)}" if cells else ""
