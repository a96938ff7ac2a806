"""Attempts of a user's environment, compared with `interaction.environment`: the type of all that its methods give.

What an environment gives is known by asking it alone, so a task is opened twice: for a call that nothing knows, and for
an answer at once. Whether gold passes is seen where it is played.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from interaction.call import Call, CallError, copy_call
from interaction.contract import ContractError, called, expect, show
from interaction.environment import AskUser, Environment, GoldMessage, Request, Task, UserWords
from interaction.gold import GREETING, MOST_WORDS, play_gold
from interaction.outcome import ErrorKind, ToolResult, TurnResult, Verdicts
from interaction.protocol import get_protocol
from interaction.record import StopReason
from interaction.user_fault import UserFault

MOST_STEPS = 1000
"""Gold is as long as it is."""
METHODS = ("begin", "call", "facts", "answer", "hear", "cut", "verdicts", "close")
NOTHING = Call("nothing", {"x": [1]})
"""A function that no task has, with an argument that a dictionary cannot have as a key: a model may write both."""


def check_task(task: Task, options: Mapping[str, Any] | None = None) -> None:
    """Gold, and two attempts.

    Args:
        options: settings of the environment, all of them.

    Raises:
        ContractError: something raises, or is of another type than it should be.
    """
    try:
        words = check_gold(task)
        attempt, where = _opened(task, options or {})
        if _begun(attempt, where, words):
            _check_result(f"{where}.call({NOTHING})", called(f"{where}.call({NOTHING})", lambda: attempt.call(NOTHING)))
            _mapping(f"{where}.facts()", called(f"{where}.facts()", attempt.facts))
            expect(f"{where}.over", called(f"{where}.over", lambda: attempt.over), StopReason, None)
            _check_verdicts(f"{where}.verdicts()", called(f"{where}.verdicts()", attempt.verdicts))
            cut = called(f"{where}.cut()", lambda: attempt.cut(StopReason.max_tokens))
            expect(f"{where}.cut()", cut, bool, what="True where the turn was judged, or False")
        _check_end(attempt, where)
        attempt, where = _opened(task, options or {})
        if _begun(attempt, where, words):
            said = called(f"{where}.answer()", lambda: attempt.answer("done"))
            _check_request(f"{where}.answer()", said, None)
        _check_end(attempt, where)
    except ContractError as error:
        raise ContractError(f"task {task.id}: {error}") from error


def check_gold(task: Task) -> list[str]:
    """The words of gold's user.

    Raises:
        ContractError: gold is not what it should be.
    """
    where = f"{type(task).__name__}.gold()"
    given = called(where, task.gold)
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise ContractError(f"{where} gives {show(given)}; expected a list of GoldMessage and UserWords")
    words = []
    for item in called(where, lambda: list(given)):
        expect(where, item, GoldMessage, UserWords)
        if isinstance(item, UserWords):
            words.append(expect(f"{where}: UserWords.text", item.text, str))
            continue
        expect(f"{where}: GoldMessage.answer", item.answer, str)
        if not isinstance(item.calls, tuple | list):
            raise ContractError(f"{where}: GoldMessage.calls is {show(item.calls)}; expected a tuple of Call")
        for call in item.calls:
            if not isinstance(call, Call):
                raise ContractError(f"{where}: GoldMessage.calls has {show(call)}; expected Call(name, arguments)")
            try:
                copy_call(call)
            except CallError as error:
                raise ContractError(
                    f"{where}: GoldMessage.calls has Call({show(call.name)}, {show(call.arguments)}): {error}"
                ) from error
    return words


def unlisted_turns(task: Task, options: Mapping[str, Any] | None = None) -> str | None:
    """What is to be said of a task that is judged by turns, and lists those that are not reached only later.

    A reward by turn pays the share of turns that passed: whoever stops early is paid as if there were no more. Nobody
    may know beforehand how many there will be, so this is no fault. For a task that fulfils the contract.
    """
    said = [item for item in task.gold() if isinstance(item, GoldMessage)]
    turns = sum(not item.calls for item in said) + bool(said and said[-1].calls)
    attempt, _ = _opened(task, options or {})
    attempt.begin()
    listed = len(attempt.verdicts().turns)
    attempt.close()
    if listed >= turns or turns < 2:
        return None
    settings = {"max_steps_per_turn": MOST_STEPS, "environments": {task.environment: dict(options or {})}}
    record = play_gold(task, get_protocol("think_xml"), **settings)[1]
    if all(turn.passed is None for turn in record.turns):
        return None
    return (
        f"task {task.id}: {type(attempt).__name__}.verdicts() lists {listed} of {turns} turns before the first is "
        "played: a reward by turn pays who stops early as if there were no more. List all from the beginning, or judge "
        "the episode alone (passed=None in each turn)"
    )


def _opened(task: Task, options: Mapping[str, Any]) -> tuple[Environment, str]:
    """An attempt, and what to call it."""
    where = f"{type(task).__name__}.open()"
    attempt = called(where, lambda: task.open(**options))
    if isinstance(attempt, type):
        raise ContractError(f"{where} gives {show(attempt)}; expected an attempt, such as {attempt.__name__}(...)")
    lacks = [method for method in METHODS if not callable(getattr(attempt, method, None))]
    lacks += ["over"] * (not lacks and not hasattr(attempt, "over"))
    if lacks:
        raise ContractError(
            f"{where} gives {show(attempt)}, which has no {', '.join(lacks)}; expected an attempt with the methods "
            f"{', '.join(METHODS)}, and over (EnvironmentBase has some of them)"
        )
    return attempt, type(attempt).__name__


def _begun(attempt: Environment, where: str, words: list[str]) -> bool:
    """Whether there is a request; not if the user goes before, or says nothing that can be used."""
    said = _check_request(f"{where}.begin()", called(f"{where}.begin()", attempt.begin))
    heard = iter(words)
    for _ in range(MOST_WORDS):
        if not isinstance(said, AskUser):
            return said is not None
        if (following := called(f"{where}.hear()", lambda: _heard(attempt, next(heard, GREETING)))) is UserFault:
            return False
        said = _check_request(f"{where}.hear()", following, None)
    return False


def _heard(attempt: Environment, words: str) -> Any:
    """What the environment says to words; `UserFault` itself where it cannot use them."""
    try:
        return attempt.hear(words)
    except UserFault:
        return UserFault


def _check_end(attempt: Environment, where: str) -> None:
    """Judged at any time, closed twice."""
    _check_verdicts(f"{where}.verdicts()", called(f"{where}.verdicts()", attempt.verdicts))
    for _ in range(2):
        called(f"{where}.close()", attempt.close)


def _check_request(where: str, value: Any, *others: None) -> Any:
    """What the user says next, or who is to be asked for it; None too, where that may be."""
    expect(where, value, Request, AskUser, *others)
    if isinstance(value, AskUser):
        if not isinstance(value.messages, tuple | list) or not all(map(_is_message, value.messages)):
            raise ContractError(
                f"{where} gives an AskUser whose messages are {show(value.messages)}; expected a tuple of "
                '{"role": ..., "content": ...}'
            )
    elif isinstance(value, Request):
        for field in ("user", "policy"):
            expect(f"{where}: Request.{field}", getattr(value, field), str)
        if not isinstance(value.functions, tuple | list):
            raise ContractError(f"{where}: Request.functions is {show(value.functions)}; expected a tuple of documents")
        for function in value.functions:
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
    if not isinstance(properties, Mapping) or not all(isinstance(item, Mapping) for item in properties.values()):
        raise ContractError(f"{which} whose parameters are {show(parameters)}; expected {expected}")
    required = parameters.get("required", ())
    if not isinstance(required, tuple | list) or not all(name in list(properties) for name in required):
        known = f"a list of some of {', '.join(map(str, properties))}" if properties else "none: it has no properties"
        raise ContractError(f"{which} whose required parameters are {show(required)}; expected {known}")
    try:
        json.dumps(dict(function))
    except (TypeError, ValueError) as error:
        raise ContractError(f"{which} whose document is no JSON: {error}") from error


def _check_result(where: str, value: Any) -> None:
    expect(where, value, ToolResult)
    expect(f"{where}: ToolResult.text", value.text, str)
    if value.error is not None and value.error not in list(ErrorKind):
        known = ", ".join(f"ErrorKind.{kind.name}" for kind in ErrorKind)
        raise ContractError(f"{where}: ToolResult.error is {show(value.error)}; expected None, or one of {known}")
    expect(f"{where}: ToolResult.hint", value.hint, str, None)
    _mapping(f"{where}: ToolResult.facts", value.facts)


def _check_verdicts(where: str, value: Any) -> None:
    expect(where, value, Verdicts)
    expect(f"{where}: Verdicts.passed", value.passed, bool)
    for name in ("components", "facts"):
        _mapping(f"{where}: Verdicts.{name}", getattr(value, name))
    if not isinstance(value.turns, tuple | list):
        raise ContractError(f"{where}: Verdicts.turns is {show(value.turns)}; expected a tuple of TurnResult")
    for turn in value.turns:
        expect(f"{where}: Verdicts.turns", turn, TurnResult)
        expect(f"{where}: TurnResult.user", turn.user, str)
        expect(f"{where}: TurnResult.passed", turn.passed, bool, None)
        _mapping(f"{where}: TurnResult.facts", turn.facts)


def _mapping(where: str, value: Any) -> None:
    expect(where, value, Mapping, what="a dictionary")
