"""The `python_calls` protocol: BFCL's prompting format, a list of calls in Python syntax.

    [cd(folder='x'), ls()]

As in BFCL's evaluation, back-quotes and white space around the list do not count, its brackets may be missing, and a
message that is no call list ends the turn: plain text, nothing at all, and `[]`. Unlike there, a message that clearly
tries to call and cannot be read is malformed instead of an answer. It tries to call if
- it begins with `[name(`, or
- it begins with `name(` and goes on with a keyword or `)`, or ends with `)`, or
- `[name(` stands anywhere later: then there is text beside the calls.
A sentence that begins with `name()` or `name(x)` and goes on with a word or a sign is none: it only mentions it.

The list is read with `ast`; names and literals are taken from the tree and nothing is evaluated. Arguments are given by
name: BFCL's own decoder drops positional ones without a word, here they are malformed. There are no thoughts.
"""

from __future__ import annotations

import ast
import json
import keyword
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

from ..call import Call, CallError, make_call
from .base import MAX_DEPTH, FormatError, Malformed, Parsed, Protocol
from .calls import MAX_NAME_CHARS

MAX_SOURCE_CHARS = 20_000
"""Longest call list that is given to `ast`, whose cost per character is high. The longest gold call has 6,700."""

_LIST = re.compile(r"\[\s*+[A-Za-z_][\w.]*+\(")
_BARE = re.compile(r"[A-Za-z_][\w.]*+\((\s*+(?:\)|[A-Za-z_]\w*+\s*+=))?")
_SENTENCE = re.compile(r"[A-Za-z_][\w.]*+\([^()\"'=]*+\)[ \t]*+(?![\w.]*+\()[\w=<>+*/-]")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_PROMPT = """\
You complete the user's requests by calling functions.

# Format
To call functions, write only a list in the format \
[func_name1(param_name1=param_value1, param_name2=param_value2...), func_name2(params)], \
with Python literals as values and no other text in the message. They run in the order written:
{calls}
To finish the current request, or when nothing can or should be called, answer in plain text:
{answer}

# Rules
- The results of your calls come back in the next message, as a list in the order of the calls. \
Read them, then go on calling or answer.
{rules}

# Functions, one a line
{functions}"""


class PythonCalls(Protocol):
    """`[f(a=1), g()]` and nothing else, or an answer in plain text."""

    name = "python_calls"
    prompt = _PROMPT
    shape = (
        "To call functions, write only a list such as [f(a=1, b='x'), g()], with Python literals as values. "
        "To finish the request, answer in plain text without such a list."
    )
    explanations = {
        FormatError.text_outside: "there is text beside the list of calls.",
        FormatError.bad_syntax: "the message begins like a list of calls and is not valid Python.",
        FormatError.wrong_shape: "the message must be one list of calls whose arguments are literals given by name.",
    }

    def render_calls(self, thought: str, calls: Sequence[Call]) -> str:
        for call in calls:
            for name in call.name.split("."):
                if not _IDENTIFIER.fullmatch(name) or keyword.iskeyword(name):
                    raise ValueError(f"{name!r} cannot be written as a name in Python syntax")
            for name in call.arguments:
                if not name.isidentifier() or keyword.iskeyword(name) or unicodedata.normalize("NFKC", name) != name:
                    raise ValueError(f"{name!r} cannot be written as a name in Python syntax")
        return f"[{', '.join(map(str, calls))}]"

    def read(self, text: str) -> Parsed:
        source = text.strip("` \n\r\t")
        bare = None if _SENTENCE.match(source) else _BARE.match(source)
        if not _LIST.match(source) and not (bare and (bare[1] or source.endswith(")"))):
            if _LIST.search(source):
                raise Malformed(FormatError.text_outside)
            return Parsed(answer=text)
        if len(source) > MAX_SOURCE_CHARS:
            raise Malformed(FormatError.too_long, f"{len(source)} characters of calls, at most {MAX_SOURCE_CHARS}")
        items = _list_items(f"[{source}]" if bare else source)
        if len(items) > self.max_calls:
            raise Malformed(FormatError.too_many_calls, f"{len(items)} calls in one message, at most {self.max_calls}")
        return Parsed(calls=tuple(self._call(item, position) for position, item in enumerate(items, start=1)))

    def _call(self, node: ast.expr, position: int) -> Call:
        def wrong(detail: str) -> Malformed:
            return Malformed(FormatError.wrong_shape, f"call {position}: {detail}")

        name = dotted_name(node.func) if isinstance(node, ast.Call) else None
        if name is None or not isinstance(node, ast.Call):
            raise wrong("expected name(argument=value)")
        if len(name) > MAX_NAME_CHARS:
            raise wrong(f"the name is longer than {MAX_NAME_CHARS} characters")
        if node.args:
            raise wrong("give every argument by name, as in cd(folder='x')")
        arguments: dict[str, Any] = {}
        for argument in node.keywords:
            if argument.arg is None:
                raise wrong("** is not allowed")
            if argument.arg in arguments:
                raise wrong(f"argument {argument.arg[:40]} is given twice")
            try:
                arguments[argument.arg] = ast.literal_eval(argument.value)
            except (ValueError, TypeError, MemoryError, RecursionError):
                raise wrong(f"the value of {argument.arg[:40]} is not a Python literal") from None
        if _deeper(arguments, MAX_DEPTH):
            raise Malformed(FormatError.too_deep, f"call {position}: nested deeper than {MAX_DEPTH} levels")
        try:
            call = make_call(name, arguments)
            json.dumps(call.arguments, ensure_ascii=False, allow_nan=False).encode("utf-8")
        except CallError as fault:
            raise wrong(str(fault)) from None
        except ValueError:
            raise wrong("a number is infinite, or a text holds half of a surrogate pair") from None
        return call


def _list_items(source: str) -> list[ast.expr]:
    """The elements of the list that `source`, which begins with `[`, holds."""
    try:
        tree = ast.parse(source, mode="eval").body
    except (MemoryError, RecursionError):
        raise Malformed(FormatError.too_deep, "nested too deeply for Python") from None
    except (SyntaxError, ValueError) as fault:
        if _is_list(source[: source.rfind("]") + 1]):
            raise Malformed(FormatError.text_outside, "text after the list") from None
        detail = fault.msg if isinstance(fault, SyntaxError) else str(fault)
        kind = FormatError.too_deep if "too many nested" in detail else FormatError.bad_syntax
        raise Malformed(kind, detail[:200]) from None
    if not isinstance(tree, ast.List):
        raise Malformed(FormatError.wrong_shape, f"expected one list, got {type(tree).__name__}")
    return tree.elts


def _is_list(source: str) -> bool:
    try:
        return isinstance(ast.parse(source, mode="eval").body, ast.List)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False


def dotted_name(node: ast.expr) -> str | None:
    """`a.b` as text; None for anything but names and dots."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def _deeper(value: Any, levels: int) -> bool:
    """Whether containers in `value` are nested deeper than `levels`. Recursion ends there."""
    if not isinstance(value, dict | list | tuple):
        return False
    if levels == 0:
        return True
    return any(_deeper(item, levels - 1) for item in (value.values() if isinstance(value, dict) else value))
