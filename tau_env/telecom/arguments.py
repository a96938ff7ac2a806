"""Checks a call's arguments against the documentation of its function, before anything is run.

Numbers that are not finite are refused, though the schema takes them: no JSON has them, and a database with a NaN
equals nothing.
"""

import math
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from interaction.call import Call
from tau_env.arguments import Schema, misfits
from tau_env.telecom.phone import Apn


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


_APN = TypeAdapter(Apn)


def read_apn(settings: Mapping[Any, Any]) -> Apn:
    """Access point settings, as pydantic reads them for upstream: `"yes"` is true, `"80"` a port.

    Raises:
        BadArguments: a value does not fit its field. In our words: pydantic's depend on its version.
    """
    if not all(isinstance(key, str) for key in settings):
        raise BadArguments("set_apn_settings: the keys of apn_settings must be texts")
    try:
        return _APN.validate_python(dict(settings))
    except ValidationError as error:
        raise BadArguments(f"set_apn_settings: {error.errors()[0]['loc'][0]} does not fit") from error
