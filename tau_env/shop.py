"""A domain in which only the agent has tools and states are compared: retail and airline.

All that is special about one is its functions and its database; what a task needs, whom it serves and whether doing
nothing passes it follow from gold in both.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

from interaction.call import Call
from tau_env import task_files
from tau_env.attempt import Attempt, Function, Run, load_functions
from tau_env.domain import PolicyKind, Side, Task
from tau_env.records import Base
from tau_env.task_facts import needed_writes, nothing_passes, user_served


class Shop:
    """Fulfils `Domain`; nothing is read before it is asked for.

    Args:
        package: that has `functions.json`; its last name is the domain's.
        base: the database in which every task begins.
    """

    def __init__(self, package: str, reads: Iterable[Run], writes: Iterable[Run], base: Callable[[], Base]) -> None:
        self.NAME = package.rpartition(".")[2]
        self.base = base
        self._package, self._runs = package, (*reads, *writes)
        self.WRITES = frozenset(run.__name__ for run in writes)

    def load_tasks(self) -> tuple[Task, ...]:
        """All tasks, in the order of the file.

        Raises:
            SourceError: the file is missing or not the pinned one.
        """
        return self._tasks

    def functions(self, side: Side) -> tuple[Mapping[str, Any], ...]:
        """Documentation of the agent's functions; the user has none."""
        return tuple(function.doc for function in self._functions.values()) if side == "agent" else ()

    def policy(self, kind: PolicyKind, solo: bool) -> str:
        """The rules as the agent reads them: there is one text, and none for `none`.

        Raises:
            ValueError: solo, which these tasks cannot be: only their user knows what is wanted.
            SourceError: the file is missing or not the pinned one.
        """
        return task_files.policy(self.NAME, kind, solo)

    def open(self, task: Task) -> Attempt:
        """The state in which every task begins.

        Raises:
            SourceError: the file of the database is missing or not the pinned one.
        """
        return Attempt(self.base(), self._functions)

    def needed(self, task: Task) -> Iterable[tuple[Side, Call]]:
        """Gold's writes, in its order."""
        return needed_writes(task, self.WRITES)

    def idle(self, task: Task) -> bool:
        """Whether doing and saying nothing earns the reward. Such tasks are no use in training."""
        return nothing_passes(task, self.open(task))

    def user_of(self, task: Task) -> str:
        """The id of the user who is served: tasks of one user share records, so they belong on one side of a split."""
        return user_served(task, self.base(), lambda call: self.open(task).call(call, "agent").text)

    @cached_property
    def _tasks(self) -> tuple[Task, ...]:
        return task_files.load_tasks(self.NAME)

    @cached_property
    def _functions(self) -> Mapping[str, Function]:
        return load_functions(self._package, self._runs)
