"""The `toolbench` protocol: thought, action and action input on lines of their own, as ToolBench writes them.

    Thought: why
    Action: cd
    Action Input: {"folder": "x"}

Every message calls something. `Finish` is no function of the environment but the way to end a turn:

    Thought: why
    Action: Finish
    Action Input: {"return_type": "give_answer", "final_answer": "text for the user"}

- `give_answer` with its `final_answer` is the answer. `give_up_and_restart` sends a tree search back to an earlier
  state (`Parsed.gave_up`). Where there is none it is the answer too, with the `final_answer` if there is one and else
  without words.
- One `Action:` line and its `Action Input:` may follow another; the calls run in that order. `Finish` stands alone.
- The thought may be empty, or missing with its line. A line of the thought that begins like one of the three labels
  ends it, so such a thought is malformed, and so is text anywhere else: after the input stands what a model makes up.
- The input is one JSON object, on as many lines as it likes.

Results come back as ToolBench's server gives them, one {"error": ..., "response": ...} a line, but in the user role:
many chat templates have no role "function".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from ..call import Call
from .base import FormatError, Malformed, Message, Parsed, Protocol
from .calls import bracket_runs, decode_call, decode_json

FINISH = "Finish"
"""What is called to answer."""

_LABEL = re.compile(r"^(Thought|Action Input|Action):", re.MULTILINE)
_ANSWER, _GIVE_UP = "give_answer", "give_up_and_restart"

_PROMPT = """\
You complete the user's requests by calling functions.

# Format
Every message you write is a thought, then one action or several, with nothing after them. The input of an action is a \
JSON object with the arguments. They run in the order written:
{calls}
To finish the current request, or when nothing can or should be called, the only action is Finish:
{answer}

# Rules
- The results of your actions come back in the next message, one JSON object a line, in the order of the actions. \
Read them, then go on calling or answer.
{rules}

# Functions, one a line
{functions}"""

_SHORT = """\
Call functions:
{calls}
When done:
{answer}
{functions}"""


class ToolBench(Protocol):
    """`Thought:`, `Action:` and `Action Input:`; the action `Finish` answers."""

    name = "toolbench"
    prompt, short_prompt = _PROMPT, _SHORT
    shape = (
        'Write "Thought: ...", then on lines of their own "Action: " with the name of a function and "Action Input: " '
        "with a JSON object, and nothing after it. To finish the request, the only action is Finish, with the input "
        '{"return_type": "give_answer", "final_answer": ...}.'
    )
    explanations = {
        FormatError.missing_action: "there is no action. To say something to the user, call Finish.",
        FormatError.both_actions: "Finish must be the only action of its message. "
        "Call functions first; finish once you have seen the results.",
        FormatError.multiple_blocks: "at most one Thought: line, at the beginning of the message.",
        FormatError.missing_tag: "every Action: line needs an Action Input: line after it, and the reverse.",
        FormatError.bad_json: "an Action Input is not valid JSON.",
        FormatError.wrong_shape: "an action must be the name of a function, and its input a JSON object.",
    }

    def results(self, texts: Sequence[str]) -> list[Message]:
        return [{"role": "user", "content": "\n".join(map(_response, texts))}]

    def render_calls(self, thought: str, calls: Sequence[Call]) -> str:
        for call in calls:
            if call.name == FINISH or call.name != call.name.strip() or not call.name or "\n" in call.name:
                raise ValueError(f"{call.name[:80]!r} cannot be written as the name of an action")
        return _message(thought, [(call.name, call.arguments) for call in calls])

    def render_answer(self, thought: str, text: str) -> str:
        return _message(thought, [(FINISH, {"return_type": _ANSWER, "final_answer": text})])

    def split_thought(self, text: str) -> tuple[str | None, str]:
        if not text.startswith("Thought:"):
            return None, text
        begin = len("Thought:")
        label = _LABEL.search(text, begin)
        end = len(text) if label is None else label.start()
        return text[begin:end].strip(), text[end:]

    def read(self, text: str) -> Parsed:
        calls = []
        for position, (name, written) in enumerate(_actions(text), start=1):
            if position > self.max_calls:
                raise Malformed(FormatError.too_many_calls, f"more than {self.max_calls} actions in one message")
            end = _end_of_value(written)
            if written[end:].strip():
                raise Malformed(FormatError.text_outside, "text after an Action Input")
            calls.append(decode_call({"name": name, "arguments": decode_json(written[:end])}, position))
        if all(call.name != FINISH for call in calls):
            return Parsed(calls=tuple(calls))
        if len(calls) > 1:
            raise Malformed(FormatError.both_actions)
        final = calls[0].arguments
        return Parsed(answer=_answer(final), gave_up=final["return_type"] == _GIVE_UP)

    def document(self, functions: Sequence[dict[str, Any]]) -> str:
        """Raises ValueError for a function that is called Finish: it could not be called."""
        if any(function["name"] == FINISH for function in functions):
            raise ValueError(
                f"a function is called {FINISH}, which is how the protocol {self.name!r} answers; take another protocol"
            )
        return super().document(functions)


def _message(thought: str, actions: Sequence[tuple[str, dict[str, Any]]]) -> str:
    if _LABEL.search(thought):
        raise ValueError(f"a line of a thought cannot begin like a label of the format: {thought[:80]!r}")
    lines = [f"Thought: {thought}".strip()]
    for name, arguments in actions:
        lines += [f"Action: {name}", f"Action Input: {json.dumps(arguments, ensure_ascii=False)}"]
    return "\n".join(lines)


def _actions(text: str) -> Iterator[tuple[str, str]]:
    """Name and input of each action, as they are written."""
    before, *parts = _LABEL.split(text)
    if not parts:
        raise Malformed(FormatError.missing_action)
    if before:
        raise Malformed(FormatError.text_outside, f"text before {parts[0]}:")
    name: str | None = None
    for label, content in zip(parts[::2], map(str.strip, parts[1::2]), strict=True):
        if label == "Thought":
            raise Malformed(FormatError.multiple_blocks, "Thought: after the beginning of the message")
        if label == "Action":
            if name is not None:
                raise Malformed(FormatError.missing_tag, "Action: follows Action:")
            if "\n" in content:
                raise Malformed(FormatError.text_outside, "text between Action: and Action Input:")
            name = content
        elif name is None:
            raise Malformed(FormatError.missing_tag, "Action Input: without Action: before it")
        else:
            yield name, content
            name = None
    if name is not None:
        raise Malformed(FormatError.missing_tag, "Action: without Action Input:")


def _end_of_value(text: str) -> int:
    """Where the object or list ends that `text` begins with; the end of the text where there is none, or no end."""
    depth = 0
    if text[:1] not in ("{", "["):
        return len(text)
    for first, run in bracket_runs(text):
        for position, bracket in enumerate(run, start=first):
            depth += 1 if bracket in "[{" else -1
            if depth == 0:
                return position + 1
    return len(text)


def _answer(arguments: dict[str, Any]) -> str:
    """The text that the input of Finish stands for."""
    kind = arguments.get("return_type")
    if kind not in (_ANSWER, _GIVE_UP):
        raise Malformed(FormatError.wrong_shape, f"return_type of Finish must be {_ANSWER} or {_GIVE_UP}")
    if surplus := arguments.keys() - {"return_type", "final_answer"}:
        raise Malformed(FormatError.wrong_shape, f"unexpected key {min(surplus)[:40]!r} in the input of Finish")
    text = arguments.get("final_answer", None if kind == _ANSWER else "")
    if not isinstance(text, str):
        raise Malformed(FormatError.wrong_shape, "final_answer of Finish must be a text")
    return text


def _response(text: str) -> str:
    """A result as ToolBench's server writes it. An object that holds an error and nothing else is that error."""
    value = None
    if text.startswith("{"):
        with suppress(ValueError, RecursionError):
            value = json.loads(text)
    if value is None:
        return json.dumps({"error": "", "response": text}, ensure_ascii=False)
    if value.keys() == {"error"}:
        return json.dumps({"error": value["error"], "response": ""}, ensure_ascii=False)
    return f'{{"error": "", "response": {text}}}'
