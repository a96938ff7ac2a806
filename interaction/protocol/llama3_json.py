"""The `llama3_json` protocol: JSON calls as Llama 3.1 writes them and vLLM's parser of that name reads them.

    {"name": "cd", "parameters": {"folder": "x"}}; {"name": "ls", "parameters": {}}

Several calls are separated by `;` or white space, or stand in one JSON list. As in vLLM, the key of the arguments may
be "parameters" or "arguments", and `<|python_tag|>` may come first. `"type": "function"` is allowed as well, because
some Llama models write it. Two things are stricter than vLLM, which takes what it can and drops the rest:
- A message that begins with `{`, `[{` or `[]` is an attempt to call and parses as a whole or is malformed.
- Text beside calls is malformed, because Llama's template has no place for it.
Every other message is the answer that ends the turn, the empty one included. There are no thoughts.

Results come back as one {"output": ...} object a line, as vLLM's template for Llama writes tool results, but in the
user role: Llama's own role for them, "ipython", is one that verl's token builder does not take.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from ..call import Call
from .base import FormatError, Malformed, Message, Parsed, Protocol
from .calls import bracket_runs, decode_call, decode_json, holds_call
from .docs import compact_json, openai_tool

_ATTEMPT = re.compile(r"\{|\[\s*+[{\]]")

_PROMPT = """\
You complete the user's requests by calling functions.

# Format
To call functions, respond with JSON only: one object per call in the format \
{{"name": function name, "parameters": dictionary of argument name and its value}}, separated by "; ". \
Do not use variables. Calls run in the order written:
{calls}
To finish the current request, or when nothing can or should be called, respond with plain text only:
{answer}

# Rules
- The results of your calls come back in the next message, one JSON object a line, in the order of the calls. \
Read them, then go on calling or answer.
{rules}

# Functions, one a line
{functions}"""


class Llama3Json(Protocol):
    """JSON objects with "name" and "parameters" and nothing else, or an answer in plain text."""

    name = "llama3_json"
    prompt = _PROMPT
    shape = (
        'To call functions, write only {"name": ..., "parameters": {...}} objects, separated by "; ". '
        "To finish the request, answer in plain text without such objects."
    )
    explanations = {
        FormatError.text_outside: "there is text beside the calls.",
        FormatError.bad_json: "the message begins like a call and is not valid JSON.",
        FormatError.wrong_shape: 'each call must be an object with exactly "name" (a text) and '
        '"parameters" (an object).',
        FormatError.empty_calls: "the list of calls is empty. To call nothing, answer in plain text.",
    }

    def results(self, texts: Sequence[str]) -> list[Message]:
        lines = (json.dumps({"output": text}, ensure_ascii=False) for text in texts)
        return [{"role": "user", "content": "\n".join(lines)}]

    def render_calls(self, thought: str, calls: Sequence[Call]) -> str:
        items = ({"name": call.name, "parameters": call.arguments} for call in calls)
        return "; ".join(json.dumps(item, ensure_ascii=False) for item in items)

    def read(self, text: str) -> Parsed:
        text = text.removeprefix("<|python_tag|>").strip()
        if not _ATTEMPT.match(text):
            if holds_call(text):
                raise Malformed(FormatError.text_outside)
            return Parsed(answer=text)
        values = [decode_json(piece) for piece in islice(_pieces(text), self.max_calls + 1)]
        items = [*values[0], *values[1:]] if isinstance(values[0], list) else values
        if not items:
            raise Malformed(FormatError.empty_calls)
        if len(items) > self.max_calls:
            raise Malformed(FormatError.too_many_calls, f"more than {self.max_calls} calls in one message")
        return Parsed(calls=tuple(_call(item, position) for position, item in enumerate(items, start=1)))

    def document(self, functions: Sequence[dict[str, Any]]) -> str:
        if self.docs == "signature":
            return super().document(functions)
        return "\n".join(compact_json(openai_tool(function)) for function in functions)


def _call(item: Any, position: int) -> Call:
    if isinstance(item, dict) and item.get("type") == "function":
        item = {key: value for key, value in item.items() if key != "type"}
    return decode_call(item, position, arguments_keys=("parameters", "arguments"))


def _pieces(text: str) -> Iterator[str]:
    """The JSON values that stand side by side in `text`, which begins with a bracket. One pass."""
    depth = start = end = 0
    for first, run in bracket_runs(text):
        for position, bracket in enumerate(run, start=first):
            if bracket in "[{":
                if depth == 0:
                    if text[end:position].strip() not in ("", ";"):
                        raise Malformed(FormatError.text_outside)
                    start = position
                depth += 1
                continue
            depth -= 1
            if depth < 0:
                raise Malformed(FormatError.bad_json, f"{bracket} without its partner")
            if depth == 0:
                end = position + 1
                yield text[start:end]
    if depth:
        raise Malformed(FormatError.bad_json, "a bracket is not closed")
    if text[end:].strip() not in ("", ";"):
        raise Malformed(FormatError.text_outside)
