"""The tasks of all domains as conversations play them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from interaction.environment import GoldMessage, Part, UserWords
from tau_env import airline, retail, telecom
from tau_env.domain import Domain, Task
from tau_env.environment import Options, TauEnvironment
from tau_env.exchange import Mode, gold_of
from tau_env.source import SourceError, folder
from tau_env.splits import Split, split

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
        """A fresh attempt.

        Raises:
            ValueError: a language model would have to judge it.
        """
        if needs_judge(self):
            raise ValueError(f"task {self.id} is judged by a language model (NL_ASSERTION), which is not done here")
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
            what = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            raise SourceError(f"the files of {name} in {folder()} are not as tau2-bench's: {what}") from error
        modes: tuple[Mode, ...] = ("solo", "user") if name in SOLO else ("user",)
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
    """Those that can be played, on the sides of the split that the options name."""
    return [task for task in load_tasks(Options(**options).split) if not needs_judge(task)]


def needs_judge(task: TauTask) -> bool:
    """Whether a language model has to judge it; none of the pinned release does."""
    return "NL_ASSERTION" in task.task.basis


def is_idle(task: TauTask) -> bool:
    """Whether doing nothing passes."""
    idle = getattr(DOMAINS[task.task.domain], "idle", None)
    return idle is not None and bool(idle(task.task))
