"""The `think_xml` protocol: a thought in tags, then calls or an answer in tags, and nothing else.

    <think>why</think><tool_call>[{"name":"cd","arguments":{"folder":"x"}}]</tool_call>
    <think>why</think><answer>text for the user</answer>

The parser reads from the outside in (first `</think>`, last closing tag), and JSON decides where a call list ends. So a
tag inside a JSON string is text, as for `echo(content="<answer>")`, and a tag inside the thought is only a thought.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..call import Call
from .base import FormatError, Malformed, Parsed, Protocol
from .calls import decode_calls
from .docs import compact_json

_RULES = """\
You complete the user's requests by calling functions.

# Format
Every message you write is a thought followed by exactly one action, with nothing outside the tags.
To call functions, write a JSON list with one object per call. They run in the order written:
{calls}
To finish the current request, or when nothing can or should be called, answer the user:
{answer}

# Rules
- The results of your calls come back in the next message, as a list in the order of the calls. \
Read them, then go on calling or answer.
{rules}

# Functions, one a line
{functions}"""


class ThinkXml(Protocol):
    """`<think>` and then `<tool_call>` or `<answer>`."""

    name = "think_xml"
    prompt = _RULES
    shape = (
        "Write <think>...</think>, then exactly one of "
        '<tool_call>[{"name": ..., "arguments": {...}}]</tool_call> or <answer>...</answer>, and nothing else.'
    )
    explanations = {
        FormatError.missing_think: "the message must begin with one <think>...</think> block.",
        FormatError.missing_action: "after </think> there must be a complete <tool_call> or <answer> block.",
        FormatError.both_actions: "use either <tool_call> or <answer> in a message, not both. "
        "Call functions first; answer once you have seen the results.",
        FormatError.text_outside: "there is text outside the tags.",
        FormatError.bad_json: "the content of <tool_call> is not valid JSON.",
        FormatError.wrong_shape: 'each call must be an object with exactly "name" (a text) and '
        '"arguments" (an object).',
        FormatError.empty_calls: "the list of calls is empty. To call nothing, use <answer>.",
    }

    def render_calls(self, thought: str, calls: Sequence[Call]) -> str:
        items = [{"name": call.name, "arguments": call.arguments} for call in calls]
        return f"{_think(thought)}<tool_call>{compact_json(items)}</tool_call>"

    def render_answer(self, thought: str, text: str) -> str:
        if any(tag in text for tag in _TAGS):
            raise ValueError(f"an answer cannot contain a tag of the protocol: {text[:80]!r}")
        return f"{_think(thought)}<answer>{text}</answer>"

    def split_thought(self, text: str) -> tuple[str | None, str]:
        if not text.startswith("<think>"):
            raise Malformed(FormatError.text_outside if "<think>" in text else FormatError.missing_think)
        thought, closed, rest = text.removeprefix("<think>").partition("</think>")
        if not closed:
            raise Malformed(FormatError.missing_think, "<think> is not closed")
        if "<think>" in thought:
            raise Malformed(FormatError.multiple_blocks, "<think>")
        return thought.strip(), rest.strip()

    def read(self, text: str) -> Parsed:
        if text.startswith("<tool_call>"):
            body = _body(text, "tool_call", other="<answer>")
            try:
                return Parsed(calls=decode_calls(body))
            except Malformed as fault:
                if fault.kind is FormatError.bad_json and "</tool_call>" in body:
                    raise Malformed(_error_beside(body, other="<answer>")) from None
                raise
        if text.startswith("<answer>"):
            body = _body(text, "answer", other="<tool_call>")
            if any(tag in body for tag in _TAGS):
                raise Malformed(_error_beside(body, other="<tool_call>"))
            return Parsed(answer=body.strip())
        if "<tool_call>" in text and "<answer>" in text:
            raise Malformed(FormatError.both_actions)
        if "<think>" in text or "</think>" in text:
            raise Malformed(FormatError.multiple_blocks, "<think>")
        outside = "<tool_call>" in text or "<answer>" in text
        raise Malformed(FormatError.text_outside if outside else FormatError.missing_action)


_TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<answer>", "</answer>")


def _think(thought: str) -> str:
    if "<think>" in thought or "</think>" in thought:
        raise ValueError(f"a thought cannot contain a think tag: {thought[:80]!r}")
    return f"<think>{thought}</think>"


def _body(text: str, tag: str, *, other: str) -> str:
    """The content of the block with which `text` begins; `other` opens the other action."""
    body, closed, tail = text.removeprefix(f"<{tag}>").rpartition(f"</{tag}>")
    if not closed:
        kind = FormatError.both_actions if other in text else FormatError.missing_action
        raise Malformed(kind, f"<{tag}> is not closed")
    if tail.strip():
        raise Malformed(_error_beside(tail, other=other))
    return body


def _error_beside(text: str, *, other: str) -> FormatError:
    """What is wrong with a complete block that has `text` beside or inside it; `other` opens the other action."""
    if other in text:
        return FormatError.both_actions
    return FormatError.multiple_blocks if any(tag in text for tag in _TAGS) else FormatError.text_outside
