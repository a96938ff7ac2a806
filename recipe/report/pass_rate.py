"""The pass rate as StepTool reports it: a judge votes several times on each query, and each round of votes is a result.

A vote is worth 1 (Solved), 0.5 (Unsure) or 0 (Unsolved). Of one subset of the queries:

    s_v = mean over queries of vote v        pass rate = mean of the s_v +- their population standard deviation

StepTool's published tables put subsets together in two ways, and so does this. I1, several subsets of one kind, is the
mean of their pass rates and of their deviations, weighted by queries; Average weighs all subsets the same. Neither
deviation is that of pooled votes, which would be smaller by about the root of the number of subsets.

The deviation says how far the judge agrees with itself, and nothing about which queries there are. Whether one method
is better than another is asked of the same queries, query by query (`compare`).
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Literal

from recipe.evaluation.intervals import Interval, t_interval

STEPTOOL = {
    "G1_instruction": ("I1 Ins.", "I1"),
    "G1_category": ("I1 Cat.", "I1"),
    "G1_tool": ("I1 Tool", "I1"),
    "G2_category": ("I2 Cat.", "I2"),
    "G2_instruction": ("I2 Ins.", "I2"),
    "G3_instruction": ("I3 Ins.", "I3"),
}
"""StepTool's files, in the order of its tables: what a table calls the subset, and of which kind it is."""

AVERAGE = "Average"
ALL = "all"

NOTHING = 1e-9
"""A difference of two means of votes that is rounding and no more."""


@dataclass(frozen=True, slots=True)
class Query:
    """The votes on one query, or the verdicts on the samples of one task."""

    votes: tuple[float, ...]
    """Each from 0 to 1; those at one place, over all queries, are one round."""
    cluster: Hashable
    """Queries of one cluster resemble each other. Where none is known, something that no other query has."""


@dataclass(frozen=True, slots=True)
class Method:
    """What a table has one row of: one model with one way to play, and its queries."""

    name: str
    subsets: Mapping[str, Mapping[str, Query]]
    """Subset -> id -> query. The queries of a subset have equally many votes."""
    notes: tuple[str, ...] = ()
    """What a reader of its numbers has to know."""
    judged_by: Literal["votes", "verdicts"] = "votes"
    """What a vote is: somebody's opinion, or the environment's verdict on a sample of a task."""
    played_with: Mapping[str, str] | None = None
    """Of an evaluation its settings as texts, none where they cannot be read; None of anything else."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A pass rate, as a share."""

    mean: float
    deviation: float | None
    """Population standard deviation over rounds; None where there is one round."""
    queries: int
    votes: int | None = None
    """Rounds; None where subsets are put together."""


@dataclass(frozen=True, slots=True)
class Paired:
    """Two methods on the queries that both have."""

    method: str
    baseline: str
    subset: str
    """A subset, or `ALL`: every query counts the same."""
    queries: int
    before: float
    """The baseline's pass rate on these queries; and the method's."""
    after: float
    differing: int
    """Queries whose pass rate is not the same under both."""
    clusters: int
    interval: Interval | None
    """95 % for the difference; None where fewer than two clusters are compared, or where these do not differ in it,
    so that nothing is known of how much they would."""


def label(subset: str) -> str:
    """What a table calls a subset: StepTool's as its tables do, any other by its own name."""
    return STEPTOOL.get(subset, (subset, ""))[0]


def ordered(subsets: Iterable[str]) -> list[str]:
    """Without repetition: StepTool's in the order of its tables, then the others as they come."""
    names = [*dict.fromkeys(subsets)]
    return [name for name in STEPTOOL if name in names] + [name for name in names if name not in STEPTOOL]


def figure(queries: Iterable[Query]) -> Figure:
    """The pass rate of one subset, of one query at least."""
    votes = [query.votes for query in queries]
    rounds = [fmean(column) for column in zip(*votes, strict=True)]
    return Figure(fmean(rounds), pstdev(rounds) if len(rounds) > 1 else None, len(votes), len(rounds))


def together(figures: Sequence[Figure], weights: Sequence[float] | None = None) -> Figure:
    """Subsets put together: the mean of their pass rates and that of their deviations, weighted or not."""
    known = [item.deviation for item in figures if item.deviation is not None]
    deviation = fmean(known, weights) if len(known) == len(figures) else None
    return Figure(fmean((item.mean for item in figures), weights), deviation, sum(item.queries for item in figures))


def figures(method: Method) -> dict[str, Figure]:
    """Subset -> pass rate; then, by the name that a table gives them, kinds that have several subsets, and Average."""
    found = {name: figure(method.subsets[name].values()) for name in ordered(method.subsets)}
    more: dict[str, Figure] = {}
    for kind in dict.fromkeys(kind for _, kind in STEPTOOL.values()):
        parts = [item for name, item in found.items() if name in STEPTOOL and STEPTOOL[name][1] == kind]
        if len(parts) > 1:
            more[kind] = together(parts, [item.queries for item in parts])
    if len(found) > 1:
        more[AVERAGE] = together([*found.values()])
    return found | more


def compare(method: Method, baseline: Method) -> list[Paired]:
    """The differences to a baseline, subset by subset and over all queries; empty where no query is in both.

    Of a query, the means of the two methods' votes are compared; the interval is Student's t over queries, over
    clusters where several queries resemble each other.
    """
    found = []
    everything: list[tuple[float, float, Hashable]] = []
    for subset in ordered(method.subsets):
        others = baseline.subsets.get(subset, {})
        pairs = [
            (fmean(others[name].votes), fmean(query.votes), query.cluster)
            for name, query in method.subsets[subset].items()
            if name in others
        ]
        if pairs:
            found.append(_paired(method, baseline, subset, pairs))
            everything += pairs
    if len(found) > 1:
        found.append(_paired(method, baseline, ALL, everything))
    return found


def _paired(method: Method, baseline: Method, subset: str, pairs: Sequence[tuple[float, float, Hashable]]) -> Paired:
    before, after, clusters = zip(*pairs, strict=True)
    differences = [new - old for old, new in zip(before, after, strict=True)]
    differing, independent = sum(abs(difference) > NOTHING for difference in differences), len({*clusters})
    interval = t_interval(differences, clusters) if independent > 1 else None
    if interval is not None and interval[1] - interval[0] < NOTHING:
        interval = None
    names, means = (method.name, baseline.name, subset), (fmean(before), fmean(after))
    return Paired(*names, len(pairs), *means, differing, independent, interval)
