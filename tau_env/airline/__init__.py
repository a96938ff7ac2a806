"""The domain airline: flights that an agent books, changes and cancels for a user, at 3 p.m. on May 15, 2024."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from interaction.call import Call
from tau_env import task_files
from tau_env.airline import reads, writes
from tau_env.airline.database import base
from tau_env.attempt import Attempt, Function, load_functions
from tau_env.domain import PolicyKind, Side, Task
from tau_env.task_facts import needed_writes, nothing_passes, user_served

NAME = "airline"

_READS = (
    reads.get_flight_status,
    reads.get_reservation_details,
    reads.get_user_details,
    reads.list_all_airports,
    reads.search_direct_flight,
    reads.search_onestop_flight,
)
_WRITES = (
    writes.book_reservation,
    writes.cancel_reservation,
    writes.send_certificate,
    writes.update_reservation_baggages,
    writes.update_reservation_flights,
    writes.update_reservation_passengers,
)
WRITES = frozenset(function.__name__ for function in _WRITES)
"""Names of the functions that can change something."""


@cache
def load_tasks() -> tuple[Task, ...]:
    """All 50 tasks, in the order of the file.

    Raises:
        SourceError: the file is missing or not the pinned one.
    """
    return task_files.load_tasks(NAME)


@cache
def _functions() -> Mapping[str, Function]:
    return load_functions(__name__, _READS + _WRITES)


def functions(side: Side) -> tuple[Mapping[str, Any], ...]:
    """Documentation of the agent's 14 functions; the user has none."""
    return tuple(function.doc for function in _functions().values()) if side == "agent" else ()


def policy(kind: PolicyKind, solo: bool) -> str:
    """The rules as the agent reads them: there is one text, and none for `none`.

    Raises:
        ValueError: solo, which these tasks cannot be: only their user knows what is wanted.
        SourceError: the file is missing or not the pinned one.
    """
    return task_files.policy(NAME, kind, solo)


def open(task: Task) -> Attempt:  # noqa: A001
    """The state in which every task begins.

    Raises:
        SourceError: the file of the database is missing or not the pinned one.
    """
    return Attempt(base(), _functions())


def needed(task: Task) -> Iterable[tuple[Side, Call]]:
    """Gold's writes, in its order."""
    return needed_writes(task, WRITES)


def idle(task: Task) -> bool:
    """Whether doing and saying nothing earns the reward. Such tasks are no use in training."""
    return nothing_passes(task, open(task))


def user_of(task: Task) -> str:
    """The id of the user who is served: tasks of one user share records, so they belong on one side of a split."""
    return user_served(task, base(), lambda call: open(task).call(call, "agent").text)
