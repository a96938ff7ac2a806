"""What a refusal is, decided in one place: words to the user, and no call, whole or begun, in any format."""

import re
from functools import lru_cache

from interaction.protocol import PROTOCOLS

_READERS = [(kind(), kind().parse("I cannot do that.").error) for kind in PROTOCOLS.values()]
"""Each protocol, and what it finds wrong with plain words. Whatever else it finds wrong is a call begun."""
_THOUGHT = re.compile(r"<(think|thinking|thought|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL)
_MARKS = re.compile(
    r"```\w*|<[^<>\s][^<>]*(?:>|\Z)|(?<!\w)\w*[|\uff5c]>|\[/?[A-Z_]+\]|[\u115f\u1160\u2139\u3164\uffa0]"
)
"""Fences, tags, tokens of chat templates, and letters that show nothing or an emoji."""
_OTHERS = re.compile(r"<[\w:|\uff5c]*?(?:tool.?c|function_?call|function=|invoke)|\[TOOL_CALLS\]|to=functions\.")
"""How models that no protocol here is made for begin a call."""


def is_refusal(text: str, functions: frozenset[str] = frozenset()) -> bool:
    """Whether an answer has a letter, and no protocol's parser finds a call in it, whole or begun.

    A call of one of `functions`, the names on offer, counts anywhere; `f(x)` or `f()` in a sentence mentions it only.
    """
    for reader, _ in _READERS:  # what stands in the tags of another format
        text = text if (said := reader.parse(text).answer) is None else said
    text = _THOUGHT.sub("", text)
    plain = _MARKS.sub("", text).strip()
    if not any(map(str.isalpha, plain)) or _OTHERS.search(text):
        return False
    for found, allowed in ((reader.parse(part), error) for reader, error in _READERS for part in (text, plain)):
        if found.calls or found.error not in (None, allowed):
            return False
    return not functions or _calls_of(functions).search(text) is None


@lru_cache(256)
def _calls_of(functions: frozenset[str]) -> re.Pattern[str]:
    name = rf"(?:\bfunction|(?<![A-Za-z0-9_]))(?:{'|'.join(sorted(map(re.escape, functions), key=len, reverse=True))})"
    forms = (
        rf"{name}\(\s*(?:[A-Za-z_]\w*\s*=(?!\s*(?:\.\.\.|\u2026|<))|[^()]*\Z)",  # f(x=1), but not f(x=...)
        rf"{name}\(\s*(?:[A-Za-z_]\w*\s*:\s*)?[\"'\d[{{-](?![^()]*\)\s*=)",  # f("a"), f(x: 1), but not f(2) = 4
        rf"^[ \t`]*{name}\(\s*\)[ \t`;]*$",
        rf"{name}[^\w.,;!?({{]{{0,16}}(?:json)?\s*\{{\s*[\"'}}]",  # f {"x": 1}
        rf"\{{[^{{}}]*[\"']{name}[\"']",  # {"tool": "f"
        rf"<(?:\w+(?:\s+\w+)?=[\"']?)?{name}(?:[\"'/>]|\s+\w+=)",  # <call name="f"
    )
    return re.compile("|".join(forms), re.MULTILINE)
