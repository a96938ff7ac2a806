"""The `hermes` protocol: what the chat templates of Qwen2.5 and Qwen3 write with `tools=`.

    <think>
    why
    </think>

    I will look.
    <tool_call>
    {"name": "cd", "arguments": {"folder": "x"}}
    </tool_call>
    <tool_call>
    {"name": "ls", "arguments": {}}
    </tool_call>

All of it stands in message contents, so `tools=` and the role "tool" are not used: any ChatML template then gives, byte
for byte, what Qwen's own templates give for `instructions()`, `tools()` and tool messages.

A message is, in this order, an optional thought, optional words to the user, and any number of `<tool_call>` blocks.
- Without a block the words are the answer that ends the turn, also when there are none, as in BFCL's evaluation.
- Words before the first block are spoken beside the calls: no user hears them. Words between or after blocks are
  malformed: the templates have no place for them, and that is where models write results that they have not seen.
- A block that does not parse, a tag without its partner, or a call without tags makes the whole message malformed:
  nothing in it runs, and it is never taken for an answer.
- The thought may lack `<think>`, because some templates open it in the generation prompt. Tags in a thought that the
  model opened itself, and tags inside a JSON string, are text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from ..call import Call
from .base import EXAMPLE_ANSWER, EXAMPLE_CALLS, RULES, FormatError, Malformed, Message, Parsed, Protocol
from .calls import decode_call, decode_json, holds_call
from .docs import openai_tool

_TAG = re.compile(r"</?(?:think|tool_call|tool_response)>")
_STRING_OR_TAG = re.compile(r'"(?:[^"\\]++|\\.)*+"?|(</?tool_call>)', re.DOTALL)
"""A string, which may have no end, or a tag of a block. Before Python 3.11.5 a possessive repeat of both, with all that
is between them, matches too little."""

_INSTRUCTIONS = """\
You complete the user's requests by calling functions.

# Rules
- A message may hold several calls, for example:
{calls}
They run in the order written, and their results come back in that order. Read them, then go on calling or answer.
- A message without a call is your answer to the current request, for example:
{answer}
{rules}"""

_TOOLS = """\
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{functions}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""
"""The templates' own text."""

_SHORT = """\
Call functions:
{calls}
When done: {answer}
<tools>
{functions}
</tools>"""


class Hermes(Protocol):
    """`<tool_call>` blocks with one JSON object each, or an answer in plain text."""

    name, gold_thinks = "hermes", False
    prompt, short_prompt = f"{_INSTRUCTIONS}\n\n{_TOOLS}", _SHORT
    shape = (
        'To call functions, write one <tool_call>{"name": ..., "arguments": {...}}</tool_call> block per call '
        "and nothing after the last. To finish the request, answer in plain text without tags."
    )
    explanations = {
        FormatError.multiple_blocks: "at most one <think>...</think> block, at the beginning of the message.",
        FormatError.missing_tag: "every <think> and <tool_call> needs its closing tag, every call both its tags.",
        FormatError.bad_json: "the content of a <tool_call> block is not valid JSON.",
        FormatError.wrong_shape: 'each block must hold one object with exactly "name" (a text) and '
        '"arguments" (an object).',
    }

    def examples(self) -> tuple[str, ...]:
        if self.docs == "signature":
            return self.render_calls("", [Call("f", {"x": 1})]), "text"
        return self.render_calls("", EXAMPLE_CALLS), EXAMPLE_ANSWER

    def instructions(self) -> str:
        """The system message to give to a chat template beside `tools=`."""
        calls, answer = self.examples()
        return _INSTRUCTIONS.format(calls=calls, answer=answer, rules=RULES)

    def tools(self, functions: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """`functions` as `tools=` takes them."""
        return [openai_tool(function) for function in functions]

    def announce(self, words: str, revealed: Sequence[dict[str, Any]]) -> str:
        return f"<tools>\n{self.document(revealed)}\n</tools>\n{words}"

    def results(self, texts: Sequence[str]) -> list[Message]:
        return [{"role": "user", "content": "\n".join(map(_response, texts))}]

    def feedback(self, parsed: Parsed) -> list[Message]:
        """As a tool response: Qwen3's template drops earlier thoughts when a user message is anything else."""
        return [{"role": "user", "content": _response(self.explain(parsed))}]

    def render_calls(self, thought: str, calls: Sequence[Call]) -> str:
        blocks = (
            f"<tool_call>\n{_spaced_json({'name': call.name, 'arguments': call.arguments})}\n</tool_call>"
            for call in calls
        )
        return _think(thought) + "\n".join(blocks)

    def render_answer(self, thought: str, text: str) -> str:
        return _think(thought) + super().render_answer("", text)

    def split_thought(self, text: str) -> tuple[str | None, str]:
        opened = text.startswith("<think>")
        end = text.find("</think>")
        if opened and end < 0:
            raise Malformed(FormatError.missing_tag, "<think> is not closed")
        if not opened and (end < 0 or 0 <= text.find("<tool_call>") < end):
            return None, text
        thought, rest = text[:end].removeprefix("<think>"), text[end + len("</think>") :]
        if "<think>" in thought:
            if opened:
                raise Malformed(FormatError.multiple_blocks, "<think> inside a thought")
            raise Malformed(FormatError.text_outside, "text before <think>")
        return thought.strip(), rest.strip()

    def read(self, text: str) -> Parsed:
        bodies = list(_blocks(text, self.max_calls))
        if not bodies:
            if holds_call(text):
                raise Malformed(FormatError.missing_tag, "a call stands outside <tool_call> tags")
            return Parsed(answer=text)
        calls = tuple(decode_call(decode_json(body), position) for position, body in enumerate(bodies, start=1))
        return Parsed(calls=calls, beside=text.partition("<tool_call>")[0].strip())

    def document(self, functions: Sequence[dict[str, Any]]) -> str:
        if self.docs == "signature":
            return super().document(functions)
        return "\n".join(map(_spaced_json, self.tools(functions)))


def _spaced_json(value: Any) -> str:
    """As the `tojson` of chat templates writes it."""
    return json.dumps(value, ensure_ascii=False)


def _response(text: str) -> str:
    return f"<tool_response>\n{text}\n</tool_response>"


def _think(thought: str) -> str:
    if not thought:
        return ""
    if "<think>" in thought or "</think>" in thought:
        raise ValueError(f"a thought cannot contain a think tag: {thought[:80]!r}")
    return f"<think>\n{thought}\n</think>\n\n"


def _blocks(text: str, max_calls: int) -> Iterator[str]:
    """The contents of the `<tool_call>` blocks. Checks everything that stands outside them."""
    tag, position, found = _TAG.search(text), 0, 0
    while tag is not None:
        if found and text[position : tag.start()].strip():
            raise Malformed(FormatError.text_outside, "text between two <tool_call> blocks")
        if tag[0] == "</tool_call>":
            raise Malformed(FormatError.missing_tag, "</tool_call> without <tool_call>")
        if tag[0] in ("<think>", "</think>"):
            raise Malformed(FormatError.multiple_blocks, f"{tag[0]} after the beginning of the message")
        if tag[0] != "<tool_call>":
            raise Malformed(FormatError.text_outside, "the environment writes <tool_response>, not you")
        found += 1
        if found > max_calls:
            raise Malformed(FormatError.too_many_calls, f"more than {max_calls} calls in one message")
        end = _end_of_block(text, tag.end())
        yield text[tag.end() : end].strip()
        position = end + len("</tool_call>")
        tag = _TAG.search(text, position)
    if found and text[position:].strip():
        raise Malformed(FormatError.text_outside, "text after the last <tool_call> block")


def _end_of_block(text: str, start: int) -> int:
    """Where the `</tool_call>` of the block begins whose content begins at `start`; one in a JSON string is text."""
    match = next((found for found in _STRING_OR_TAG.finditer(text, start) if found[1]), None)
    if match and match[1] == "</tool_call>":
        return match.start(1)
    if match:
        raise Malformed(FormatError.missing_tag, "<tool_call> is not closed before the next one")
    if "</tool_call>" in text[start:]:
        raise Malformed(FormatError.bad_json, "a string is not closed")
    raise Malformed(FormatError.missing_tag, "<tool_call> is not closed")
