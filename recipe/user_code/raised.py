"""What code of the user's raised, in one line: the exception, the line of the user's file, and the keys that there are.

Python's own message for a misspelt key is the key alone, and the traceback it would stand in is the whole of another
program's. Nothing of the user's is run to find more: of the expression that failed only names and items of plain dicts
and lists are looked up again, as the failed frame still holds them, and only keys that are texts are compared. It is
said outside of the time limit of what raised, so a large dict is not searched.
"""

import ast
import linecache
from collections.abc import Iterable
from difflib import SequenceMatcher
from itertools import islice
from pathlib import Path
from traceback import walk_tb
from types import FrameType, NoneType, TracebackType
from typing import Any

from interaction.words import line_of
from recipe.typed import shown

MOST_KEYS = 16
"""Keys that a message names, the nearest to the wrong one first."""

MOST_COMPARED = 200
"""Keys of a dict that are compared with the wrong one; of a larger dict only their number is said."""

LONGEST_COMPARED = 40
"""Characters of a key that are compared."""

PLAIN = frozenset({str, int, float, bool, NoneType})
"""Types whose values are compared without code of the user's."""

UNKNOWN = object()
"""What an expression stands for that is not worked out again."""


def told(error: BaseException, file: str | None) -> str:
    """The same, with the last line of `file` that led there, and the keys of a dict that lacks the one asked for.

    Args:
        file: as Python names the code's file; None where that is not known.
    """
    lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    place = f" at {shown(Path(file).name, quote=False)}:{lines[-1]}" if file is not None and lines else ""
    try:
        keys = _keys(error)
    except Exception:  # an expression too deep to be read, a dict that another thread changes meanwhile
        keys = ""
    return line_of(error) + place + keys


def file_of(function: Any) -> str | None:
    """The file of a function's code, as Python names it; None if it has none."""
    code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
    return None if code is None else code.co_filename


def _keys(error: BaseException) -> str:
    if type(error) is AttributeError and type(error.obj) is dict:
        if error.name in _texts(error.obj):
            return f"; it is a dict: write [{error.name!r}]"
        return _listed(str(error.name), error.obj, "that dict")
    if type(error) is not KeyError or len(error.args) != 1 or error.__traceback__ is None:
        return ""
    last = _last(error.__traceback__)
    node = _expression(last)
    if not isinstance(node, ast.Subscript):
        return ""
    found, key = _value(node.value, last.tb_frame), error.args[0]
    if type(found) is not dict or (type(key) is str and key in _texts(found)):
        return ""
    return _listed(key if type(key) is str else "", found, shown(ast.unparse(node.value), quote=False))


def _texts(found: dict[Any, Any]) -> list[str]:
    """The keys that are texts; none of a large dict."""
    return [one for one in found if type(one) is str] if len(found) <= MOST_COMPARED else []


def _listed(key: str, found: dict[Any, Any], name: str) -> str:
    if not found:
        return f"; {name} is empty"
    if not (known := _texts(found)):
        return f"; {name} has {len(found)} key{'s' if len(found) > 1 else ''}"
    near = by_nearness(key, known)[:MOST_KEYS]
    more = f" and {rest} more" if (rest := len(found) - len(near)) else ""
    return f"; {name} has {', '.join(shown(one, quote=False) for one in near)}{more}"


def by_nearness(name: str, known: Iterable[str]) -> list[str]:
    """The known names, the one most like `name` first."""
    matcher = SequenceMatcher(b=name[:LONGEST_COMPARED])

    def nearness(one: str) -> float:
        matcher.set_seq1(one[:LONGEST_COMPARED])
        return matcher.ratio()

    return sorted(known, key=nearness, reverse=True)


def _last(traceback: TracebackType) -> TracebackType:
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback


def _expression(traceback: TracebackType) -> ast.expr | None:
    """The expression that raised; None where its text is not to be had, or is none any more."""
    code = traceback.tb_frame.f_code
    line, last, start, end = next(islice(code.co_positions(), traceback.tb_lasti // 2, None))
    if line is None or last is None or start is None or end is None:
        return None
    lines = [text.encode() for text in linecache.getlines(code.co_filename)[line - 1 : last]]
    if not lines:
        return None
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    try:
        return ast.parse(b"".join(lines).decode().strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return None


def _value(node: ast.expr, frame: FrameType) -> Any:
    """What an expression of names and items stands for; UNKNOWN for any other one."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))):
            return -value
        case ast.Name(id=name):
            spaces = (frame.f_locals, frame.f_globals)
            return next((space[name] for space in spaces if type(space) is dict and name in space), UNKNOWN)
        case ast.Subscript(value=whole, slice=item):
            return _item(_value(whole, frame), _value(item, frame))
    return UNKNOWN


def _item(whole: Any, item: Any) -> Any:
    if type(whole) in (list, tuple) and type(item) in (int, bool):
        return whole[item]
    if type(whole) is dict and type(item) in PLAIN and PLAIN.issuperset(map(type, whole)):
        return whole.get(item, UNKNOWN)
    return UNKNOWN
