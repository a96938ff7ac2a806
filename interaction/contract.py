"""Checks of what code of a user's gives. What would train something else, or fail unreadably, is told in one line.

Attempts are checked by `interaction.gold.check_task`, as a conversation plays them.
"""

from collections.abc import Callable
from reprlib import repr as short
from typing import Any

from interaction.boundary import CALL_SECONDS, ToolUnavailable, call, how

TASK = ("environment", "id", "category", "cluster", "part")
PARTS = ("train", "dev", "test")


class ContractError(ValueError):
    """An environment does not do what is asked of it. The message is one line and says what to change."""


def called(where: str, function: Callable[[], Any], seconds: float = CALL_SECONDS) -> Any:
    """What code of a user's returns.

    Raises:
        ContractError: it raises, exits or hangs.
        ToolUnavailable: it says so.
    """
    try:
        return call(function, seconds)
    except ContractError as error:
        raise ContractError(f"{where}: {error}") from error
    except ToolUnavailable:
        raise
    except Exception as error:
        raise ContractError(f"{where} {how(error)}") from error


def checked_tasks(name: str, given: Any) -> list[Any]:
    """The tasks that `load_tasks()` of a user's environment gives.

    Raises:
        ContractError: they are none, or one says what cannot be.
    """
    tasks, parts = list(given), dict[str, str]()
    if not tasks:
        raise ContractError("there is no task; expected at least one")
    for number, task in enumerate(tasks):
        lacks = [field for field in TASK if not isinstance(getattr(task, field, None), str)]
        lacks += [f"{method}()" for method in ("open", "gold") if not callable(getattr(task, method, None))]
        if lacks or isinstance(task, type):
            raise ContractError(f"task {number} is {short(task)}, which lacks {', '.join(lacks)}")
        if task.environment != name:
            raise ContractError(f"task {task.id} names the environment {task.environment!r}; expected {name!r}")
        if task.part not in PARTS:
            raise ContractError(f"task {task.id} has part {task.part!r}; expected one of {', '.join(PARTS)}")
        if parts.setdefault(task.cluster, task.part) != task.part:
            raise ContractError(f"cluster {task.cluster!r} has tasks in {parts[task.cluster]} and in {task.part}")
    return tasks
