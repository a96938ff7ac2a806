"""Java values, which BFCL gives as text, to Python ones: BFCL's reading, and ours.

BFCL's converter is a handful of regular expressions, one of them quadratic (48,000 characters take it 4 s). `official`
finds what they find, in one pass; a test compares the two on random texts. Ours takes the same forms of literals, but
the whole text must be one, quotes protect what is between them, and elements without a type keep their own
(`differences.py`: whole_literal, quoted_elements, untyped_elements).
"""

import re
from typing import Any

from bfcl_env.single_turn.literals import MAX_DIGITS, after_space, find_all, line_holds, quoted, read_value, split

TYPES: dict[str, type] = {
    "byte": int,
    "short": int,
    "integer": int,
    "float": float,
    "double": float,
    "long": int,
    "boolean": bool,
    "char": str,
    "Array": list,
    "ArrayList": list,
    "HashMap": dict,
    "String": str,
    "any": str,
}
"""Documented type -> Python's. BFCL lists Set, Hashtable, Queue and Stack too, and cannot read the first two nor
convert any of the four."""
COLLECTIONS = ("Array", "ArrayList")
"""Types whose elements have a documented type."""

_INTEGER = re.compile(r"-?\d+$")
_LONG = re.compile(r"(-?\d+)[lL]$")
_DOUBLE = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?$")
_FLOAT = re.compile(r"(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)[fF]$")
_ARRAY = re.compile(r"new\s+\w+\[\]\s*\{")
_LIST_OF = re.compile(r"new\s+ArrayList<\w*>\(Arrays\.asList\(")
_LIST_ADDS = re.compile(r"new\s+ArrayList<\w*>\(\)\s*\{\{\s*")
_LIST_EMPTY = re.compile(r"new\s+ArrayList<\w*>\(\)")
_MAP = re.compile(r"new\s+HashMap<")
_MAP_BODY = re.compile(r">\s*\(\)\s*\{")
_MAP_EMPTY = re.compile(r">\s*\(\)")
_WHOLE_MAP = re.compile(r"new\s+HashMap<[^()]*>\s*\(\)\s*")
_BLOCK = re.compile(r"\{\s*(?:\{(.*)\}\s*)?\}\Z", re.DOTALL)


def convert(text: str, kind: str, inner: str | None = None, *, official: bool) -> Any:
    """The value that a text stands for; the text itself where it is no literal of that type.

    Args:
        kind: a key of TYPES.
        inner: the documented type of an Array's or ArrayList's elements.
        official: read as BFCL does.
    """
    if kind in COLLECTIONS:
        return _official_list(text, kind, inner) if official else _list(text, kind, inner)
    if kind == "HashMap":
        return _official_map(text) if official else _map(text)
    return _scalar(text, kind)


def _scalar(text: str, kind: str) -> Any:
    if len(text) > MAX_DIGITS:
        return text
    if kind in ("byte", "short", "integer") and _INTEGER.match(text):
        return int(text)
    if kind == "long" and (found := _LONG.match(text)):
        return int(found.group(1))
    if kind == "double" and _DOUBLE.match(text):
        return float(text)
    if kind == "float" and (found := _FLOAT.match(text)):
        return float(found.group(1))
    if kind == "boolean" and text in ("true", "false"):
        return text == "true"
    return text


def _typed(text: str, inner: str | None, *, official: bool) -> Any:
    return convert(text, inner, official=official) if inner else _untyped(text)


def _untyped(text: str) -> Any:
    """A literal without a documented type, as in a map."""
    if text[:1] != '"' and quoted(text):
        return text  # BFCL takes single quotes off in JavaScript only.
    if len(text) <= MAX_DIGITS and (found := _LONG.match(text)):
        return int(found.group(1))
    if len(text) <= MAX_DIGITS and (found := _FLOAT.match(text)):
        return float(found.group(1))
    return read_value(text)


# BFCL's reading.


def _official_list(text: str, kind: str, inner: str | None) -> Any:
    if kind == "Array":
        for head in _ARRAY.finditer(text):
            end = text.find("}", head.end())
            if line_holds(text, head.end(), end):
                parts = (part.strip() for part in text[head.end() : end].split(","))
                return [_typed(part, inner, official=True) for part in parts if part]
        return text
    for head in _LIST_OF.finditer(text):
        end = text.find("))", head.end() + 1)
        if line_holds(text, head.end(), end):
            return [_official_element(part.strip(), inner) for part in text[head.end() : end].split(",")]
    if adds := _LIST_ADDS.search(text):
        if (end := text.find("}}", adds.end() + 1)) >= 0:
            return [_official_element(part, inner) for part in _official_adds(text[adds.end() : end])]
        if text.startswith("}}", adds.end()) and text[adds.end() - 1].isspace():
            return []
    return [] if _LIST_EMPTY.search(text) else text


def _official_element(text: str, inner: str | None) -> Any:
    return text[1:-1] if inner in ("char", "String") else _typed(text, inner, official=True)


def _official_adds(body: str) -> list[str]:
    """What `add\\((.+?)\\)` finds."""

    def add(start: int) -> tuple[str, int] | None:
        end = body.find(")", start + 1)
        return (body[start:end].strip(), end + 1) if line_holds(body, start, end) else None

    return find_all(body, "add(", add)


def _official_map(text: str) -> Any:
    head = _MAP.search(text)
    if head is None:
        return text
    if body := _MAP_BODY.search(text, head.end()):
        start = after_space(text, body.end())
        start = after_space(text, start + 1) if text.startswith("{", start) else start
        if (end := text.find("}", start)) >= 0:
            return {key: _untyped(value) for key, value in _official_puts(text[start:end].rstrip())}
    empty: re.Match[str] | None = None
    for later in _MAP.finditer(text):
        if empty is None or empty.start() < later.end():
            empty = _MAP_EMPTY.search(text, later.end())
        if empty is None:
            break
        if line_holds(text, later.end(), empty.start()):
            return {}
    return text


def _official_puts(body: str) -> list[tuple[str, str]]:
    """What `put\\("(.*?)",\\s*(.*?)\\)` finds.

    A key ends at the first `",` of its line after which a `)` follows on the line. Where the first has none, only the
    line's last can have one, by spaces that reach into the next line; and then later `put("` of the line fail as well.
    """

    def put(start: int) -> tuple[tuple[str, str], int] | None:
        line_end = body.find("\n", start)
        stop = len(body) if line_end < 0 else line_end
        for comma in (body.find('",', start, stop), body.rfind('",', start, stop)):
            value = after_space(body, comma + len('",'))
            end = body.find(")", value)
            if comma >= 0 and line_holds(body, value, end):
                return (body[start:comma], body[value:end].strip()), end
        return None

    return find_all(body, 'put("', put)


# Ours: one literal and nothing else, with the forms that BFCL knows.


def _list(text: str, kind: str, inner: str | None) -> Any:
    code = text.strip().rstrip(";").rstrip()
    parts: list[str] | None = None
    if kind == "Array":
        if (head := _ARRAY.match(code)) and code.endswith("}"):
            parts = split(code[head.end() : -1], ",")
    elif (head := _LIST_OF.match(code)) and code.endswith("))"):
        parts = split(code[head.end() : -2], ",")
    elif head := _LIST_EMPTY.match(code):
        parts = _arguments(code[head.end() :].strip(), "add")
    return text if parts is None else [_element(part, inner) for part in parts]


def _element(text: str, inner: str | None) -> Any:
    if inner in ("char", "String"):
        return text[1:-1] if quoted(text) else text
    return _typed(text, None if inner == "any" else inner, official=False)


def _map(text: str) -> Any:
    code = text.strip().rstrip(";").rstrip()
    head = _WHOLE_MAP.match(code)
    puts = _arguments(code[head.end() :], "put") if head else None
    pairs = [split(put, ",") or [] for put in puts or ()]
    if puts is None or not all(len(pair) == 2 and pair[0][:1] == '"' and quoted(pair[0]) for pair in pairs):
        return text
    return {key[1:-1]: _untyped(value) for key, value in pairs}


def _arguments(block: str, method: str) -> list[str] | None:
    """What stands between the parentheses of each call in `{{ method(...); ... }}`; nothing for an empty text."""
    if not block:
        return []
    whole = _BLOCK.match(block)
    statements = split(whole.group(1) or "", ";") if whole else None
    calls = [re.fullmatch(rf"{method}\s*\((.*)\)", statement, re.DOTALL) for statement in statements or ()]
    return None if statements is None or None in calls else [call.group(1).strip() for call in calls if call]
