"""Which tasks train and which are dev or test: three ways to split a domain.

faults    drawn by cluster (fault set, or customer), stratified by category and number of faults; the default
size      telecom trains on tasks of at most three faults, and the others are held out; elsewhere as `faults`
official  tau2-bench's own: its training tasks train, its test tasks are held out, the rest is left out

A quarter of the held-out tasks are dev tasks and three quarters are test tasks.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from random import Random
from typing import Literal

from interaction.environment import Part
from tau_env import source
from tau_env.domain import Domain, Task

Split = Literal["faults", "size", "official"]

SEED = 20261122
SHARES: Mapping[Part, float] = {"train": 0.5, "dev": 0.125, "test": 0.375}
HELD_OUT: Mapping[Part, float] = {"dev": 0.25, "test": 0.75}
SMALL = 3
"""Faults that a task of the training side has at most, where the split is by size."""


def split(by: Split, domain: Domain, tasks: Sequence[Task], clusters: Mapping[str, str]) -> dict[str, Part]:
    """Number of a task -> its part; without those that the split leaves out.

    Args:
        clusters: number of a task -> its cluster, which is never on two sides.
    """
    train: set[str] | None = None
    if by == "official":
        named = json.loads(source.read(f"domains/{domain.NAME}/split_tasks.json"))
        tasks = [task for task in tasks if task.number in {*named["train"], *named["test"]}]
        train = set(named["train"])
    elif by == "size" and domain.NAME == "telecom":
        train = {task.number for task in tasks if size(domain, task) <= SMALL}
    if train is None:
        return _together(_drawn(SHARES, domain, tasks, clusters), tasks, clusters)
    held_out = _drawn(HELD_OUT, domain, [task for task in tasks if task.number not in train], clusters)
    held_out = _together(held_out, tasks, clusters)
    trained: dict[str, Part] = {task.number: "train" for task in tasks if task.number in train}
    return trained | held_out


def size(domain: Domain, task: Task) -> int:
    """How many faults a task of telecom has; 0 elsewhere."""
    faults = getattr(domain, "faults", None)
    return 0 if faults is None else len(faults(task))


def _drawn(
    shares: Mapping[Part, float], domain: Domain, tasks: Sequence[Task], clusters: Mapping[str, str]
) -> dict[str, Part]:
    """To the part that lacks most, so that every stratum has about these shares: telecom task by task, which then are
    put together (`_together`), the others customer by customer, since these have tasks of all sizes."""
    members: dict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        members[task.number if domain.NAME == "telecom" else clusters[task.number]].append(task)
    strata: dict[tuple[str, int], list[str]] = defaultdict(list)
    for name, group in members.items():
        strata[group[0].category, size(domain, group[0])].append(name)
    draw, placed = Random(SEED), dict.fromkeys(shares, 0)
    parts: dict[str, Part] = {}
    for key in sorted(strata):
        names = sorted(strata[key])
        draw.shuffle(names)
        for name in names:
            total = sum(placed.values()) + len(members[name])
            part = max(shares, key=lambda part: shares[part] * total - placed[part])
            placed[part] += len(members[name])
            parts |= dict.fromkeys((task.number for task in members[name]), part)
    return parts


def _together(parts: Mapping[str, Part], tasks: Sequence[Task], clusters: Mapping[str, str]) -> dict[str, Part]:
    """All tasks of a cluster on one side: that of its last category, so that the many MMS tasks follow the others."""
    sides: dict[str, Part] = {}
    for task in sorted(tasks, key=lambda task: task.category):
        if task.number in parts:
            sides[clusters[task.number]] = parts[task.number]
    return {number: sides[clusters[number]] for number in parts}
