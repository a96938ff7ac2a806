"""What code of the user's raised, in one line: the exception, the line of the user's file, and the keys that there are.

Python's own message for a misspelt key is the key alone, and the traceback it would stand in is the whole of another
program's. Nothing of the user's is run to find more: of the expression that failed only names and items of plain dicts
and lists are looked up again, as the failed frame still holds them.
"""

import ast
import linecache
from collections.abc import Mapping
from difflib import SequenceMatcher
from itertools import islice
from pathlib import Path
from traceback import walk_tb
from types import FrameType, TracebackType
from typing import Any

from interaction.words import LONGEST, line_of
from recipe.typed import shown

MOST_KEYS = 16
"""Keys that a message names, the nearest to the wrong one first."""


def told(error: BaseException, file: str | None) -> str:
    """The same, with the last line of `file` that led there, and the keys of a dict that lacks the one asked for.

    Args:
        file: as Python names the code's file; None where that is not known.
    """
    try:
        frames = list(walk_tb(error.__traceback__))
        lines = [line for frame, line in frames if frame.f_code.co_filename == file]
        place = f" at {Path(file).name}:{lines[-1]}" if file is not None and lines else ""
        return line_of(error) + place + _keys(error)
    except Exception:  # a mapping of the user's may raise whatever it likes
        return line_of(error)


def file_of(function: Any) -> str | None:
    """The file of a function's code, as Python names it; None if it has none."""
    code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
    return None if code is None else code.co_filename


def _keys(error: BaseException) -> str:
    if isinstance(error, AttributeError) and isinstance(error.obj, Mapping):
        if error.name in error.obj:
            return f"; it is a dict: write [{error.name!r}]"
        return _listed(str(error.name), error.obj, "that dict")
    if not isinstance(error, KeyError) or len(error.args) != 1 or error.__traceback__ is None:
        return ""
    last = _last(error.__traceback__)
    node = _expression(last)
    if not isinstance(node, ast.Subscript):
        return ""
    found = _value(node.value, last.tb_frame)
    if not isinstance(found, Mapping) or error.args[0] in found:
        return ""
    return _listed(str(error.args[0]), found, shown(ast.unparse(node.value), quote=False))


def _listed(key: str, found: Mapping[Any, Any], name: str) -> str:
    if not found:
        return f"; {name} is empty"
    known = sorted(found, key=lambda one: -SequenceMatcher(None, key[:LONGEST], str(one)[:LONGEST]).ratio())
    more = f" and {len(known) - MOST_KEYS} more" if len(known) > MOST_KEYS else ""
    return f"; {name} has {', '.join(shown(one, quote=False) for one in known[:MOST_KEYS])}{more}"


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
    """What an expression of names and items stands for; None for any other one."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Subscript):
        whole, item = _value(node.value, frame), _value(node.slice, frame)
        return whole[item] if type(whole) in (dict, list, tuple) else None
    return None
