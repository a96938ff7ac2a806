"""JavaScript values, which BFCL gives as text, to Python ones: BFCL's reading, and ours.

BFCL's converter is a handful of regular expressions, one of them exponential (81 characters take it more than 8 s).
`official` finds what they find, in one pass; a test compares the two on random texts. Ours takes the same forms of
literals, but the whole text must be one, quotes protect what is between them, and literals may stand in one another
(`differences.py`: whole_literal, quoted_elements, nested_literals).
"""

import re
from typing import Any

from bfcl_env.single_turn.literals import (
    MAX_DEPTH,
    MAX_DIGITS,
    after_space,
    find_all,
    line_holds,
    quoted,
    read_value,
    split,
)

TYPES: dict[str, type] = {
    "String": str,
    "integer": int,
    "float": float,
    "Bigint": int,
    "Boolean": bool,
    "dict": dict,
    "array": list,
    "any": str,
}
"""Documented type -> Python's."""
COLLECTIONS = ("array",)
"""Types whose elements have a documented type."""

_INTEGER = re.compile(r"-?\d+$")
_FLOAT = re.compile(r"-?\d+(\.\d+)?$")
_BIGINT = re.compile(r"(-?\d+)n\Z")
_NEW = re.compile(r"new\s+Array\(")


def convert(text: str, kind: str, inner: str | None = None, *, official: bool) -> Any:
    """The value that a text stands for; the text itself where it is no literal of that type.

    Args:
        kind: a key of TYPES.
        inner: the documented type of an array's elements.
        official: read as BFCL does.
    """
    code = text.strip()
    if kind in ("array", "dict") and official:
        return _official_array(code, inner) if kind == "array" else _official_dict(code)
    if kind in ("array", "dict"):
        whole = code.rstrip(";").rstrip()
        found = _array(whole, inner) if kind == "array" else _dict(whole)
        return code if type(found) is str else found
    if kind == "String":
        return text[1:-1] if quoted(text) else text
    if len(text) > MAX_DIGITS:
        return text
    if kind == "integer" and _INTEGER.match(text):
        return int(text)
    if kind == "float" and _FLOAT.match(text):
        return float(text)
    if kind == "Bigint" and (found := _BIGINT.match(text)):
        return int(found.group(1))
    if kind == "Boolean" and text in ("true", "false"):
        return text == "true"
    return text


# BFCL's reading.


def _official_array(code: str, inner: str | None) -> Any:
    end = _end_of_arrays(code)
    if end >= 0:
        rows = [row.strip() for row in _in_brackets(code[:end])]
        rows[0] = rows[0].removeprefix("[")
        return [[read_value(part.strip()) for part in row.split(",")] for row in rows]
    head = _NEW.match(code)
    start, closing = (head.end(), ")") if head else (1, "]")
    end = code.find(closing, start)
    if not (head or code.startswith("[")) or not line_holds(code, start, end):
        return code
    body = code[start:end].strip()
    parts = [part.strip() for part in body.split(",")] if body else []
    if inner is None:
        return [read_value(part) for part in parts]
    # BFCL's own mark of a text: an array or object that begins with a quote is none anyhow.
    return [convert(part, inner, official=True) for part in parts]


def _end_of_arrays(code: str) -> int:
    """Where BFCL's pattern of an array of arrays ends, -1 if it does not match.

    The pattern is `[`, arrays with commas between them, `]`; an array's inside is any text of one line, as short as
    possible. It ends where a `]` is followed by the closing sign, and after any other `]` that a comma and a `[` do not
    follow, the inside goes on. Trying to end a later array never helps where an earlier one could not: what lies
    between them holds no `]`.
    """
    head = _NEW.match(code)
    closing = ")" if head else "]"
    at = after_space(code, head.end() if head else 1)
    if not (head or code.startswith("[")) or not code.startswith("[", at):
        return -1
    at += 1
    while line_holds(code, at, end := code.find("]", at)):
        at = end + 1
        sign = after_space(code, at)
        if code.startswith(closing, sign):
            return sign + 1
        if code.startswith(",", sign):
            row = after_space(code, sign + 1)
            at = row + 1 if code.startswith("[", row) else at
    return -1


def _in_brackets(code: str) -> list[str]:
    """What `\\[(.*?)\\]` finds."""

    def row(start: int) -> tuple[str, int] | None:
        end = code.find("]", start)
        return (code[start:end], end) if line_holds(code, start, end) else None

    return find_all(code, "[", row)


def _official_dict(code: str) -> Any:
    end = code.find("}")
    if code == "{}" or not code.startswith("{") or not line_holds(code, 0, end):
        return {} if code == "{}" else code
    found = {}
    for key, text in _official_pairs(code[1:end]):
        if text.startswith("[") and text.endswith("]"):
            found[key] = _official_array(text, None)
        else:
            found[key] = read_value(text.strip("'\"").strip())
    return found


def _official_pairs(body: str) -> list[tuple[str, str]]:
    """What `([^:]+):\\s*(.*?)(?:,\\s*(?=[^,]+:)|$)` finds, in one line.

    A value ends at a comma if a colon, other than as the very next sign, comes before the comma after it.
    """
    found = []
    at = 0
    while (colon := body.find(":", at)) >= 0:
        if colon == at:  # No key: the search goes on one sign later.
            at += 1
            continue
        start = after_space(body, colon + 1)
        end, next_key = _official_end(body, start)
        found.append((body[at:colon].strip().strip("'\""), body[start:end].strip()))
        at = next_key
    return found


def _official_end(body: str, start: int) -> tuple[int, int]:
    """Where the value that begins at `start` ends, and where the next key begins."""
    comma = body.find(",", start)
    while comma >= 0:
        next_comma = body.find(",", comma + 1)
        colon = body.rfind(":", comma + 2, next_comma if next_comma >= 0 else len(body))
        if colon >= 0:
            return comma, min(after_space(body, comma + 1), colon - 1)
        comma = next_comma
    return len(body), len(body)


# Ours: one literal and nothing else, with the forms that BFCL knows.


def _array(code: str, inner: str | None, depth: int = 0) -> Any:
    head = _NEW.match(code)
    parts = None
    if head and code.endswith(")") or code.startswith("[") and code.endswith("]"):
        parts = split(code[head.end() if head else 1 : -1], ",")
    if parts is None or depth > MAX_DEPTH:
        return code
    return [_element(part, inner, depth) for part in parts]


def _dict(code: str, depth: int = 0) -> Any:
    entries = split(code[1:-1], ",") if code.startswith("{") and code.endswith("}") else None
    pairs = [split(entry, ":", 1) or [] for entry in entries or ()]
    if entries is None or any(len(pair) != 2 for pair in pairs) or depth > MAX_DEPTH:
        return code
    return {key[1:-1] if quoted(key) else key: _element(value, None, depth) for key, value in pairs}


def _element(text: str, inner: str | None, depth: int) -> Any:
    """A value within another one; without a documented type its first sign tells what it is."""
    if text.startswith("[") or _NEW.match(text):
        return _array(text, None, depth + 1)
    if text.startswith("{"):
        return _dict(text, depth + 1)
    return read_value(text) if inner in (None, "any") else convert(text, inner, official=False)
