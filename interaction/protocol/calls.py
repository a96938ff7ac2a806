"""Read calls from JSON that a model wrote: bounded, strict, and data only.

Stricter than `json.loads` where Python's leniency would do harm later: NaN and infinities (no JSON writer
accepts them), lone surrogates (no file accepts them), duplicate keys (the last one would win silently),
and nesting so deep that the decoder itself raises RecursionError.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import Any, NoReturn

from bfcl_env import Call

from .base import FormatError

MAX_DEPTH = 16
MAX_CALLS = 40
MAX_NAME_CHARS = 128

_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)


class CallsError(ValueError):
    """Not a list of calls. Carries the typed reason beside the text."""

    def __init__(self, kind: FormatError, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


def decode_calls(text: str, *, max_depth: int = MAX_DEPTH, max_calls: int = MAX_CALLS) -> tuple[Call, ...]:
    """The calls in `text`: a JSON list of {"name": ..., "arguments": {...}}, or one such object alone.

    Raises CallsError, and nothing else, for everything that is not that.
    """
    value = decode_json(text, max_depth=max_depth)
    items = value if isinstance(value, list) else [value]
    if not items:
        raise CallsError(FormatError.empty_calls, "the list is empty")
    if len(items) > max_calls:
        raise CallsError(FormatError.too_many_calls, f"{len(items)} calls in one message, at most {max_calls}")
    return tuple(_call(item, position) for position, item in enumerate(items, start=1))


def decode_json(text: str, *, max_depth: int = MAX_DEPTH) -> Any:
    """The JSON value in `text`. Raises CallsError with bad_json or too_deep."""
    if nesting_depth(text) > max_depth:
        raise CallsError(FormatError.too_deep, f"JSON is nested deeper than {max_depth} levels")
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_finite)
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise CallsError(FormatError.bad_json, "a string holds half of a surrogate pair") from None
    except ValueError as fault:
        raise CallsError(FormatError.bad_json, str(fault)[:200]) from None
    return value


def nesting_depth(text: str) -> int:
    """How deep brackets are nested, those inside strings not counted. One pass, no recursion."""
    depth = deepest = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        if match[0] in ("[", "{"):
            depth += 1
            deepest = max(deepest, depth)
        elif match[0] in ("]", "}"):
            depth -= 1
    return deepest


def _call(item: Any, position: int) -> Call:
    def wrong(detail: str) -> NoReturn:
        raise CallsError(FormatError.wrong_shape, f"call {position}: {detail}")

    if not isinstance(item, dict):
        wrong(f"expected an object, got {_kind(item)}")
    missing = [key for key in ("name", "arguments") if key not in item]
    if missing:
        wrong(f"missing {' and '.join(missing)}")
    if len(item) > 2:
        surplus = next(key for key in item if key not in ("name", "arguments"))
        wrong(f"unexpected key {surplus[:40]!r}")
    name, arguments = item["name"], item["arguments"]
    if not isinstance(name, str) or not name or len(name) > MAX_NAME_CHARS:
        wrong(f"name must be a text of 1 to {MAX_NAME_CHARS} characters")
    if not isinstance(arguments, dict):
        wrong(f"arguments must be an object, got {_kind(arguments)}")
    return Call(name=name, arguments=arguments)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        repeated = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"duplicate key {repeated[:40]!r}")
    return result


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"number {text[:40]} is out of range")
    return value


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
