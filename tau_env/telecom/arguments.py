"""Checks a call's arguments against the documentation of its function, before anything is run.

Numbers that are not finite are refused, though the schema takes them: no JSON has them, and a database with a NaN
equals nothing.
"""

import math
from typing import Any

from interaction.call import Call
from tau_env.arguments import Schema, misfits


class BadArguments(Exception):
    """The arguments do not fit; the text says which and why."""


def read_arguments(call: Call, parameters: Schema) -> dict[str, Any]:
    """The arguments in the types of the documentation.

    Raises:
        BadArguments: one is missing, unknown or of another type, or some are positional.
    """
    if call.positional:
        raise BadArguments("arguments must be given by name")
    if problems := misfits(call.arguments, parameters):
        text = f"Found {len(problems)} validation errors parsing tool input arguments:"
        raise BadArguments("\n- ".join([text, *problems]))
    return {name: _convert(name, value, parameters["properties"][name]) for name, value in call.arguments.items()}


def _convert(name: str, value: Any, schema: Schema) -> Any:
    kind = schema.get("type")
    if kind == "integer":
        return int(value)
    if kind != "number":
        return value
    try:
        if math.isfinite(value):
            return value
    except OverflowError:
        pass
    raise BadArguments(f"{name} must be a finite number")
