"""Attempts of a user's environment, compared with `interaction.environment`: the type of all that its methods give.

What an environment gives is known by asking it alone. It is asked for nothing that no conversation asks for: an answer
at once, and a call that nothing knows, in one attempt where the answer leads on to a request, else in two. Whether gold
passes is seen where it is played.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Any

from interaction.boundary import raised
from interaction.call import Call, CallError, copy_call
from interaction.contract import ContractError, called, expect, listed, show
from interaction.environment import AskUser, Environment, GoldMessage, Request, Task, UserWords
from interaction.gold import GREETING, MOST_WORDS
from interaction.outcome import ErrorKind, ToolResult, TurnResult, Verdicts
from interaction.record import StopReason
from interaction.user_fault import UserFault

METHODS = ("begin", "call", "facts", "answer", "cut", "verdicts", "close")
"""That every conversation may call; `hear` only where a user is asked."""
NOTHING = Call("nothing", {"x": [1]})
"""A function that no task has, with an argument that a dictionary cannot have as a key: a model may write both."""


def check_task(task: Task, options: Mapping[str, Any] | None = None) -> str | None:
    """Gold, and one or two attempts.

    A reward by turn pays the share of turns that passed: where turns are listed only when they are reached, whoever
    stops early is paid as if there were no more. Nobody may know beforehand how many there will be: this is no fault.

    Args:
        options: settings of the environment, all of them.

    Returns:
        What a person should know: that turns are judged, and not listed from the beginning.

    Raises:
        ContractError: something raises, or is of another type than it should be.
    """
    try:
        gold = gold_of(task)
        words = [item.text for item in gold if isinstance(item, UserWords)]
        attempt, where = _opened(task, options or {})
        first: Verdicts | None = None
        if _begun(attempt, where, words):
            first = called(f"{where}.verdicts()", attempt.verdicts, _verdicts)
            following = called(f"{where}.answer()", lambda: attempt.answer("done"), _said)
            if following is None:
                _over(attempt, where)
            if not isinstance(following, Request):
                _end(attempt, where)
                attempt, where = _opened(task, options or {})
            if isinstance(following, Request) or _begun(attempt, where, words):
                called(f"{where}.call({NOTHING})", lambda: attempt.call(NOTHING), _result)
                called(f"{where}.facts()", attempt.facts, _mapping)
                if _over(attempt, where) is None:
                    called(f"{where}.cut()", lambda: attempt.cut(StopReason.max_steps), _cut)
        last = _end(attempt, where)
    except ContractError as error:
        raise ContractError(f"{_name(task)}: {error}") from error
    except Exception as error:
        raise ContractError(f"{_name(task)}: its attempt raises {raised(error)}") from error
    return None if first is None else _unlisted(task, gold, len(first.turns), (*first.turns, *last.turns))


def check_gold(task: Task) -> None:
    """Gold alone.

    Raises:
        ContractError: it is not what it should be.
    """
    try:
        gold_of(task)
    except ContractError as error:
        raise ContractError(f"{_name(task)}: {error}") from error


def _name(task: Task) -> str:
    return f"environment {task.environment}: task {task.id}"


def _unlisted(task: Task, gold: Iterable[Any], known: int, judged: Iterable[TurnResult]) -> str | None:
    said = [item for item in gold if isinstance(item, GoldMessage)]
    turns = sum(not item.calls for item in said) + bool(said and said[-1].calls)
    if known >= turns or turns < 2 or all(turn.passed is None for turn in judged):
        return None
    return (
        f"{_name(task)}: verdicts() lists {known} of {turns} turns before the first is played: a reward by turn pays "
        "who stops early as if there were no more. List all from the beginning, or judge the episode alone "
        "(passed=None in each turn)"
    )


def gold_of(task: Task) -> list[GoldMessage | UserWords]:
    """Gold as a list.

    Raises:
        ContractError: it is not what it should be.
    """
    return called(f"{type(task).__name__}.gold()", task.gold, _gold)


def _gold(where: str, given: Any) -> list[GoldMessage | UserWords]:
    items = listed(where, given, "a list of GoldMessage and UserWords")
    for item in items:
        expect(where, item, GoldMessage, UserWords)
        if isinstance(item, UserWords):
            expect(f"{where}: UserWords.text", item.text, str)
            continue
        expect(f"{where}: GoldMessage.answer", item.answer, str)
        if not isinstance(item.calls, Collection) or isinstance(item.calls, str):
            raise ContractError(f"{where}: GoldMessage.calls is {show(item.calls)}; expected a tuple of Call")
        for call in item.calls:
            expect(f"{where}: GoldMessage.calls", call, Call, what="Call(name, arguments)")
            try:
                copy_call(call)
            except CallError as error:
                raise ContractError(
                    f"{where}: GoldMessage.calls has Call({show(call.name)}, {show(call.arguments)}): {error}"
                ) from error
    return items


def _opened(task: Task, options: Mapping[str, Any]) -> tuple[Environment, str]:
    """An attempt, and what to call it."""
    attempt = called(f"{type(task).__name__}.open()", lambda: task.open(**options), _attempt)
    return attempt, type(attempt).__name__


def _attempt(where: str, attempt: Any) -> Any:
    """`over` is not looked for: it may be known only after `begin`."""
    if isinstance(attempt, type):
        raise ContractError(f"{where} gives {show(attempt)}; expected an attempt, such as {attempt.__name__}(...)")
    if lacks := [method for method in METHODS if not callable(getattr(attempt, method, None))]:
        raise ContractError(
            f"{where} gives {show(attempt)}, which has no {', '.join(lacks)}; expected an attempt with the methods "
            f"{', '.join(METHODS)}, and over (EnvironmentBase has some of them)"
        )
    return attempt


def _begun(attempt: Environment, where: str, words: list[str]) -> bool:
    """Whether there is a request; not if the user says nothing that can be used."""
    said = called(f"{where}.begin()", attempt.begin, _first)
    heard = iter(words)
    for _ in range(MOST_WORDS):
        if not isinstance(said, AskUser):
            return said is not None
        said = called(f"{where}.hear()", lambda: _heard(attempt, next(heard, GREETING)), _said)
    return False


def _heard(attempt: Environment, words: str) -> Any:
    """What the environment says to words; None where it cannot use them."""
    try:
        return attempt.hear(words)
    except UserFault:
        return None


def _over(attempt: Environment, where: str) -> Any:
    return called(f"{where}.over", lambda: attempt.over, lambda name, value: _one_of(name, value, StopReason))


def _end(attempt: Environment, where: str) -> Verdicts:
    """Judged at any time, then closed."""
    judged: Verdicts = called(f"{where}.verdicts()", attempt.verdicts, _verdicts)
    called(f"{where}.close()", attempt.close)
    return judged


def _first(where: str, value: Any) -> Any:
    return _said(where, expect(where, value, Request, AskUser))


def _said(where: str, value: Any) -> Any:
    """What the user says next, or who is to be asked for it, or None."""
    expect(where, value, Request, AskUser, None)
    if isinstance(value, AskUser):
        if not isinstance(value.messages, Collection) or not all(map(_is_message, value.messages)):
            raise ContractError(
                f"{where} gives an AskUser whose messages are {show(value.messages)}; expected a tuple of "
                '{"role": ..., "content": ...}'
            )
    elif isinstance(value, Request):
        for field in ("user", "policy"):
            expect(f"{where}: Request.{field}", getattr(value, field), str)
        for function in listed(f"{where}: Request.functions", value.functions, "a tuple of documents"):
            _check_document(where, function)
    return value


def _is_message(message: Any) -> bool:
    return isinstance(message, Mapping) and all(isinstance(message.get(key), str) for key in ("role", "content"))


def _check_document(where: str, function: Any) -> None:
    """The documentation of a function, as far as prompts are written from it."""
    expected = '{"name": a text, "description": a text, "parameters": {"type": "dict", "properties": {...}, ...}}'
    if not isinstance(function, Mapping) or not {"name", "description", "parameters"} <= function.keys():
        given = show(function)
        raise ContractError(f"{where} gives a function without name, description and parameters, {given}; {expected}")
    for key in ("name", "description"):
        if not isinstance(function[key], str) or not function["name"]:
            raise ContractError(f"{where} gives a function whose {key} is {show(function[key])}; expected {expected}")
    parameters = function["parameters"]
    properties = parameters.get("properties", {}) if isinstance(parameters, Mapping) else None
    which = f"{where} gives the function {function['name']}"
    if not isinstance(properties, Mapping) or not all(isinstance(one, Mapping | bool) for one in properties.values()):
        raise ContractError(f"{which} whose parameters are {show(parameters)}; expected {expected}")
    required = parameters.get("required", ())
    if not isinstance(required, tuple | list):
        raise ContractError(f"{which} whose required parameters are {show(required)}; expected a list of names")
    try:
        json.dumps(dict(function))
    except (TypeError, ValueError, RecursionError) as error:
        raise ContractError(f"{which} whose document is no JSON: {error}") from error


def _result(where: str, value: Any) -> None:
    expect(where, value, ToolResult)
    expect(f"{where}: ToolResult.text", value.text, str)
    _one_of(f"{where}: ToolResult.error", value.error, ErrorKind)
    expect(f"{where}: ToolResult.hint", value.hint, str, None)
    _mapping(f"{where}: ToolResult.facts", value.facts)


def _verdicts(where: str, value: Any) -> Any:
    expect(where, value, Verdicts)
    _truth(f"{where}: Verdicts.passed", value.passed, bool)
    for name in ("components", "facts"):
        _mapping(f"{where}: Verdicts.{name}", getattr(value, name))
    if not isinstance(value.turns, tuple | list):
        raise ContractError(f"{where}: Verdicts.turns is {show(value.turns)}; expected a tuple of TurnResult")
    for turn in value.turns:
        expect(f"{where}: Verdicts.turns", turn, TurnResult)
        expect(f"{where}: TurnResult.user", turn.user, str)
        _truth(f"{where}: TurnResult.passed", turn.passed, bool, None)
        _mapping(f"{where}: TurnResult.facts", turn.facts)
    return value


def _cut(where: str, value: Any) -> None:
    _truth(where, value, bool, what="True where the turn was judged, or False")


def _truth(where: str, value: Any, *kinds: type | None, what: str = "") -> None:
    """True, False, and what equals one of them, such as numpy's."""
    with suppress(Exception):  # an array cannot be compared
        if value is not None and bool(value == bool(value)):
            return
    expect(where, value, *kinds, what=what)


def _one_of(where: str, value: Any, kind: type[StrEnum]) -> Any:
    if value is not None and not (isinstance(value, str) and value in list(kind)):
        known = ", ".join(f"{kind.__name__}.{one.name}" for one in kind)
        raise ContractError(f"{where} is {show(value)}; expected None, or one of {known}")
    return value


def _mapping(where: str, value: Any) -> None:
    expect(where, value, Mapping, what="a dictionary")
