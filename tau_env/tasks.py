"""The tasks of all domains as conversations play them, how they are split, and which file of a data set has which.

faults    drawn by cluster (fault set, or customer), stratified by category and number of faults; the default
size      telecom trains on tasks of at most three faults, and the others are held out; elsewhere as `faults`
official  tau2-bench's own: its training tasks train, its test tasks are held out, the rest is left out

A quarter of the held-out tasks are dev tasks and three quarters are test tasks.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any, Literal

from interaction.environment import DataSet, GoldMessage, Part, UserWords
from tau_env import source, telecom
from tau_env.airline import AIRLINE
from tau_env.domain import Domain, Split, Task
from tau_env.environment import Options, TauEnvironment
from tau_env.exchange import Mode, gold_of
from tau_env.retail import RETAIL

DOMAINS: Mapping[str, Domain] = {"telecom": telecom, "retail": RETAIL, "airline": AIRLINE}

SEED = 20261122
SHARES: Mapping[Part, float] = {"train": 0.5, "dev": 0.125, "test": 0.375}
HELD_OUT: Mapping[Part, float] = {"dev": 0.25, "test": 0.75}
SMALL = 3
"""Faults that a task of the training side has at most, where the split is by size."""

EASY = 2
"""Faults that a task of the format stage has at most."""
MOST_HELD_OUT = 256
"""Tasks of each mode that are validated on; there are a thousand."""
RESULT_CHARS = 700
"""Of the demo: to what results are cut."""


@dataclass(frozen=True, slots=True)
class TauTask:
    """A task in one mode."""

    task: Task
    mode: Mode
    cluster: str
    part: Part
    shown: Literal["gold", "expert"] = "gold"
    """What `gold` gives: the task's own calls, or those of an expert who looks before he repairs."""

    environment = "tau"

    @property
    def id(self) -> str:
        return f"{self._domain}/{self.task.number}"

    @property
    def category(self) -> str:
        family = self.task.category.removeprefix(self.task.domain)
        return f"{self._domain}{family}"

    @property
    def _domain(self) -> str:
        return f"{self.task.domain}_solo" if self.mode == "solo" else self.task.domain

    def open(self, **options: Any) -> TauEnvironment:
        """A fresh attempt."""
        return TauEnvironment(DOMAINS[self.task.domain], self.task, self.mode, Options(**options))

    def gold(self) -> Iterator[GoldMessage | UserWords]:
        """What earns the maximum."""
        if self.shown == "expert":
            from tau_env.telecom.expert import play

            return iter([*(GoldMessage(calls=(call,)) for call in play(self.task))])
        return gold_of(self.task, self.mode)


@cache
def load_tasks(by: Split = "faults") -> tuple[TauTask, ...]:
    """All tasks, those of telecom in both modes; with another split, those that it places.

    Raises:
        SourceError: the data is missing, or is not the pinned release.
    """
    found = []
    for name, domain in DOMAINS.items():
        try:
            tasks = domain.load_tasks()
            clusters = {task.number: _cluster(domain, task) for task in tasks}
            parts = split(by, domain, tasks, clusters)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            what = f"{type(error).__name__}: {' '.join(str(error).split())}"
            message = f"the files of {name} in {source.folder()} are not as tau2-bench's: {what}"
            raise source.SourceError(message) from error
        # Without a user the agent has the tools of the user's device as well; in the shops only the user knows.
        modes: tuple[Mode, ...] = ("solo", "user") if name == "telecom" else ("user",)
        for mode in modes:
            placed = [task for task in tasks if task.number in parts]
            found += [TauTask(task, mode, clusters[task.number], parts[task.number]) for task in placed]
    return tuple(found)


def _cluster(domain: Domain, task: Task) -> str:
    """Tasks with the same faults, in whichever family, or of the same customer are never on two sides."""
    served, faults = getattr(domain, "user_of", None), getattr(domain, "faults", None)
    alike = served(task) if served else "|".join(sorted(faults(task))) if faults else task.number
    return f"{task.domain}/{alike}"


def tasks_under(options: Mapping[str, Any]) -> list[TauTask]:
    """Those that can be judged without a language model, on the sides of the split that the options name."""
    return [task for task in load_tasks(Options(**options).split) if "NL_ASSERTION" not in task.task.basis]


def is_idle(task: TauTask) -> bool:
    """Whether doing nothing passes."""
    idle = getattr(DOMAINS[task.task.domain], "idle", None)
    return idle is not None and bool(idle(task.task))


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


# The files of a data set.


def data_sets(tiny: bool, options: Mapping[str, Any]) -> dict[str, DataSet]:
    """File -> its tasks, by the split that the options name: those of the stages, or the small ones of the CPU demo.

    Tasks that doing nothing passes teach nothing, and are left out of training; they stay in what is held out.

    Raises:
        SourceError: the data is missing, or is not the pinned release.
    """
    tasks = tasks_under(options)
    solo = [task for task in tasks if (task.category == "telecom_solo_mobile" if tiny else task.mode == "solo")]
    user = [task for task in tasks if task.mode == "user"]
    train, held_out = _sides(solo)
    user_train, user_held_out = _sides(user)
    if tiny:
        user_train, user_held_out = user_train[:16], [task for task in user_held_out if task.part == "dev"][:2]
    else:
        user_train = [task for task in user_train if not is_idle(task)]
        held_out, user_held_out = _spread(held_out), _spread(user_held_out)
    shown = [replace(task, shown="expert") for task in train]
    return {
        "tau_sft.parquet": DataSet("sft", shown, RESULT_CHARS if tiny else None),
        "tau_format.parquet": DataSet("train", [task for task in train if _size(task) <= EASY]),
        "tau_solo.parquet": DataSet("train", train),
        "tau_user.parquet": DataSet("train", user_train),
        "tau_val.parquet": DataSet("val", held_out),
        "tau_user_val.parquet": DataSet("val", user_held_out),
    }


def _sides(tasks: Sequence[TauTask]) -> tuple[list[TauTask], list[TauTask]]:
    train = [task for task in tasks if task.part == "train"]
    return train, [task for task in tasks if task.part != "train"]


def _size(task: TauTask) -> int:
    return size(DOMAINS[task.task.domain], task.task)


def _spread(tasks: Sequence[TauTask]) -> list[TauTask]:
    """At most `MOST_HELD_OUT` of them, evenly from all categories and sizes as they are ordered."""
    ordered = sorted(tasks, key=lambda task: (task.category, _size(task), task.id))
    step = max(1, -(-len(ordered) // MOST_HELD_OUT))
    return ordered[::step]
