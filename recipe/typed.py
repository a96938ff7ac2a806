"""Values from outside, read into a frozen dataclass: settings of a configuration, files that a start left behind.

The dataclass says what may stand there: types, `Literal` for what is one of several, `Annotated[int, Field(ge=1)]` for
a range. Reading is strict: `"5"` is no number, `"no"` is no truth, a name that the dataclass lacks is refused, and a
number must be finite.
"""

import json
from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from functools import cache
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

T = TypeVar("T")

STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
"""To be given to each dataclass that is read here: `__pydantic_config__ = STRICT`."""

LONGEST_SHOWN = 80
"""Characters of a wrong value that a message repeats."""


class TypedError(ValueError):
    """Values that do not fit. The message is one line that names each of them."""


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def read(kind: type[T], values: Mapping[str, Any] | str | bytes, where: str) -> T:
    """The dataclass `kind` with `values`.

    Args:
        values: plain containers, as `OmegaConf.to_container` gives them, or the text of a JSON file.
        where: what the values are of, the beginning of a setting's name (`stage.gate`) or a file's path.

    Raises:
        TypedError: something in it has the wrong type or range, is unknown or missing, or the text is no JSON.
    """
    text = values if isinstance(values, str | bytes) else json.dumps(values, default=repr)
    try:
        return _adapter(kind).validate_json(text)  # type: ignore[arg-type]
    except ValidationError as error:
        raise TypedError("; ".join(_line(kind, fault, where) for fault in error.errors(include_url=False))) from error


def _line(kind: type, fault: Any, where: str) -> str:
    name = ".".join(str(part) for part in (where, *fault["loc"]))
    if fault["type"] == "json_invalid":
        return f"{where} is not JSON: {fault['ctx']['error']}"
    if fault["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        known = [field.name for field in fields(kind)] if len(fault["loc"]) == 1 else []  # type: ignore[arg-type]
        near = get_close_matches(str(fault["loc"][-1]), known, 1)
        return f"{name} is not known" + (f"; is {near[0]} meant?" if near else "")
    if fault["type"] in ("missing", "missing_argument"):
        return f"{name} is missing"
    message = fault["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    return f"{name}={shown(fault['input'])}; expected {message}"


def shown(value: Any) -> str:
    """A value in a message: on one line, and not longer than `LONGEST_SHOWN`."""
    try:
        text = repr(value).replace("\n", " ")
    except Exception:  # another's `__repr__`, or a number of more digits than Python prints
        text = f"a value of type {type(value).__name__} that cannot be printed"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."
