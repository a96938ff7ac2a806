"""Which tasks of an environment go into a data set: those of some categories, that the protocol can write."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from interaction.environment import DataSet, Task, load_tasks, task_name
from interaction.gold import unwritable
from interaction.protocol import Protocol

Sets = Mapping[str, DataSet]
"""File -> its tasks."""

PREFIX = "multi_turn_"
"""BFCL's categories may be named without it."""


def categories_of(environment: str) -> list[str]:
    """All categories of an environment, in its order."""
    return [*dict.fromkeys(task.category for task in load_tasks(environment).values())]


def full_names(environment: str, names: Sequence[str]) -> list[str]:
    """Categories as tasks name them, in the environment's order.

    Raises:
        ValueError: the environment has no such category.
    """
    known = categories_of(environment)
    for name in names:
        if name not in known and PREFIX + name not in known:
            short = ", ".join(item.removeprefix(PREFIX) for item in known)
            raise ValueError(f"{name!r} is no category of environment {environment}; known: {short}")
    return [name for name in known if name in names or name.removeprefix(PREFIX) in names]


def of_categories(sets: Sets, categories: Sequence[str]) -> dict[str, DataSet]:
    """The tasks of these categories; files that have none are left out."""
    chosen = {name: _where(one, lambda task: task.category in categories) for name, one in sets.items()}
    return {name: one for name, one in chosen.items() if one.tasks}


def writable(sets: Sets, protocol: Protocol) -> tuple[dict[str, DataSet], dict[str, str]]:
    """The tasks whose gold the protocol can write, and why not for each that is left out: nobody could do those."""
    tasks = {task_name(task.environment, task.id): task for one in sets.values() for task in one.tasks}
    reasons = {name: reason for name, task in tasks.items() if (reason := unwritable(task, protocol)) is not None}
    if not reasons:
        return dict(sets), {}
    return {
        name: _where(one, lambda task: task_name(task.environment, task.id) not in reasons)
        for name, one in sets.items()
    }, reasons


def _where(one: DataSet, condition: Callable[[Task], bool]) -> DataSet:
    return replace(one, tasks=[task for task in one.tasks if condition(task)])
