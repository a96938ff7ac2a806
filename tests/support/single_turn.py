"""BFCL's own single-turn checker, calls made from accepted answers, and messages with one fault, drawn from a seed."""

import json
import random
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import pytest

from bfcl_env.single_turn.checker import Checked, check_calls
from bfcl_env.single_turn.tasks import SingleTurnTask, _plain, _written, gold_calls, load_tasks
from interaction.call import Call


@cache
def tasks() -> tuple[SingleTurnTask, ...]:
    """All with accepted calls."""
    return tuple(task for task in load_tasks() if task.kind.wanted == "accepted")


def task_of(language: str, document: Any, accepted: Any) -> SingleTurnTask:
    """One of a function and its accepted calls; `language` as in `simple_java`."""
    question = [[{"role": "user", "content": "Do it."}]]
    entry, answer = {"question": question, "function": [document]}, {"ground_truth": accepted}
    return SingleTurnTask("one", f"simple_{language}", "", "train", json.dumps(entry), json.dumps(answer))


def check(task: SingleTurnTask, calls: Sequence[Call]) -> Checked:
    return check_calls(calls, task.functions, task.accepted, task.kind.language, parallel=task.kind.parallel)


@cache
def ast_checker() -> Any:
    """BFCL's checker; of the module that imports all vendors' packages it needs one table."""
    name = "bfcl_eval.constants.model_config"
    stub: Any = types.ModuleType(name)
    stub.MODEL_CONFIG_MAPPING = {"model": types.SimpleNamespace(underscore_to_dot=False)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, name, stub)
        from bfcl_eval.constants.enums import Language as Official
        from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker
    return ast_checker, {"python": Official.PYTHON, "java": Official.JAVA, "javascript": Official.JAVASCRIPT}


def official(task: SingleTurnTask, calls: Sequence[Call]) -> bool:
    """BFCL's verdict; a checker that raises does not pass."""
    judge, languages = ast_checker()
    output = [{call.name: call.arguments} for call in calls]
    language = languages[task.kind.language]
    try:
        return judge(task.functions, output, task.accepted, language, task.category, "model")["valid"]
    except Exception:
        return False


@cache
def gold(task: SingleTurnTask) -> tuple[tuple[Call, ...], ...]:
    """Messages of accepted calls: all first values, then every other one of each argument, left out where it may be."""
    documents = {item["name"]: item["parameters"]["properties"] for item in task.functions}
    first = gold_calls(task.accepted, task.functions, task.kind.language)
    messages = [first]
    for index, (call, item) in enumerate(zip(first, task.accepted, strict=True)):
        for name, values in item[call.name].items():
            document = documents[call.name].get(name, {"type": "any"})
            for value in values[1:]:
                changed = {**call.arguments, name: _written(_plain(value), document, task.kind.language)}
                if value == "":
                    changed.pop(name)
                messages.append((*first[:index], Call(call.name, changed), *first[index + 1 :]))
    return tuple(messages)


def mutants(count: int, seed: int) -> Iterator[tuple[SingleTurnTask, tuple[Call, ...]]]:
    """Task and message; kinds of faults and categories in turn, so that rare ones are as frequent as others."""
    rng = random.Random(seed)
    categories = sorted({task.category for task in tasks()})
    by_category = [[task for task in tasks() if task.category == name] for name in categories]
    for number in range(count):
        task = rng.choice(by_category[number // len(FAULTS) % len(by_category)])
        calls = list(rng.choice(gold(task)))
        FAULTS[number % len(FAULTS)](rng, task, calls)
        yield task, tuple(calls)


def _calls(rng: random.Random, task: SingleTurnTask, calls: list[Call]) -> None:
    """One call less, one more, none, one in the place of another, another order, or one by another name."""
    index, other = rng.randrange(len(calls)), rng.choice(calls)
    one, before, after = calls[index], calls[:index], calls[index + 1 :]
    others = [document["name"] for document in task.functions]
    name = rng.choice([one.name.upper(), one.name.replace(".", "_"), "", " " + one.name, *others])
    changed = [[*before, *after], [*calls, other], [], [*before, other, *after], calls[::-1]]
    calls[:] = rng.choice([*changed, [*before, Call(name, one.arguments), *after]])


def _arguments(rng: random.Random, task: SingleTurnTask, calls: list[Call]) -> None:
    """One argument less, more, or as another accepted call has it; in parallel tasks this makes pairings cross."""
    ((name, accepted),) = rng.choice(task.accepted).items()
    index = next((index for index, call in enumerate(calls) if call.name == name), rng.randrange(len(calls)))
    call, arguments = calls[index], dict(calls[index].arguments)
    document = next(item for item in task.functions if item["name"] == call.name)
    values = [(key, value) for key, options in accepted.items() for value in options]
    surplus = rng.choice([*document["parameters"]["properties"], "extra", ""])
    kind = rng.randrange(3)
    if kind == 0 and arguments:
        arguments.pop(rng.choice(list(arguments)))
    elif kind == 1 and values:
        arguments |= [rng.choice(values)]
    else:
        arguments[surplus] = rng.choice(["", 1, True, None, [], {}, "text"])
    calls[index] = Call(call.name, arguments)


def _changed(change: Callable[[random.Random, Any], Any]) -> Callable[..., None]:
    """A fault of one argument of one call, by what `change` makes of its value."""

    def fault(rng: random.Random, task: SingleTurnTask, calls: list[Call]) -> None:
        index = rng.randrange(len(calls))
        call = calls[index]
        if call.arguments:
            name = rng.choice(list(call.arguments))
            calls[index] = Call(call.name, {**call.arguments, name: change(rng, call.arguments[name])})

    return fault


def _type(rng: random.Random, value: Any) -> Any:
    others = [str(value), json.dumps(value), [value], (value,), {"value": value}, None, True, False, 0, 1.0, "", [], {}]
    if isinstance(value, int | float):
        others += [float(value), bool(value), int(value), value + 1, -value, 10**400, float("nan"), float("inf")]
    return rng.choice(others + ([tuple(value), *value[:1]] if isinstance(value, list) else []))


def inside(rng: random.Random, value: Any) -> Any:
    """Another value somewhere in it; of a text another spelling, which mostly does not count, or one that does."""
    if isinstance(value, list) and value:
        at = rng.randrange(len(value))
        replaced = [*value[:at], inside(rng, value[at]), *value[at + 1 :]]
        return rng.choice([replaced, replaced, [value], value[:-1], value[::-1], [*value, value[0]]])
    if isinstance(value, dict) and value:
        key = rng.choice(list(value))
        kept = {name: item for name, item in value.items() if name != key}
        other = {**value, key: inside(rng, value[key])}
        return rng.choice([kept, {**value, "extra": 1}, other, other, {**kept, key.upper(): value[key]}])
    if not isinstance(value, str) or rng.random() < 0.2:
        return _type(rng, value)
    at, sign = rng.randint(0, len(value)), rng.choice(" ,./-_*^'\"!;:\n")
    plain = "".join(letter for letter in value if letter not in " ,./-_*^")
    quoted = [value.replace("'", '"'), value.replace('"', "'"), f'"{value}"', f"'{value}'"]
    others = [value + "x", value[1:], "", value[::-1], "-", "1" * 5000, "\ud800"]
    return rng.choice([value.upper(), value[:at] + sign + value[at:], plain, value + "\n", *quoted, *others])


FAULTS: list[Callable[..., Any]] = [
    *(lambda *_: None, _calls, _calls, _arguments, _arguments),
    *map(_changed, (_type, inside, inside, inside)),
]
