"""The pass rate as StepTool reports it: a judge votes several times on each query, and each round of votes is a result.

A vote is worth 1 (Solved), 0.5 (Unsure) or 0 (Unsolved). Of one subset of the queries:

    s_v = mean over queries of vote v        pass rate = mean of the s_v +- their population standard deviation

Subsets are put together as in StepTool's published tables. I1, several subsets of one kind, is the mean of their pass
rates and of their deviations, weighted by queries; Average weighs all subsets the same. The deviation says how far the
judge agrees with itself. Whether one method is better than another is asked query by query (`compare`).
"""

import csv
import json
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np

from recipe.evaluation.intervals import SHARE, Interval, brackets, interval, of_difference
from recipe.files import aligned, write_atomic
from recipe.report.page import render

STEPTOOL = {
    "G1_instruction": ("I1 Ins.", "I1"),
    "G1_category": ("I1 Cat.", "I1"),
    "G1_tool": ("I1 Tool", "I1"),
    "G2_category": ("I2 Cat.", "I2"),
    "G2_instruction": ("I2 Ins.", "I2"),
    "G3_instruction": ("I3 Ins.", "I3"),
}
"""StepTool's files, in the order of its tables: what a table calls the subset, and of which kind it is."""

AVERAGE, ALL = "Average", "all"

WHAT = (
    "In percent. A vote is worth 1 (Solved), 0.5 (Unsure) or 0 (Unsolved); of an evaluation or a run it is the "
    "environment's verdict on a sample (acc, not acc_official). +- is the population standard deviation over rounds of "
    "votes, samples or seeds, which says nothing about which queries there are. I1 and I2 weigh subsets by queries, "
    "Average weighs them the same; their +- is the mean of the subsets'. called: episodes with at least one call."
)
OF_SEEDS = (
    "In percent: tasks solved by the environment's own verdict (acc), by the official one where that differs. +- is "
    "the population standard deviation over seeds. called: episodes with at least one call."
)
PAIRED = "The same queries under both, each counting the same; the brackets are 95 % over clusters of similar queries."
SEEDS = """ They are over seeds too, taken as independent. In differences, a recipe's single seed is taken to spread as
those of the other do; with one each, the brackets say nothing about other seeds."""


class Query(NamedTuple):
    """The votes on one query, each from 0 to 1, or the verdicts on the samples of one task."""

    votes: tuple[float, ...]
    cluster: Hashable
    """Queries of one cluster resemble each other."""


class Played(NamedTuple):
    """One episode."""

    subset: str
    task: str
    sample: int
    cluster: tuple[str, str]
    passed: bool
    called: bool | None
    """Whether it made a call; None where that is not stored."""
    record: Callable[[], Mapping[str, Any] | None]
    """The record of the whole conversation, read when it is called; None if it is damaged."""
    official: bool = False
    """Whether it passed by the verdict of the environment's source."""


@dataclass(frozen=True, slots=True)
class Method:
    """A row of the table: one model with one way to play, and its queries."""

    name: str
    subsets: Mapping[str, Mapping[str, Query]]
    """Subset -> id -> query. The queries of a subset have equally many votes."""
    notes: tuple[str, ...] = ()
    settings: Mapping[str, Any] | None = None
    """Those of an evaluation."""
    played: Sequence[Played] = ()
    """The episodes of an evaluation or a stage."""
    seeds: bool = False
    """Whether the votes on a query are the results of several seeds of one recipe."""


class Figure(NamedTuple):
    """A pass rate, as a share."""

    mean: float
    deviation: float | None
    """Population standard deviation over rounds; None where there is one round."""
    queries: int

    def __str__(self) -> str:
        return f"{100 * self.mean:.1f}" + ("" if self.deviation is None else f" +- {100 * self.deviation:.1f}")


class Paired(NamedTuple):
    """Two methods on the queries that both have: pass rates of the baseline and the method, as shares."""

    method: str
    baseline: str
    subset: str
    queries: int
    before: float
    after: float
    interval: Interval | None
    """95 % for the difference; None with fewer than two clusters, or where all of them differ by the same."""
    means: tuple[Interval | None, Interval | None]
    """95 % for each of the two pass rates."""


def label(subset: str) -> str:
    """What a table calls a subset."""
    return STEPTOOL.get(subset, (subset, ""))[0]


def ordered(subsets: Iterable[str]) -> list[str]:
    """Without repetition: StepTool's in the order of its tables, then the others as they come."""
    return sorted(dict.fromkeys(subsets), key=lambda name: [*STEPTOOL, name].index(name))


def together(figures: Sequence[Figure], weights: Sequence[float] | None = None) -> Figure:
    """Subsets put together: the mean of their pass rates and that of their deviations, weighted or not."""
    known = [item.deviation for item in figures if item.deviation is not None]
    deviation = fmean(known, weights) if len(known) == len(figures) else None
    return Figure(fmean((item.mean for item in figures), weights), deviation, sum(item.queries for item in figures))


def figures(method: Method) -> dict[str, Figure]:
    """Subset -> pass rate; then kinds that have several subsets, and Average."""
    found: dict[str, Figure] = {}
    for name in ordered(method.subsets):
        votes = [query.votes for query in method.subsets[name].values()]
        rounds = [fmean(column) for column in zip(*votes, strict=True)]
        found[name] = Figure(fmean(rounds), pstdev(rounds) if len(rounds) > 1 else None, len(votes))
    more: dict[str, Figure] = {}
    for kind in dict.fromkeys(kind for _, kind in STEPTOOL.values()):
        parts = [item for name, item in found.items() if STEPTOOL.get(name, ("", ""))[1] == kind]
        if len(parts) > 1:
            more[kind] = together(parts, [item.queries for item in parts])
    if len(found) > 1:
        more[AVERAGE] = together([*found.values()])
    return found | more


def compare(method: Method, baseline: Method) -> list[Paired]:
    """The differences to a baseline, subset by subset and over all queries; empty where no query is in both.

    The means of a query's votes are compared.
    """
    pairs: dict[str, list[tuple[Any, Any, Hashable]]] = defaultdict(list)
    for subset in ordered(method.subsets):
        for name, query in method.subsets[subset].items():
            if (other := baseline.subsets.get(subset, {}).get(name)) is not None:
                pairs[subset].append((other.votes, query.votes, query.cluster))
    if len(pairs) > 1:
        pairs[ALL] = sum(pairs.values(), [])
    found = []
    for subset, pairs_of in pairs.items():
        *both, clusters = zip(*pairs_of, strict=True)
        rows = zip((baseline, method), both, strict=True)
        shares = [np.transpose(its if one.seeds else [[fmean(votes)] for votes in its]) for one, its in rows]
        sure = [interval([*one.flat], clusters * len(one), np.indices(one.shape)[0].flat, SHARE) for one in shares]
        means = float(shares[0].mean()), float(shares[1].mean()), of_difference(shares[0], shares[1], clusters)
        found.append(Paired(method.name, baseline.name, subset, len(clusters), *means, (sure[0], sure[1])))
    return found


class Comparison:
    """Methods beside a baseline, as text, page and CSV files."""

    def __init__(self, methods: Sequence[Method], baseline: Method) -> None:
        self.methods, self.baseline, self.paired = methods, baseline, PAIRED + SEEDS * baseline.seeds
        self.what = OF_SEEDS if baseline.seeds else WHAT
        self.figures = {method.name: figures(method) for method in methods}
        by_verdict = [*zip(methods[1::2], methods[::2], strict=True)] if baseline.seeds else []
        against = by_verdict or [(method, baseline) for method in methods if method is not baseline]
        self.pairs = [pair for one, other in against for pair in compare(one, other)]

    def table(self) -> list[list[str]]:
        """A head and a row for each method; a column for each subset, those put together, and the call rate."""
        subsets = ordered(name for method in self.methods for name in method.subsets)
        more = {name for found in self.figures.values() for name in found if name not in subsets}
        columns = [*subsets, *sorted(more, key=lambda name: (name == AVERAGE, name))]
        lines = [["method", "queries", *map(label, columns), "called"]]
        for method in self.methods:
            queries, found = sum(map(len, method.subsets.values())), self.figures[method.name]
            called = [item.called for item in method.played if item.called is not None]
            rates = [*(str(found.get(name, "-")) for name in columns), f"{100 * fmean(called):.1f}" if called else "-"]
            lines.append([method.name, str(queries), *rates])
        return lines

    def differences(self) -> list[list[str]]:
        """A head and a row for each pair, in percentage points."""
        rows = [["method", "against", "subset", "queries", "pass rates", "difference [95 %]"]]
        for pair in self.pairs:
            sure = brackets(pair.interval, "+.1f", 100) or " (no interval)"
            difference = f"{100 * (pair.after - pair.before):+.1f}{sure}"
            names = [pair.method, pair.baseline, label(pair.subset), str(pair.queries)]
            ends = zip((pair.before, pair.after), pair.means, strict=True)
            means = " -> ".join(f"{100 * mean:.1f}{brackets(each, '.1f', 100)}" for mean, each in ends)
            rows.append([*names, means, difference])
        return rows

    def notes(self) -> list[str]:
        """What a reader has to know of single rows."""
        found, evaluations = [], [method for method in self.methods if method.settings is not None]
        if len(evaluations) > 1:
            settings, who = [one.settings or {} for one in evaluations], " | ".join(one.name for one in evaluations)
            values = {name: [json.dumps(one.get(name)) for one in settings] for one in settings for name in one}
            other = "; ".join(f"{name}: {' | '.join(given)}" for name, given in values.items() if len({*given}) > 1)
            found.append(f"Settings that differ, {who}: {other}" if other else f"Settings of {who}: the same")
        said = [(method, note) for method in self.methods for note in method.notes]
        found += [note if method.seeds else f"{method.name}: {note}" for method, note in said]
        for method in self.methods:
            like = [other.subsets for other in self.methods if other.subsets.keys() & method.subsets.keys()]
            lacks = ordered(name for subsets in like for name in subsets if name not in method.subsets)
            if lacks:
                listed = ", ".join(map(label, lacks))
                found.append(f"{method.name} has no {listed}, so its Average is over other subsets than another row's")
            if method is not self.baseline and not any(method.name in pair[:2] for pair in self.pairs):
                found.append(f"{method.name} and {self.baseline.name} have no query in common and are not compared")
        return found

    def text(self) -> str:
        """The tables for a terminal."""
        pairs = [aligned(self.differences()), fill(self.paired, 120)] if self.pairs else []
        notes = [fill(f"{note}.", 120) for note in self.notes()]
        return "\n\n".join([aligned(self.table()), fill(self.what, 120), *pairs, *notes])

    def write(self, out: Path) -> list[Path]:
        """Write pass_rate.html, pass_rate.csv, differences.csv and pass_rate.json into a folder; returns their paths.

        CSV and JSON have a line for each number, unrounded, as shares.
        """
        rates: list[Sequence[object]] = [("method", "subset", "queries", "pass_rate", "standard_deviation")]
        for method, found in self.figures.items():
            rates += [(method, label(name), it.queries, it.mean, it.deviation) for name, it in found.items()]
        ends = [f"{of}{end}" for of in ("", "before_", "after_") for end in ("low", "high")]
        pairs: list[Sequence[object]] = [(*Paired._fields[:-2], *ends)]
        for pair in self.pairs:
            pairs.append((*pair[:-2], *(end for sure in (pair.interval, *pair.means) for end in sure or (None, None))))
        out.mkdir(parents=True, exist_ok=True)
        write_atomic(out / "pass_rate.html", render("pass_rate.html", found=self, what=self.what, paired=self.paired))
        tables = {"pass_rate": rates, "differences": pairs}
        for name, lines in tables.items():
            with (out / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
                csv.writer(file, lineterminator="\n").writerows([*map(_as_text, line)] for line in lines)
        data: dict[str, Any] = {"notes": self.notes(), "settings": {one.name: one.settings for one in self.methods}}
        data |= {name: [dict(zip(head, row, strict=True)) for row in rows] for name, (head, *rows) in tables.items()}
        write_atomic(out / "pass_rate.json", json.dumps(data, indent=2) + "\n")
        return [out / name for name in ("pass_rate.html", "pass_rate.csv", "differences.csv", "pass_rate.json")]


def _as_text(cell: object) -> object:
    """With a quote before it where a spreadsheet would take the text for a formula."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell
