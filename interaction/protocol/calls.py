"""Read calls from JSON that a model wrote: bounded, strict, and data only.

Stricter than `json.loads`: no NaN, infinities, lone surrogates or duplicate keys, and no nesting that would raise
RecursionError in the decoder.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from ..call import Call
from .base import MAX_CALLS, MAX_DEPTH, FormatError, Malformed

MAX_NAME_CHARS = 128
MAX_BRACKET_RUNS = 10_000
"""Each list or object makes two. The environment takes calls of 5,000 values at most."""

_BRACKETS = re.compile(r'(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+"?)*+([\[{]++|[\]}]++)', re.DOTALL)
"""Everything up to the next run of opening or of closing brackets outside strings. To match, not to search with."""
_CALL_OBJECT = re.compile(r'\{\s*+"(?:name"\s*+:\s*+"[^"]*+"\s*+,\s*+")?(?:arguments|parameters)"\s*+:')


def decode_calls(text: str) -> tuple[Call, ...]:
    """The calls in `text`: a JSON list of {"name": ..., "arguments": {...}}, or one such object alone.

    Raises Malformed, and nothing else, for everything that is not that.
    """
    value = decode_json(text)
    items = value if isinstance(value, list) else [value]
    if not items:
        raise Malformed(FormatError.empty_calls, "the list is empty")
    if len(items) > MAX_CALLS:
        raise Malformed(FormatError.too_many_calls, f"{len(items)} calls in one message, at most {MAX_CALLS}")
    return tuple(decode_call(item, position) for position, item in enumerate(items, start=1))


def decode_json(text: str) -> Any:
    """The JSON value in `text`. Raises Malformed with bad_json, too_deep or too_long."""
    depth = 0
    for _, run in bracket_runs(text):
        depth += len(run) if run[0] in "[{" else -len(run)
        if depth > MAX_DEPTH:
            raise Malformed(FormatError.too_deep, f"JSON is nested deeper than {MAX_DEPTH} levels")
    try:
        value = json.loads(text, object_pairs_hook=unique_keys, parse_constant=_constant, parse_float=_finite)
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise Malformed(FormatError.bad_json, "a string holds half of a surrogate pair") from None
    except ValueError as fault:
        raise Malformed(FormatError.bad_json, str(fault)[:200]) from None
    return value


def holds_call(text: str) -> bool:
    """Whether a call written as a JSON object stands somewhere in `text`, as far as its first key or two show."""
    return _CALL_OBJECT.search(text) is not None


def bracket_runs(text: str) -> Iterator[tuple[int, str]]:
    """Runs of opening and of closing brackets with their positions, those inside JSON strings left out. One pass.

    Raises Malformed with too_long after MAX_BRACKET_RUNS.
    """
    match = _BRACKETS.match(text)
    for _ in range(MAX_BRACKET_RUNS):
        if match is None:
            return
        yield match.start(1), match[1]
        match = _BRACKETS.match(text, match.end())
    raise Malformed(FormatError.too_long, f"more than {MAX_BRACKET_RUNS} brackets")


def decode_call(item: Any, position: int, *, arguments_keys: Sequence[str] = ("arguments",)) -> Call:
    """The call that decoded JSON describes; `position`, from 1, names it in the error.

    `arguments_keys` are the names that the key of the arguments may have. Raises Malformed with wrong_shape.
    """

    def wrong(detail: str) -> NoReturn:
        raise Malformed(FormatError.wrong_shape, f"call {position}: {detail}")

    if not isinstance(item, dict):
        wrong(f"expected an object, got {_kind(item)}")
    key = next((key for key in arguments_keys if key in item), arguments_keys[0])
    missing = [key for key in ("name", key) if key not in item]
    if missing:
        wrong(f"missing {' and '.join(missing)}")
    if len(item) > 2:
        surplus = next(other for other in item if other not in ("name", key))
        wrong(f"unexpected key {surplus[:40]!r}")
    name, arguments = item["name"], item[key]
    if not isinstance(name, str) or not name or len(name) > MAX_NAME_CHARS:
        wrong(f"name must be a text of 1 to {MAX_NAME_CHARS} characters")
    if not isinstance(arguments, dict):
        wrong(f"{key} must be an object, got {_kind(arguments)}")
    return Call(name=name, arguments=arguments)


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For `json.loads(object_pairs_hook=...)`, which would take the last value of a key that stands twice."""
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
