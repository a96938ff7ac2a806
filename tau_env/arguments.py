"""Whether a call's arguments fit a function's documentation, in the words that inspect's schema check gives a model.

Only what these schemas use: objects of text, numbers, choices, and lists of text or of objects. As there, 3.0 is a
whole number and true is none.
"""

from collections.abc import Callable, Mapping
from typing import Any

Schema = Mapping[str, Any]


def misfits(arguments: dict[str, Any], schema: Schema) -> list[str]:
    """One sentence for each way in which the arguments do not fit, in the order of the schema. Values are bounded."""
    properties = schema["properties"]
    found: list[str] = []
    for name, expected in properties.items():
        if name in arguments:
            value = arguments[name]
            if type(value) is not str or expected.get("type") != "string" or "enum" in expected:
                found += _misfits(value, expected)
    for name in schema["required"]:
        if name not in arguments:
            found.append(f"{name!r} is a required property")
    if surplus := sorted(arguments.keys() - properties.keys()):
        verb = "was" if len(surplus) == 1 else "were"
        found.append(
            f"Additional properties are not allowed ({', '.join(map(repr, surplus))} {verb} unexpected)",
        )
    return found


def _misfits(value: Any, expected: Schema) -> list[str]:
    if "anyOf" in expected:  # the widest alternative is what counts
        fits = any(_is(value, each["type"]) for each in expected["anyOf"] if "type" in each)
        return [] if fits else [f"{value!r} is not valid under any of the given schemas"]
    kind = expected["type"]
    found = [] if _is(value, kind) else [f"{value!r} is not of type {kind!r}"]
    if "enum" in expected and value not in expected["enum"]:
        found.append(f"{value!r} is not one of {expected['enum']!r}")
    if kind == "array" and type(value) is list:
        for item in value:
            found += _misfits(item, expected["items"])
    return found


_CHECKS: Mapping[str, Callable[[Any], bool]] = {
    "string": lambda value: type(value) is str,
    "integer": lambda value: type(value) is int or (type(value) is float and value.is_integer()),
    "number": lambda value: type(value) in (int, float),
    "object": lambda value: type(value) is dict,
    "array": lambda value: type(value) is list,
}


def _is(value: Any, kind: str) -> bool:
    return _CHECKS[kind](value)


def convert(arguments: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """The arguments as a function takes them: 3.0 as 3 where a whole number is meant. They must fit."""
    for name, expected in schema["properties"].items():
        if expected["type"] == "integer" and type(arguments[name]) is float:
            arguments = {**arguments, name: int(arguments[name])}
    return arguments
