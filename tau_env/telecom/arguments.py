"""Checks a call's arguments against the documentation of its function, before anything is run.

Says what is wrong in the words that inspect's schema check gives a model. As there, 3.0 is a whole number and true is
none; a whole number becomes a float where a number is asked for. Numbers that are not finite are refused, though the
schema takes them: no JSON has them, and a database with a NaN equals nothing.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from interaction.call import Call

Schema = Mapping[str, Any]


class BadArguments(Exception):
    """The arguments do not fit; the text says which and why."""


def read_arguments(call: Call, parameters: Schema) -> dict[str, Any]:
    """The arguments in the types of the documentation.

    Raises:
        BadArguments: one is missing, unknown or of another type, or some are positional.
    """
    if call.positional:
        raise BadArguments("arguments must be given by name")
    if problems := _problems(call.arguments, parameters):
        text = f"Found {len(problems)} validation errors parsing tool input arguments:"
        raise BadArguments("\n- ".join([text, *problems]))
    return {name: _convert(name, value, parameters["properties"][name]) for name, value in call.arguments.items()}


def _problems(arguments: Mapping[str, Any], parameters: Schema) -> list[str]:
    properties = parameters["properties"]
    found = []
    for name, schema in properties.items():
        if name in arguments and not _CHECKS[_kind(schema)](arguments[name]):
            alternatives = "anyOf" in schema
            why = "valid under any of the given schemas" if alternatives else f"of type {schema['type']!r}"
            found.append(f"{arguments[name]!r} is not {why}")
    found += [f"{name!r} is a required property" for name in parameters["required"] if name not in arguments]
    if surplus := sorted(arguments.keys() - properties.keys()):
        verb = "was" if len(surplus) == 1 else "were"
        names = ", ".join(map(repr, surplus))
        found.append(f"Additional properties are not allowed ({names} {verb} unexpected)")
    return found


def _kind(schema: Schema) -> str:
    """Where there is a choice of types, the last is the widest."""
    kind: str = schema["anyOf"][-1]["type"] if "anyOf" in schema else schema["type"]
    return kind


_CHECKS: Mapping[str, Callable[[Any], bool]] = {
    "string": lambda value: type(value) is str,
    "integer": lambda value: type(value) is int or (type(value) is float and value.is_integer()),
    "number": lambda value: type(value) in (int, float),
    "object": lambda value: type(value) is dict,
}


def _convert(name: str, value: Any, schema: Schema) -> Any:
    kind = schema.get("type")
    if kind == "integer":
        return int(value)
    if kind != "number":
        return value
    try:
        if math.isfinite(number := float(value)):
            return number
    except OverflowError:
        pass
    raise BadArguments(f"{name} must be a finite number")
