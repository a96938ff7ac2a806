"""The tasks of all domains as conversations play them, and on which side of the split each stands."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any, Literal

from interaction.environment import GoldMessage, Part, UserWords
from tau_env import airline, retail, telecom
from tau_env.domain import Domain, Task
from tau_env.environment import Options, TauEnvironment
from tau_env.exchange import Mode, gold_of

SEED = 20261122
"""Of the split into parts."""
SHARES: Mapping[Part, float] = {"train": 0.5, "choose": 0.125, "report": 0.375}

DOMAINS: Mapping[str, Domain] = {"telecom": telecom, "retail": retail, "airline": airline}
SOLO = ("telecom",)
"""Domains that can be played without a user: the agent has the tools of the user's device as well."""


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
def load_tasks() -> tuple[TauTask, ...]:
    """All tasks, those of telecom in both modes."""
    found = []
    for name, domain in DOMAINS.items():
        tasks = domain.load_tasks()
        parts = split(domain, tasks)
        modes: tuple[Mode, ...] = ("solo", "user") if name in SOLO else ("user",)
        for mode in modes:
            found += [TauTask(task, mode, cluster(domain, task), parts[task.number]) for task in tasks]
    return tuple(found)


def cluster(domain: Domain, task: Task) -> str:
    """Tasks with the same faults, or of the same customer, are never on two sides."""
    served = getattr(domain, "user_of", None)
    return f"{task.domain}/{task.number if served is None else served(task)}"


def split(domain: Domain, tasks: Sequence[Task]) -> dict[str, Part]:
    """Number of a task -> its part, drawn by cluster, stratified by category and number of gold's calls or faults."""
    members: dict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        members[cluster(domain, task)].append(task)
    strata: dict[tuple[str, int], list[str]] = defaultdict(list)
    for name, group in members.items():
        strata[group[0].category, size(domain, group[0])].append(name)
    draw, placed = Random(SEED), dict.fromkeys(SHARES, 0)
    parts: dict[str, Part] = {}
    for key in sorted(strata):
        names = sorted(strata[key])
        draw.shuffle(names)
        for name in names:
            total = sum(placed.values()) + len(members[name])
            part = max(SHARES, key=lambda part: SHARES[part] * total - placed[part])
            placed[part] += len(members[name])
            parts |= dict.fromkeys((task.number for task in members[name]), part)
    return parts


def size(domain: Domain, task: Task) -> int:
    """How many faults a task of telecom has; 0 elsewhere."""
    faults = getattr(domain, "faults", None)
    return 0 if faults is None else len(faults(task))


def is_idle(task: TauTask) -> bool:
    """Whether doing nothing passes."""
    idle = getattr(DOMAINS[task.task.domain], "idle", None)
    return idle is not None and bool(idle(task.task))
