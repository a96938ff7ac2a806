"""BFCL's own single-turn checker, calls made from accepted answers, and messages with one fault, drawn from a seed."""

import json
import random
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from bfcl_env.single_turn.checker import Checked, check_calls
from bfcl_env.single_turn.tasks import SingleTurnTask, _written, load_tasks
from interaction.call import Call

LEFT_OUT = object()
"""Instead of a value: the argument does not stand in the call."""


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


def variants(accepted: Any) -> Iterator[Any]:
    """Values that one accepted value stands for: an object's keys have lists of accepted values of their own.

    An empty text says that the argument may be left out; given as it is, it is what a model may write, too.
    """
    if accepted == "":
        yield from (LEFT_OUT, "")
    elif isinstance(accepted, dict):
        keys = {key: values if isinstance(values, list) else [values] for key, values in accepted.items()}
        yield from one_at_a_time(keys)
    elif isinstance(accepted, list) and any(isinstance(item, dict) for item in accepted):
        for items in one_at_a_time({index: [item] for index, item in enumerate(accepted)}):
            yield list(items.values())
    else:
        yield accepted


def one_at_a_time(accepted: Mapping[Any, Sequence[Any]]) -> Iterator[dict[Any, Any]]:
    """The first value of every key, then each other one of each key; LEFT_OUT leaves the key out."""
    choices = {key: [one for item in values for one in variants(item)] for key, values in accepted.items()}
    first = {key: options[0] if options else LEFT_OUT for key, options in choices.items()}
    changed = [{**first, key: option} for key, options in choices.items() for option in options[1:]]
    for chosen in [first, *changed]:
        yield {key: value for key, value in chosen.items() if value is not LEFT_OUT}


@cache
def gold(task: SingleTurnTask) -> tuple[tuple[Call, ...], ...]:
    """Messages of calls by the accepted answers: all first values, then every other one of each argument."""
    documents = {item["name"]: item["parameters"]["properties"] for item in task.functions}
    messages = []
    for item in task.accepted:
        ((name, accepted),) = item.items()
        write = {key: documents[name].get(key, {"type": "any"}) for key in accepted}
        messages.append(
            [
                Call(name, {key: _written(value, write[key], task.kind.language) for key, value in chosen.items()})
                for chosen in one_at_a_time(accepted)
            ]
        )
    first = tuple(calls[0] for calls in messages)
    others = [(index, call) for index, calls in enumerate(messages) for call in calls[1:]]
    return first, *((*first[:index], call, *first[index + 1 :]) for index, call in others)


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


def _none(rng: random.Random, task: SingleTurnTask, calls: list[Call]) -> None:
    pass


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
        others += [float(value), bool(value), int(value)]
    return rng.choice(others + ([tuple(value), *value[:1]] if isinstance(value, list) else []))


def _value(rng: random.Random, value: Any) -> Any:
    """Another value of the same type, on any level."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return rng.choice([value + 1, -value, value * 10, float(value), 10**400, float("nan"), float("inf")])
    if isinstance(value, str):
        return rng.choice([value + "x", value[1:], value * 2, "", value[::-1], "-", "1" * 5000, "\ud800"])
    if isinstance(value, list) and value:
        at = rng.randrange(len(value))
        other = rng.choice([_value(rng, value[at]), _type(rng, value[at])])
        replaced = [*value[:at], other, *value[at + 1 :]]
        return rng.choice([replaced, replaced, [value], value[:-1], value[::-1], [*value, value[0]]])
    if isinstance(value, dict) and value:
        key = rng.choice(list(value))
        kept = {name: item for name, item in value.items() if name != key}
        other = rng.choice([_value(rng, value[key]), _type(rng, value[key])])
        return rng.choice([kept, {**value, "extra": 1}, {**value, key: other}, {**kept, key.upper(): value[key]}])
    return rng.choice([[], {}, [value], None])


def _spelling(rng: random.Random, value: Any) -> Any:
    """Case, spaces and punctuation, which mostly do not count."""
    if isinstance(value, list):
        return [_spelling(rng, item) for item in value]
    if isinstance(value, dict):
        return {key: _spelling(rng, item) for key, item in value.items()}
    if not isinstance(value, str):
        return value
    at, sign = rng.randint(0, len(value)), rng.choice(" ,./-_*^'\"!;:\n")
    plain = "".join(letter for letter in value if letter not in " ,./-_*^")
    quotes = [value.replace("'", '"'), value.replace('"', "'"), f'"{value}"', f"'{value}'"]
    return rng.choice([value.upper(), value[:at] + sign + value[at:], plain, value + "\n", *quotes])


_PIECES = """true false null 1 1L 2.5f 3n new [ ] [] { } {} ( ) , : ; " ' "a" 'b' [1,2] new_int[]{1,2} new_Array(1,2)
new_ArrayList<>() new_HashMap<>() add(1) put("a",1) // -1 .5 1e3 undefined \\ ` ${x}"""
PIECES = [piece.replace("_", " ") for piece in _PIECES.split()]


def _literal(rng: random.Random, value: Any) -> Any:
    """Java's and JavaScript's texts; for Python what a model writes that has met these languages."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    at, piece = rng.randint(0, len(text)), rng.choice(PIECES)
    cut = rng.randint(at, len(text))
    replaced = [text.replace(*pair) for pair in ((", ", ","), ('"', ""), ('"', "'"), ("<>", "<Object>"), ("(", "( "))]
    ended = [text + end for end in ("L", "n", "f", ".0", piece)]
    around = [text[:at] + piece + text[at:], text[:at] + piece + text[cut:], text[:at] + text[cut:]]
    return rng.choice([*around, *replaced, *ended, text.rstrip("fFlLn"), piece])


FAULTS: list[Callable[..., None]] = [
    *(_none, _name, _count, _missing, _surplus, _order, _mixed_up),
    *map(_changed, (_type, _value, _value, _spelling, _literal, _literal)),
]
