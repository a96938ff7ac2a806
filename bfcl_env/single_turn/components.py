"""Which tasks belong together, and on which side of the split they stand.

BFCL asks many questions twice, in two categories, and most live tasks share their functions with others. Tasks are
joined where they share a question (letters and digits alike), or a function (name and parameters alike), and whatever
is joined, through however many others, is one component: what a model is tested on it has not seen, neither asked nor
documented. That a name alone is shared joins nothing: `search` is many functions.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from random import Random
from typing import Any

from interaction.environment import Part

SEED = 20261122
SHARES: Mapping[Part, float] = {"train": 0.5, "dev": 0.125, "test": 0.375}
"""As tau's. Of each category about these shares, as far as large components allow."""

_BETWEEN = re.compile(r"\W+")


def joined(marks: Mapping[str, Iterable[Hashable]]) -> dict[str, str]:
    """Name -> the first name of those that it is joined to, by a mark that both have or through others.

    Args:
        marks: name -> what must not be shared by two components.
    """
    parents = {name: name for name in marks}

    def first(name: str) -> str:
        while parents[name] != name:
            parents[name] = name = parents[parents[name]]
        return name

    seen: dict[Hashable, str] = {}
    for name, those in marks.items():
        for mark in those:
            one, other = first(seen.setdefault(mark, name)), first(name)
            parents[other] = one
    return {name: first(name) for name in parents}


def marks_of(entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What must not be shared by two sides."""
    yield "", _BETWEEN.sub("", entry["question"][0][-1]["content"].casefold())
    for function in entry["function"]:
        yield function["name"], json.dumps(function["parameters"], sort_keys=True)


def parts(categories: Mapping[str, str], clusters: Mapping[str, str], held_out: Collection[str]) -> dict[str, Part]:
    """Cluster -> its part.

    The largest clusters are placed first, each into the part that lacks most of its categories; with them those of
    `held_out`, which never train.

    Args:
        categories: id -> category.
        clusters: id -> cluster.
        held_out: ids whose clusters must not be trained on.
    """
    sizes: dict[str, Counter[str]] = defaultdict(Counter)
    for name, cluster in clusters.items():
        sizes[cluster][categories[name]] += 1
    total = Counter(categories.values())
    placed = {part: Counter[str]() for part in SHARES}
    forbidden = {clusters[name] for name in held_out}

    def lack(part: Part, size: Counter[str]) -> float:
        return sum(count * (SHARES[part] - placed[part][name] / total[name]) for name, count in size.items())

    order = sorted(sizes)
    Random(SEED).shuffle(order)
    found: dict[str, Part] = {}
    for cluster in sorted(order, key=lambda name: -sizes[name].total()):
        allowed = [part for part in SHARES if part != "train" or cluster not in forbidden]
        found[cluster] = max(allowed, key=lambda part: lack(part, sizes[cluster]))
        placed[found[cluster]] += sizes[cluster]
    return found
