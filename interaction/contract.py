"""What code of a user's gives, compared with what `interaction.environment` asks for; whatever is wrong is one line.

Here are the tasks, which are looked at wherever they are loaded; `interaction.attempt_contract` opens them.
"""

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from inspect import iscoroutine
from reprlib import Repr
from typing import Any

from interaction.boundary import CALL_SECONDS, call, how

FIELDS = ("environment", "id", "category", "cluster", "part")
METHODS = ("open", "gold")
KINDS = ("train", "val", "sft")
PARTS = ("train", "choose", "report")
EXPECTED = f"a task, with the texts {', '.join(FIELDS)} and the methods open() and gold()"

_short = Repr()
_short.maxstring = _short.maxother = 80


class ContractError(ValueError):
    """An environment does not do what is asked of it. The message is one line and says what to change."""


def show(value: Any) -> str:
    """A value of any size in few words, with its type where the words do not say it."""
    name = type(value).__name__
    with suppress(Exception):  # a number may have too many digits for a text, and a class of a user's no text at all
        if isinstance(value, type):
            return f"the class {value.__name__}"
        if value is None or isinstance(value, str | bool | int | float):
            return _line(value)
        if isinstance(value, list | tuple | dict | set | frozenset):
            return f"the {name} {_line(value)}"
    return f"{'an' if name[:1] in 'AEIOUaeiou' else 'a'} {name}"


def _line(value: Any) -> str:
    return " ".join(_short.repr(value).split())


def called(where: str, function: Callable[[], Any], check: Callable[[str, Any], Any] | None = None) -> Any:
    """What code of a user's returns, or what `check` makes of it.

    Raises:
        ContractError: it raises, exits or hangs; or what it returns does, while it is looked at.
    """
    try:
        return call(lambda: function() if check is None else check(where, function()), CALL_SECONDS)
    except ContractError:
        raise
    except Exception as error:
        raise ContractError(f"{where} {how(error)}") from error


def expect(where: str, value: Any, *kinds: type | None, what: str = "") -> Any:
    """The value, if it is of one of the types.

    Args:
        kinds: None: for none.
        what: was expected, in place of the names of the types.

    Raises:
        ContractError: it is of none of them.
    """
    if any(value is None if kind is None else isinstance(value, kind) for kind in kinds):
        return value
    given, expected = show(value), what or " or ".join("None" if kind is None else kind.__name__ for kind in kinds)
    for kind in kinds:
        if kind is not None and kind.__name__ == type(value).__name__:
            given, expected = f"{given} of {type(value).__module__}", f"{kind.__name__} of {kind.__module__}"
    raise ContractError(f"{where} gives {given}; expected {expected}")


def listed(where: str, given: Any, what: str) -> list[Any]:
    """All that can be a list, but not a text or a dictionary with something in it.

    Raises:
        ContractError: it cannot.
    """
    try:
        if isinstance(given, str | bytes | Mapping) and given:
            raise TypeError
        items = iter(given)
    except TypeError:
        raise ContractError(f"{where} gives {show(given)}; expected {what}") from None
    return list(items)


def checked_tasks(name: str, given: Any) -> list[Any]:
    """The tasks that `load_tasks()` of a user's environment gives.

    Raises:
        ContractError: they are none, or one lacks something, or says what cannot be.
    """
    if iscoroutine(given):
        given.close()  # or Python complains later that nobody awaited it
    tasks = listed("load_tasks()", given, "a list of tasks")
    if not tasks:
        raise ContractError("load_tasks() gives no task; expected at least one")
    sides: dict[str, tuple[str, str]] = {}
    for number, task in enumerate(tasks):
        _check_task(name, f"load_tasks()[{number}]", task)
        part, other = sides.setdefault(task.cluster, (task.part, task.id))
        if part != task.part:
            raise ContractError(
                f"cluster {task.cluster!r} has tasks in {part} and in {task.part}, such as {other} and {task.id}; "
                "expected all of a cluster in one part"
            )
    return tasks


def _check_task(name: str, where: str, task: Any) -> None:
    if isinstance(task, type):
        raise ContractError(f"{where} is {show(task)}; expected a task, such as {task.__name__}(...)")
    lacks = [field for field in FIELDS if not hasattr(task, field)]
    lacks += [f"{method}()" for method in METHODS if not callable(getattr(task, method, None))]
    if lacks:
        raise ContractError(f"{where} is {show(task)}, which lacks {', '.join(lacks)}; expected {EXPECTED}")
    for field in FIELDS:
        if not isinstance(value := getattr(task, field), str):
            raise ContractError(f"{where} is {show(task)} whose {field} is {show(value)}; expected a text")
    if not task.id:
        raise ContractError(f"{where} is {show(task)} whose id is empty; expected one that no other task has")
    if task.environment != name:
        raise ContractError(
            f"task {task.id} names the environment {task.environment!r}; expected {name!r}, the name under which its "
            f"file was given (interaction.environments.{name}, or the file's own name). If that is right, set "
            f"{type(task).__name__}.environment to it; else give the file under the name of its tasks"
        )
    if task.part not in PARTS:
        raise ContractError(f"task {task.id} has part {task.part!r}; expected {', '.join(PARTS[:-1])} or {PARTS[-1]}")


def checked_sets(environment: str, given: Any, kind: Any) -> Any:
    """What `data_sets()` of a user's environment gives; `kind` is the type of its values.

    Raises:
        ContractError: it is of another type, or has a task that lacks something.
    """
    expected = f"a dictionary: name of a file -> {kind.__name__}(kind, tasks), of a kind of {', '.join(KINDS)}"
    for name, one in expect("data_sets()", given, Mapping, what=expected).items():
        if not isinstance(name, str) or not isinstance(one, kind) or one.kind not in KINDS:
            what = f"of the kind {show(one.kind)}" if isinstance(one, kind) else f"as {show(one)}"
            raise ContractError(f"data_sets() gives {show(name)} {what}; expected {expected}")
        where = f"data_sets(): tasks of {name}"
        for number, task in enumerate(expect(where, one.tasks, Collection, what="a list of some of load_tasks()")):
            _check_task(environment, f"{where}[{number}]", task)
    return given


def checked_json(where: str, given: Any) -> Any:
    """A dictionary that goes into a JSON file.

    Raises:
        ContractError: it does not.
    """
    try:
        json.dumps(expect(where, given, dict, what="a dictionary of JSON values"))
    except (TypeError, ValueError, RecursionError) as error:
        if isinstance(error, ContractError):
            raise
        raise ContractError(f"{where} gives what is no JSON: {error}") from error
    return given
