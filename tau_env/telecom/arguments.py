"""Checks a call's arguments against the documentation of its function, before anything is run.

A whole number that is written as `2.0` counts as an integer and becomes one, and an integer becomes a float where a
number is asked for, as upstream's caller does it. Numbers that are not finite are refused, though upstream takes them:
no JSON has them, and a database with a NaN equals nothing.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from interaction.call import Call

_SHOWN = 100


class BadArguments(Exception):
    """The arguments do not fit; the text says which and why, in our words."""


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError("must be a text")
    return value


def _integer(value: Any) -> int:
    if type(value) is int or (type(value) is float and value.is_integer()):
        return int(value)
    raise TypeError("must be a whole number")


def _number(value: Any) -> float:
    try:
        if type(value) in (int, float) and math.isfinite(number := float(value)):
            return number
    except OverflowError:
        pass
    raise TypeError("must be a finite number")


def _object(value: Any) -> Mapping[Any, Any]:
    if type(value) is not dict:
        raise TypeError("must be an object")
    return value


_READERS: dict[str, Callable[[Any], Any]] = {
    "string": _text,
    "integer": _integer,
    "number": _number,
    "object": _object,
}


def read_arguments(call: Call, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments in the types of the documentation.

    Raises:
        BadArguments: one is missing, unknown or of another type, or some are positional.
    """
    if not call.arguments and not call.positional and not parameters["required"]:
        return {}
    properties = parameters["properties"]
    problems = ["arguments must be given by name"] if call.positional else []
    problems += [f"{name} is missing" for name in parameters["required"] if name not in call.arguments]
    values = {}
    for name, value in call.arguments.items():
        if name not in properties:
            problems.append(f"{name[:_SHOWN] if type(name) is str else 'a name that is no text'} is not known")
            continue
        try:
            values[name] = _READERS[_kind(properties[name])](value)
        except TypeError as problem:
            problems.append(f"{name} {problem}")
    if problems:
        more = f"; and {len(problems) - 8} more" if len(problems) > 8 else ""
        raise BadArguments(f"Wrong arguments for {call.name}: {'; '.join(problems[:8])}{more}")
    return values


def _kind(schema: Mapping[str, Any]) -> str:
    """Where there is a choice of types, the last is the widest."""
    kind: str = schema["anyOf"][-1]["type"] if "anyOf" in schema else schema["type"]
    return kind
