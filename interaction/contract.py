"""Checks of what code of a user's gives: tasks, data sets, and anything that is called. Whatever is wrong is one line.

Attempts are checked by `interaction.gold.check_task`, as a conversation plays them.
"""

import json
from collections.abc import Callable
from reprlib import repr as short
from typing import Any

from interaction.boundary import CALL_SECONDS, call, how

TASK = ("environment", "id", "category", "cluster", "part")
PARTS = ("train", "dev", "test")


class ContractError(ValueError):
    """An environment does not do what is asked of it. The message is one line and says what to change."""


def called(where: str, function: Callable[[], Any], seconds: float = CALL_SECONDS) -> Any:
    """What code of a user's returns.

    Raises:
        ContractError: it raises, exits or hangs.
    """
    try:
        return call(function, seconds)
    except ContractError:
        raise
    except Exception as error:
        raise ContractError(f"{where} {how(error)}") from error


def expect(where: str, value: Any, *kinds: type) -> Any:
    """The value, if it is of one of the types.

    Raises:
        ContractError: it is not.
    """
    if not isinstance(value, kinds):
        found, expected = " ".join(short(value).split()), " or ".join(kind.__name__ for kind in kinds)
        raise ContractError(f"{where} gives {found} ({type(value).__name__}); expected {expected}")
    return value


def checked_tasks(name: str, given: Any) -> list[Any]:
    """The tasks that `load_tasks()` of a user's environment gives.

    Raises:
        ContractError: they are none, or one says what cannot be.
    """
    tasks, parts = list(given), dict[str, str]()
    if not tasks:
        raise ContractError("load_tasks() gives no task; expected at least one")
    for number, task in enumerate(tasks):
        _check_task(name, f"load_tasks()[{number}]", task)
        if parts.setdefault(task.cluster, task.part) != task.part:
            raise ContractError(f"cluster {task.cluster!r} has tasks in {parts[task.cluster]} and in {task.part}")
    return tasks


def _check_task(name: str, where: str, task: Any) -> None:
    lacks = [field for field in TASK if not isinstance(getattr(task, field, None), str)]
    lacks += [f"{method}()" for method in ("open", "gold") if not callable(getattr(task, method, None))]
    if lacks or isinstance(task, type):
        expected = f"a task with the texts {', '.join(TASK)} and the methods open() and gold()"
        raise ContractError(f"{where} is {short(task)}, which lacks {', '.join(lacks)}; expected {expected}")
    if task.environment != name:
        raise ContractError(f"task {task.id} names the environment {task.environment!r}; expected {name!r}")
    if not task.id or task.part not in PARTS:
        raise ContractError(f"{where} has id {task.id!r} and part {task.part!r}; expected one of {', '.join(PARTS)}")


def checked_sets(environment: str, given: Any, kind: type) -> Any:
    """What `data_sets()` of a user's environment gives; `kind` is the type of its values.

    Raises:
        ContractError: it is of another type, or has a task that lacks something.
    """
    for name, one in expect("data_sets()", given, dict).items():
        where = f"data_sets()[{name!r}]"
        if expect(where, one, kind).kind not in ("train", "val", "sft"):
            raise ContractError(f"{where}.kind is {one.kind!r}; expected train, val or sft")
        for task in one.tasks:
            _check_task(environment, f"{where}: a task", task)
    return given


def checked_json(where: str, given: Any) -> Any:
    """A dictionary that goes into a JSON file.

    Raises:
        ContractError: it does not.
    """
    try:
        json.dumps(expect(where, given, dict))
    except (TypeError, RecursionError) as error:
        raise ContractError(f"{where} gives what is no JSON: {error}") from error
    return given
