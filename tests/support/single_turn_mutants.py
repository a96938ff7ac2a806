"""Messages of single-turn tasks with one fault each, of every kind that a model commits, drawn from a seed."""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from interaction.call import Call
from support.single_turn import Task, gold

Messages = tuple[Call, ...]


def mutants(tasks: Sequence[Task], count: int, seed: int) -> Iterator[tuple[str, Task, Messages]]:
    """Kind of fault, task and message; kinds and tasks in turn, so that rare ones are as frequent as others."""
    rng = random.Random(seed)
    faults = list(FAULTS.items())
    by_category = [[task for task in tasks if task.category == name] for name in sorted({t.category for t in tasks})]
    for number in range(count):
        name, fault = faults[number % len(faults)]
        task = rng.choice(by_category[number // len(faults) % len(by_category)])
        calls = list(rng.choice(gold(task)))
        fault(rng, task, calls)
        yield name, task, tuple(calls)


def _change(rng: random.Random, calls: list[Call], change: Callable[[Any], Any]) -> None:
    """One argument of one call, by what `change` makes of its value."""
    index = rng.randrange(len(calls))
    call = calls[index]
    if call.arguments:
        name = rng.choice(list(call.arguments))
        calls[index] = Call(call.name, {**call.arguments, name: change(call.arguments[name])})


def _name(rng: random.Random, task: Task, calls: list[Call]) -> None:
    index = rng.randrange(len(calls))
    name = calls[index].name
    others = [document["name"] for document in task.functions]
    changed = [name.upper(), name + "_", name[1:], name.replace(".", "_"), "", " " + name, name.split(".")[-1], *others]
    calls[index] = Call(rng.choice(changed), calls[index].arguments)


def _count(rng: random.Random, task: Task, calls: list[Call]) -> None:
    index = rng.randrange(len(calls))
    rng.choice([lambda: calls.pop(index), lambda: calls.append(calls[index]), calls.clear])()


def _double(rng: random.Random, task: Task, calls: list[Call]) -> None:
    """One call in the place of another."""
    calls[rng.randrange(len(calls))] = rng.choice(calls)


def _missing(rng: random.Random, task: Task, calls: list[Call]) -> None:
    index = rng.randrange(len(calls))
    arguments = dict(calls[index].arguments)
    if arguments:
        arguments.pop(rng.choice(list(arguments)))
    calls[index] = Call(calls[index].name, arguments)


def _surplus(rng: random.Random, task: Task, calls: list[Call]) -> None:
    index = rng.randrange(len(calls))
    documented = list(task.document(calls[index].name)["properties"])
    name = rng.choice([*documented, "extra", "", *(key.upper() for key in documented)])
    value = rng.choice(["", 1, True, None, [], {}, "text"])
    calls[index] = Call(calls[index].name, {**calls[index].arguments, name: value})


def _type(rng: random.Random, task: Task, calls: list[Call]) -> None:
    _change(
        rng,
        calls,
        lambda value: rng.choice(
            [str(value), json.dumps(value), [value], (value,), {"value": value}, None, True, False, 0, 1, 1.0, "", []]
            + [{}]
            + ([float(value), bool(value), -value] if isinstance(value, int | float) else [])
            + ([int(value)] if isinstance(value, float) else [])
            + ([tuple(value), value[0] if value else value] if isinstance(value, list) else [])
        ),
    )


def _value(rng: random.Random, task: Task, calls: list[Call]) -> None:
    def changed(value: Any) -> Any:
        if isinstance(value, bool):
            return not value
        if isinstance(value, int | float):
            return rng.choice([value + 1, -value, value * 10, value / 10, 10**400, float("nan"), float("inf")])
        if isinstance(value, str):
            return rng.choice([value + "x", value[1:], value * 2, "", value[::-1], "-", "1" * 5000, "\ud800"])
        return rng.choice([[], {}, [value], None])

    _change(rng, calls, changed)


def _spelling(rng: random.Random, task: Task, calls: list[Call]) -> None:
    """Case, spaces and punctuation, which mostly do not count."""

    def changed(value: Any) -> Any:
        if isinstance(value, list):
            return [changed(item) for item in value]
        if isinstance(value, dict):
            return {key: changed(item) for key, item in value.items()}
        if not isinstance(value, str):
            return value
        at = rng.randint(0, len(value))
        sign = rng.choice(" ,./-_*^'\"!;:\n")
        return rng.choice(
            [
                value.upper(),
                value.swapcase(),
                value[:at] + sign + value[at:],
                "".join(letter for letter in value if letter not in " ,./-_*^"),
                value.replace("'", '"'),
                value.replace('"', "'"),
                f'"{value}"',
                f"'{value}'",
                value + "\n",
            ]
        )

    _change(rng, calls, changed)


def _nested(rng: random.Random, task: Task, calls: list[Call]) -> None:
    def changed(value: Any) -> Any:
        if isinstance(value, list) and value:
            at = rng.randrange(len(value))
            other = rng.choice([changed(value[at]), None, True, 1, 1.0, "", "x", [], {}, float(len(value))])
            whole = [int(item) if isinstance(item, float) else item for item in value]
            replaced = [*value[:at], other, *value[at + 1 :]]
            changes = [replaced, whole, [bool(item) for item in value], [value], tuple(value)]
            return rng.choice([*changes, value[:-1], value[::-1], [*value, value[0]]])
        if isinstance(value, dict) and value:
            key = rng.choice(list(value))
            kept = {name: item for name, item in value.items() if name != key}
            other = rng.choice([changed(value[key]), None, True, False, 1, 1.0, "", "x", [value[key]], {}])
            return rng.choice(
                [kept, {**value, "extra": 1}, {**value, key: other}, {**kept, key.upper(): value[key]}, [value]]
            )
        if isinstance(value, bool):
            return int(value)
        if isinstance(value, int | float):
            return rng.choice([value + 1, bool(value), float(value), str(value)])
        return value + "x" if isinstance(value, str) else value

    with_nested = [index for index, call in enumerate(calls) if any(map(_has_inside, call.arguments.values()))]
    if not with_nested:
        return _value(rng, task, calls)
    index = rng.choice(with_nested)
    name = rng.choice([key for key, value in calls[index].arguments.items() if _has_inside(value)])
    arguments = {**calls[index].arguments, name: changed(calls[index].arguments[name])}
    calls[index] = Call(calls[index].name, arguments)


def _has_inside(value: Any) -> bool:
    return isinstance(value, list | dict)


def _order(rng: random.Random, task: Task, calls: list[Call]) -> None:
    rng.shuffle(calls)
    for index, call in enumerate(calls):
        names = list(call.arguments)
        rng.shuffle(names)
        calls[index] = Call(call.name, {name: call.arguments[name] for name in names})


def _mixed_up(rng: random.Random, task: Task, calls: list[Call]) -> None:
    """An argument as another call, or another task's message, has it; in parallel tasks this makes pairings cross."""
    ((name, accepted),) = rng.choice(task.accepted).items()
    index = next((index for index, call in enumerate(calls) if call.name == name), 0)
    values = [(key, value) for key, options in accepted.items() for value in options]
    if values:
        key, value = rng.choice(values)
        calls[index] = Call(calls[index].name, {**calls[index].arguments, key: value})


def _literal(rng: random.Random, task: Task, calls: list[Call]) -> None:
    """Java's and JavaScript's texts; for Python what a model writes that has met these languages."""
    pieces = """true false null 1 1L 2.5f 3n new [ ] [] { } {} ( ) , : ; " ' "a" 'b' [1,2] new_int[]{1,2} new_Array(1,2)
    new_ArrayList<>() new_HashMap<>() add(1) put("a",1) // -1 .5 1e3 undefined \\ ` ${x}""".split()

    def changed(value: Any) -> Any:
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        at, piece = rng.randint(0, len(text)), rng.choice(pieces).replace("_", " ")
        cut = rng.randint(at, len(text))
        return rng.choice(
            [
                text[:at] + piece + text[at:],
                text[:at] + piece + text[cut:],
                text[:at] + text[cut:],
                text + piece,
                text.replace(", ", ","),
                text.replace('"', ""),
                text.replace('"', "'"),
                text.replace("<>", "<Object>"),
                text.replace("{", " { ").replace("(", "( "),
                text.rstrip("fFlLn"),
                text + "L",
                text + "n",
                text + "f",
                text + ".0",
                piece,
            ]
        )

    _change(rng, calls, changed)


FAULTS: dict[str, Callable[[random.Random, Task, list[Call]], Any]] = {
    "none": lambda rng, task, calls: None,
    "name": _name,
    "count": _count,
    "double": _double,
    "missing": _missing,
    "surplus": _surplus,
    "type": _type,
    "value": _value,
    "spelling": _spelling,
    "nested": _nested,
    "order": _order,
    "mixed_up": _mixed_up,
    "literal": _literal,
}
