"""What the literals of Java and JavaScript have in common: numbers, quotes, and parts between separators.

BFCL gives values of these languages as text. Everything here is one pass over that text; nothing is evaluated.
"""

import re
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

MAX_DIGITS = 1_000
"""Longer numbers stay text: Python refuses to read integers of more than 4,300 digits, and gold has at most 19."""
MAX_DEPTH = 20
"""Levels of a literal that are read; what is deeper stays text."""

_SPECIAL = re.compile(r"""\\.|["'()\[\]{},;:]""", re.DOTALL)
_NO_SPACE = re.compile(r"\S")
_OPENING = {")": "(", "]": "[", "}": "{"}


def read_value(text: str) -> Any:
    """A literal without a type: truth value, quoted text, number, or the text itself, as BFCL's converters read it."""
    if text in ("true", "false"):
        return text == "true"
    if quoted(text):
        return text[1:-1]
    if len(text) > MAX_DIGITS:
        return text
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def quoted(text: str) -> bool:
    """Whether the text begins and ends with the same kind of quote; a lone quote does both, in BFCL as well."""
    return text[:1] in ('"', "'") and text.endswith(text[:1])


def split(text: str, separator: str, most: int = -1) -> list[str] | None:
    """Parts between separators that stand outside quotes and brackets, without the spaces around them.

    Args:
        separator: one of `,` `;` `:`.
        most: how many separators count at most; -1 for all.

    Returns:
        The parts, an empty one after the last separator left out; None where brackets or quotes do not close.
    """
    parts: list[str] = []
    stack: list[str] = []
    quote, start = "", 0
    for found in _SPECIAL.finditer(text):
        sign = found.group()
        if quote:
            quote = "" if sign == quote else quote
        elif sign in ('"', "'"):
            quote = sign
        elif sign in "([{":
            stack.append(sign)
        elif sign in _OPENING:
            if not stack or stack.pop() != _OPENING[sign]:
                return None
        elif sign == separator and not stack and len(parts) != most:
            parts.append(text[start : found.start()].strip())
            start = found.end()
    if quote or stack:
        return None
    last = text[start:].strip()
    return [*parts, last] if last else parts


def line_holds(text: str, start: int, end: int) -> bool:
    """Whether `end` was found (is not -1) on the line of `start`: the reach of a regular expression's dot."""
    return end >= 0 and text.find("\n", start, end) < 0


def after_space(text: str, start: int) -> int:
    """Where the spaces that begin at `start` end."""
    found = _NO_SPACE.search(text, start)
    return found.start() if found else len(text)


def find_all(text: str, head: str, match: Callable[[int], tuple[T, int] | None]) -> list[T]:
    """What `match` gives at the end of each `head`, with where to go on.

    Where it gives None, it would give None at each later head of the line as well.
    """
    found = []
    at = text.find(head)
    while at >= 0:
        start = at + len(head)
        if one := match(start):
            found.append(one[0])
            at = text.find(head, one[1])
        else:
            line_end = text.find("\n", start)
            at = -1 if line_end < 0 else text.find(head, line_end + 1)
    return found
