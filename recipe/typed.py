"""Values from outside, read into a frozen dataclass: settings of a configuration, files that a start left behind.

The dataclass says what may stand there: types, `Literal` for what is one of several, `Annotated[int, Field(ge=1)]` for
a range. Reading is strict: `"5"` is no number, `"no"` is no truth, a name that the dataclass lacks is refused, and a
number must be finite.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from interaction.masked import masked_text
from recipe.errors import PreflightError

T = TypeVar("T")

STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
"""To be given to each dataclass that is read here: `__pydantic_config__ = STRICT`."""

LONGEST_SHOWN = 80
"""Characters of a wrong value that a message repeats."""

MOST_FAULTS = 3
"""Wrong values that one message names."""


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def read(kind: type[T], values: Mapping[str, Any] | str | bytes, where: str) -> T:
    """The dataclass `kind` with `values`.

    Args:
        values: plain containers, as `OmegaConf.to_container` gives them, or the text of a JSON file.
        where: what the values are of, the beginning of a setting's name (`stage.gate`) or a file's path.

    Raises:
        PreflightError: something in it has the wrong type or range, is unknown or missing, or the text is no JSON.
    """
    if isinstance(values, str | bytes):
        text: str | bytes = values
    else:
        try:
            text = json.dumps(values, default=repr, ensure_ascii=False).encode()
        except (ValueError, TypeError, RecursionError) as error:  # a lone surrogate, a number of 5,000 digits, bytes
            raise PreflightError(f"{where} holds what no text file could: {one_line(error)}") from error
    try:
        return _adapter(kind).validate_json(text)  # type: ignore[arg-type]
    except ValidationError as error:
        lines = [_line(kind, fault, where) for fault in error.errors(include_url=False)]
        more = [f"and {len(lines) - MOST_FAULTS} more"] if len(lines) > MOST_FAULTS else []
        raise PreflightError("; ".join(lines[:MOST_FAULTS] + more)) from error


def _line(kind: type, fault: Any, where: str) -> str:
    name = ".".join([where, *(shown(part, quote=False) for part in fault["loc"])])
    if fault["type"] == "json_invalid":
        return f"{where} is not JSON: {fault['ctx']['error']}"
    if fault["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        return f"{name} is not known{meant(fault['loc'][-1], _names(kind, fault['loc'][:-1]))}"
    if fault["type"] in ("missing", "missing_argument"):
        return f"{name} is missing"
    expected = fault["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    if fault["type"] == "literal_error":
        expected += meant(fault["input"], re.findall(r"'([^']*)'", fault["ctx"]["expected"]))
    if expected.startswith(("greater", "less")):
        expected = f"a number {expected}"
    return f"{name}={shown(fault['input'])}; expected {expected}"


def _names(kind: Any, loc: tuple[Any, ...]) -> list[str]:
    """The fields of the dataclass that stands at `loc` in `kind`."""
    for part in loc:
        hint = get_type_hints(kind).get(str(part))
        kind = next((one for one in (hint, *get_args(hint)) if is_dataclass(one)), None)
        if kind is None:
            return []
    return [field.name for field in fields(kind)]


def meant(given: Any, known: list[str]) -> str:
    """The end of a message about a name that is none of these: which one may be meant."""
    near = get_close_matches(str(given)[:LONGEST_SHOWN], known, 1)
    return f" (is {near[0]} meant?)" if near else ""


def shown(value: Any, quote: bool = True) -> str:
    """A value in a message: on one line, and not longer than `LONGEST_SHOWN`."""
    try:
        text = str(value)
        if quote or not text.isprintable() or not text.strip():
            text = repr(value).replace("\n", " ")
        text = masked_text(text)
    except Exception:  # another's `__repr__`, a number of more digits than Python prints, a nest too deep
        text = f"a value of type {type(value).__name__} that cannot be printed"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def one_line(error: object) -> str:
    """What an error says, on one line of at most 200 characters, whatever stands in it."""
    words = " ".join(masked_text(str(error)).split())
    text = "".join(letter if letter.isprintable() else "?" for letter in words)
    return text if len(text) <= 200 else f"{text[:200]}..."
