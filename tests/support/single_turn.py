"""BFCL's own single-turn checker, calls made from accepted answers, and messages with one fault, drawn from a seed."""

import json
import random
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from bfcl_env.single_turn.checker import Checked, check_calls
from bfcl_env.single_turn.tasks import SingleTurnTask, _plain, _written, gold_calls, load_tasks
from interaction.call import Call


@cache
def tasks() -> tuple[SingleTurnTask, ...]:
    """All with accepted calls."""
    return tuple(task for task in load_tasks() if task.kind.wanted == "accepted")


def task_of(language: str, document: Any, accepted: Any) -> SingleTurnTask:
    """One of a function and its accepted calls; `language` as in `simple_java`."""
    entry, answer = {"function": [document]}, {"ground_truth": accepted}
    return SingleTurnTask("one", f"simple_{language}", "", "train", json.dumps(entry), json.dumps(answer))


def check(task: SingleTurnTask, calls: Sequence[Call]) -> Checked:
    return check_calls(calls, task.functions, task.accepted, task.kind.language, parallel=task.kind.parallel)


@cache
def ast_checker() -> Any:
    """BFCL's checker; of the module that imports all vendors' packages it needs one table."""
    name = "bfcl_eval.constants.model_config"
    stub: Any = types.ModuleType(name)
    stub.MODEL_CONFIG_MAPPING = {"model": types.SimpleNamespace(underscore_to_dot=False)}
    before = sys.modules.get(name)
    sys.modules[name] = stub
    try:
        from bfcl_eval.constants.enums import Language as Official
        from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker
    finally:
        sys.modules.pop(name)
        if before is not None:
            sys.modules[name] = before
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


# Faults, of every kind that a model commits.


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


def _name(rng: random.Random, task: SingleTurnTask, calls: list[Call]) -> None:
    index = rng.randrange(len(calls))
    name = calls[index].name
    others = [document["name"] for document in task.functions]
    changed = [name.upper(), name + "_", name.replace(".", "_"), "", " " + name, name.split(".")[-1], *others]
    calls[index] = Call(rng.choice(changed), calls[index].arguments)


def _count(rng: random.Random, task: SingleTurnTask, calls: list[Call]) -> None:
    """One call less, one more, none, or one in the place of another."""
    index, other = rng.randrange(len(calls)), rng.choice(calls)
    changed = [calls[:index] + calls[index + 1 :], [*calls, other], [], [*calls[:index], other, *calls[index + 1 :]]]
    calls[:] = rng.choice(changed)


def _missing(rng: random.Random, task: SingleTurnTask, calls: list[Call]) -> None:
    index = rng.randrange(len(calls))
    arguments = dict(calls[index].arguments)
    if arguments:
        arguments.pop(rng.choice(list(arguments)))
    calls[index] = Call(calls[index].name, arguments)


def _surplus(rng: random.Random, task: SingleTurnTask, calls: list[Call]) -> None:
    index = rng.randrange(len(calls))
    document = next(item for item in task.functions if item["name"] == calls[index].name)
    documented = list(document["parameters"]["properties"])
    name = rng.choice([*documented, "extra", "", *(key.upper() for key in documented)])
    value = rng.choice(["", 1, True, None, [], {}, "text"])
    calls[index] = Call(calls[index].name, {**calls[index].arguments, name: value})


def _order(rng: random.Random, task: SingleTurnTask, calls: list[Call]) -> None:
    rng.shuffle(calls)
    for index, call in enumerate(calls):
        names = rng.sample(list(call.arguments), len(call.arguments))
        calls[index] = Call(call.name, {name: call.arguments[name] for name in names})


def _mixed_up(rng: random.Random, task: SingleTurnTask, calls: list[Call]) -> None:
    """An argument as another accepted call has it; in parallel tasks this makes pairings cross."""
    ((name, accepted),) = rng.choice(task.accepted).items()
    index = next((index for index, call in enumerate(calls) if call.name == name), 0)
    if values := [(key, value) for key, options in accepted.items() for value in options]:
        key, value = rng.choice(values)
        calls[index] = Call(calls[index].name, {**calls[index].arguments, key: value})


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


def _inside(rng: random.Random, value: Any) -> Any:
    """Another value somewhere in it; of a text another spelling, which mostly does not count, or one that does."""
    if isinstance(value, list) and value:
        at = rng.randrange(len(value))
        replaced = [*value[:at], _inside(rng, value[at]), *value[at + 1 :]]
        return rng.choice([replaced, replaced, [value], value[:-1], value[::-1], [*value, value[0]]])
    if isinstance(value, dict) and value:
        key = rng.choice(list(value))
        kept = {name: item for name, item in value.items() if name != key}
        other = {**value, key: _inside(rng, value[key])}
        return rng.choice([kept, {**value, "extra": 1}, other, other, {**kept, key.upper(): value[key]}])
    if not isinstance(value, str) or rng.random() < 0.2:
        return _type(rng, value)
    at, sign = rng.randint(0, len(value)), rng.choice(" ,./-_*^'\"!;:\n")
    plain = "".join(letter for letter in value if letter not in " ,./-_*^")
    quoted = [value.replace("'", '"'), value.replace('"', "'"), f'"{value}"', f"'{value}'"]
    others = [value + "x", value[1:], "", value[::-1], "-", "1" * 5000, "\ud800"]
    return rng.choice([value.upper(), value[:at] + sign + value[at:], plain, value + "\n", *quoted, *others])


_PIECES = """true false null 1 1L 2.5f 3n new [ ] [] { } {} ( ) , : ; " ' "a" 'b' [1,2] new_int[]{1,2} new_Array(1,2)
new_ArrayList<>() new_HashMap<>() add(1) put("a",1) // -1 .5 1e3 undefined \\ ` ${x}"""
PIECES = [piece.replace("_", " ") for piece in _PIECES.split()]


def _literal(rng: random.Random, value: Any) -> Any:
    """Java's and JavaScript's texts; for Python what a model writes that has met these languages."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    at, piece = rng.randint(0, len(text)), rng.choice(PIECES)
    cut = rng.randint(at, len(text))
    replaced = [text.replace(*pair) for pair in ((", ", ","), ('"', ""), ('"', "'"), ("<>", "<Object>"), ("(", "( "))]
    around = [text[:at] + piece + text[at:], text[:at] + piece + text[cut:], text[:at] + text[cut:]]
    return rng.choice([*around, *replaced, *(text + end for end in ("L", "n", "f", ".0")), text.rstrip("fFlLn"), piece])


FAULTS: list[Callable[..., Any]] = [
    *(lambda *_: None, _name, _count, _missing, _surplus, _order, _mixed_up),
    *map(_changed, (_type, _inside, _inside, _inside, _literal, _literal)),
]
