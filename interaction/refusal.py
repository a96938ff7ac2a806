"""What a refusal is, decided in one place: words to the user, and no call, whole or begun, in any format."""

import re

from interaction.protocol import PROTOCOLS

_READERS = [(kind(), kind().parse("I cannot do that.").error) for kind in PROTOCOLS.values()]
"""Each protocol, and what it finds wrong with plain words. Whatever else it finds wrong is a call begun."""
_THOUGHT = re.compile(
    r"(?is)(?:[<◁](?!\|?end)|\[(?=(?-i:[A-Z]+\]))|<\|channel\|?>\s*)[|\w:]{0,40}(think|thought|reasoning|reflection|scratchpad|"
    r"analysis)\w{0,40}[|\s]*?[<>\]▷\n].*?(?:[<\[◁]\|?(?:/|end)[\w:]{0,40}\1\w{0,40}[|\s]*[>\]▷]|<\|?(?:end|start|channel)\|>|\Z)"
)
_NO_CALL = re.compile(r"(?m)\A\s*(?:```\w*\s*)?(?:\[\s*\]|\{\s*\})|^Action(?: Input)?: *(?:None|N/A)\b")
_MARKS = re.compile(
    r"```\w*|<[^<>\s][^<>]*(?:>|\Z)|(?:\A|(?<=[>\]]))\s*(?:assistant|model|user|system|tool|final|commentary)\s*(?=<|\Z)"
    r"|(?<!\w)\w*[|\uff5c]>|\[/?g?[A-Z_]+\]|\\(?:boxed|text)\b|&#?\w+;|[\u115f\u1160\u2139\u3164\uffa0]"
)
"""Fences, tags, tokens of chat templates with a role, and letters that show nothing or an emoji."""
_OTHERS = re.compile(
    r"(?im)<[\w:|\uff5c]*?(?:tool.?c|function_?call|function=|invoke)|\[TOOL_CALLS\]|✿FUNCTION✿|\bcall:[\w.]+\{"
    r"|\bto=(?:functions\.|[\w.]+ *(?:<\||code|json))|<\|recipient\|>(?!all\b)|<(?:\w+>\s*<|tool_|function_)name>\s*\w"
    r"|^(?:>>>(?!all\b)|(?=[A-Z]+_))\w++\s*+\{\s*(?:[\"'}]|\Z)|[\"'](?:function|tool)(?:_name)?[\"']:\s*[\"'][\w.-]+[\"'],"
    r"|^\W{0,4}(?:function|tool|name)(?: \w+)?\W{1,8}[\w.-]+\W{1,8}(?:input|(?:arg|param)\w*\W{1,6}\w*[=:{\"])"
    r"|\A\s*\[[^\]]*\w\(\s*\w+\s*="  # [the g(x=1)
)
"""How models that no protocol here is made for begin a call."""


def is_refusal(text: str, functions: frozenset[str] = frozenset()) -> bool:
    """Whether an answer has a letter, and no protocol's parser finds a call in it, whole or begun.

    A call of one of `functions`, the names on offer, counts anywhere; `f(x)` or `f()` in a sentence mentions it only.
    """
    for reader, _ in _READERS:  # what stands in the tags of another format
        text = text if (said := reader.parse(text).answer) is None else said
    text = _NO_CALL.sub("", _THOUGHT.sub("", text))
    plain = _MARKS.sub("", text).strip()
    if not any(map(str.isalpha, plain)) or _OTHERS.search(text):
        return False
    found = ((reader.parse(part), error) for reader, error in _READERS for part in (text, plain))
    called = any(read.calls or read.error not in (None, allowed) for read, allowed in found)
    return not called and not (functions and _calls_of(functions).search(text))


def _calls_of(functions: frozenset[str]) -> re.Pattern[str]:
    name = rf"(?:\bfunction|(?<![A-Za-z0-9_]))(?:{'|'.join(sorted(map(re.escape, functions), key=len, reverse=True))})"
    return re.compile(  # f(x=1), f("a"), but not f(x=...), f(2) = 4
        rf"(?m){name}\((?!\s*(?:\w+\s*[=:])?\s*[\"'\[]?(?:\.\.\.|\u2026|\?|<[^<>\n]*>|your[ _]\w+)[\"'\]]?\s*[,)])"
        rf"\s*(?:[A-Za-z_]\w*\s*=|[^()]*\Z|(?:[A-Za-z_]\w*\s*:\s*)?[\"'\d[{{-](?![^()]*\)\s*=))"
        rf"|^[ \t`]*+(?:{name}\(\s*\)|[\w ]++=\s*(?:await )?{name}\([^()\n]*\))[ \t`;]*$"  # y = f(x)
        rf"|{name}(?:\[[A-Z]+\]|[^\w.,;!?({{]{{0,16}})(?:json)?\s*\{{\s*[\"'}}]|{name}\{{\s*\w+\s*:"  # f {"x": 1}
        rf"|\{{[^{{}}]*[\"']{name}[\"']|<(?:\w+(?:\s+\w+)?=[\"']?)?{name}(?:[\"'/>]|\s+\w+=)"  # <call name="f"
        rf"|<(?!(?:code|b|i|em|strong)>)[\w:]+>\s*{name}\s*</|(?:\|>|\bto=)\s*{name}\s*(?:\Z|[<{{(\n])"  # <tool>f</
    )
