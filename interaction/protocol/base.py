"""The protocol interface: one object that decides how a model and the environment write to each other.

Prompt, parser, feedback, announcements and results belong together. A prompt that asks for one tag and a parser that
wants another would make every rollout malformed, and no training curve would say so. A protocol holds no state.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, ClassVar

from ..call import Call
from .docs import DocStyle, compact_json, render_docs

MAX_DEPTH = 16
MAX_CALLS = 40

Message = dict[str, str]
"""A chat message, {"role": ..., "content": ...}."""

RULES = """\
- Keep calling until the request is fulfilled as well as you can; your answer ends it and the next request follows.
- Use only the functions listed here or announced later, with the argument names of their documentation. \
If a function or the value of a required argument is missing, do not guess: say in your answer what is missing.
- Do nothing that was not asked for."""
"""How to behave, whatever the format; part of every full system prompt."""

SHORT = """\
Call functions: {calls}
When done: {answer}
{functions}"""
"""The system prompt with `docs=signature`, unless a protocol has its own."""

EXAMPLE_CALLS = (Call("get_weather", {"city": "Oslo", "days": 2}), Call("list_alarms", {}))
EXAMPLE_ANSWER = "It will rain in Oslo, and your alarm is set for 7:00."
"""What examples in prompts show."""

REVEAL_SENTENCE = "I have updated some more functions you can choose from. What about now?"
"""What BFCL's user says in the turn that reveals withheld functions."""


class FormatError(StrEnum):
    """Why an assistant message is malformed. The value is what records, logs and feedback show."""

    missing_think = "missing_think"
    multiple_blocks = "multiple_blocks"
    missing_action = "missing_action"
    both_actions = "both_actions"
    text_outside = "text_outside"
    missing_tag = "missing_tag"
    """A tag without its partner, or a call without the tags that make it one."""
    bad_json = "bad_json"
    bad_syntax = "bad_syntax"
    """`bad_json` of protocols that write calls in Python syntax."""
    wrong_shape = "wrong_shape"
    empty_calls = "empty_calls"
    too_many_calls = "too_many_calls"
    too_long = "too_long"
    too_deep = "too_deep"
    truncated = "truncated"
    """Cut by the token budget. Set by the conversation, which is told so; a parser cannot know."""


EXPLANATIONS = {
    FormatError.missing_think: "the thought is missing.",
    FormatError.multiple_blocks: "a tag appears more than once; use one block of each kind only.",
    FormatError.missing_action: "there is neither a complete call nor a complete answer.",
    FormatError.both_actions: "call functions or answer, not both in one message. "
    "Call functions first; answer once you have seen the results.",
    FormatError.text_outside: "there is text where none may stand.",
    FormatError.missing_tag: "a tag is missing.",
    FormatError.bad_json: "a call is not valid JSON.",
    FormatError.bad_syntax: "the calls are not valid Python.",
    FormatError.wrong_shape: "a call does not have the form it must have.",
    FormatError.empty_calls: "the list of calls is empty. To call nothing, answer.",
    FormatError.too_many_calls: "too many calls in one message; spread them over several messages.",
    FormatError.too_long: "the message is too long.",
    FormatError.too_deep: "the arguments are nested too deeply.",
    FormatError.truncated: "the message was cut off because it ran out of tokens.",
}
"""What feedback says was wrong. A protocol's own `explanations` come first."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """What one assistant message says: calls, or an answer, or why it is neither."""

    thought: str | None = None
    calls: tuple[Call, ...] = ()
    """Calls in the order written; empty for an answer or an error."""
    answer: str | None = None
    """Text of the answer, possibly empty; None unless the message is an answer."""
    error: FormatError | None = None
    detail: str = ""
    """For an error, what exactly was found, e.g. the JSON decoder's complaint. May be empty."""
    beside: str = ""
    """Words to the user in a message with calls, where the format has a place for them."""
    gave_up: bool = False
    """Whether the answer says that this way leads nowhere, in a format that has words for it."""

    @property
    def well_formed(self) -> bool:
        return self.error is None


class Malformed(ValueError):
    """A message that is neither calls nor an answer. Carries the typed reason beside the text."""

    def __init__(self, kind: FormatError, detail: str = "") -> None:
        super().__init__(detail)
        self.kind = kind


class Protocol(ABC):
    """How one family of models writes thoughts, calls and answers.

    `docs` chooses how function documentation is written: "json" for real models, "signature" for models so
    small that the prompt is most of their context; with "signature" the rest of the prompt is short as well.
    """

    name: ClassVar[str]
    prompt: ClassVar[str]
    """The system prompt, with {calls}, {answer}, {rules} and {functions}."""
    short_prompt: ClassVar[str] = SHORT
    """The same for signatures."""
    shape: ClassVar[str]
    """What a message must look like, in a sentence or two; every feedback ends with it."""
    explanations: ClassVar[Mapping[FormatError, str]] = {}
    """What was wrong, in words of this format; EXPLANATIONS has the rest."""

    gold_thinks: ClassVar[bool] = True
    """Whether gold writes a thought, of the functions' names: not where models do without."""

    max_chars: ClassVar[int] = 200_000
    """Longer messages are malformed without being looked at."""
    max_calls: ClassVar[int] = MAX_CALLS
    """Of one message."""

    def __init__(self, *, docs: DocStyle = "json") -> None:
        self.docs: DocStyle = docs

    # What the model reads.

    def system_prompt(self, functions: Sequence[dict[str, Any]]) -> str:
        """Rules of the format, own examples, and the documentation of `functions`."""
        template = self.short_prompt if self.docs == "signature" else self.prompt
        calls, answer = self.examples()
        return template.format(calls=calls, answer=answer, rules=RULES, functions=self.document(functions))

    def examples(self) -> tuple[str, ...]:
        """The assistant messages that `system_prompt` shows, each verbatim. Every one of them parses."""
        if self.docs == "signature":
            return self.render_calls("why", [Call("f", {"x": 1})]), self.render_answer("why", "text")
        calls = self.render_calls("I need the forecast and the alarms.", EXAMPLE_CALLS)
        return calls, self.render_answer("Everything is done.", EXAMPLE_ANSWER)

    def document(self, functions: Sequence[dict[str, Any]]) -> str:
        """The documentation of functions."""
        return render_docs(functions, self.docs)

    def opening(self, functions: Sequence[dict[str, Any]], user: str, policy: str = "") -> list[Message]:
        """The first messages of an episode; `policy` are the rules of the environment's domain, if it has any."""
        system = self.system_prompt(functions)
        system = f"{policy}\n\n{system}" if policy else system
        return [{"role": "system", "content": system}, {"role": "user", "content": user}]

    def user_turn(self, user: str, revealed: Sequence[dict[str, Any]] = ()) -> list[Message]:
        """The messages that begin a later user turn; `revealed` are the documents of newly shown functions.

        BFCL's user says nothing but REVEAL_SENTENCE in a turn that reveals functions, so its text is empty there.
        """
        words = user or REVEAL_SENTENCE
        return [{"role": "user", "content": self.announce(words, revealed) if revealed else words}]

    def announce(self, words: str, revealed: Sequence[dict[str, Any]]) -> str:
        """The text of a turn that reveals functions: their documentation, then the user's words."""
        return f"{self.document(revealed)}\n{words}"

    def results(self, texts: Sequence[str]) -> list[Message]:
        """The messages that bring the results of one message's calls, in the order of the calls.

        In the user role, so that any chat template works, also one without a tool role.
        """
        return [{"role": "user", "content": f"Results: [{','.join(map(_result, texts))}]"}]

    def feedback(self, parsed: Parsed) -> list[Message]:
        """The messages that tell the model what is wrong with its format and what to write instead."""
        return [{"role": "user", "content": self.explain(parsed)}]

    def explain(self, parsed: Parsed) -> str:
        """The text of the feedback: what was wrong, what exactly was found, and the shape to write."""
        if parsed.error is None:
            raise ValueError("feedback is for malformed messages; this one is well-formed")
        explanation = self.explanations.get(parsed.error) or EXPLANATIONS[parsed.error]
        detail = f" ({parsed.detail})" if parsed.detail else ""
        return f"Format error: {explanation}{detail}\n{self.shape}"

    # What the model writes.

    def parse(self, text: str) -> Parsed:
        """Read one assistant message. Never raises, never evaluates, and is bounded in size and depth."""
        if len(text) > self.max_chars:
            return Parsed(error=FormatError.too_long, detail=f"{len(text)} characters, at most {self.max_chars}")
        thought = None
        try:
            thought, rest = self.split_thought(text.strip())
            return replace(self.read(rest), thought=thought)
        except Malformed as fault:
            return Parsed(thought, error=fault.kind, detail=str(fault))

    def split_thought(self, text: str) -> tuple[str | None, str]:
        """The thought, None if there is none, and what follows it. May raise Malformed, nothing else."""
        return None, text

    @abstractmethod
    def read(self, text: str) -> Parsed:
        """`parse` for what follows the thought, without white space around it. May raise Malformed, nothing else."""

    @abstractmethod
    def render_calls(self, thought: str, calls: Sequence[Call]) -> str:
        """The message that makes these calls; `parse` gives them back. For gold conversations and examples.

        A format without a place for thoughts leaves them out. Raises ValueError for what it cannot write.
        """

    def render_answer(self, thought: str, text: str) -> str:
        """The message that ends a user turn with `text`; `parse` gives it back. Raises ValueError as above.

        Here `text` itself, for formats without thoughts in which a message without calls is the answer.
        """
        if self.parse(text).answer != text:
            raise ValueError(f"this text would not be read as an answer: {text[:80]!r}")
        return text


def _result(text: str) -> str:
    """One element of the list: BFCL's own JSON verbatim (escaping it again costs tokens), other text as a string."""
    if text.startswith("{"):
        with suppress(ValueError, RecursionError):
            json.loads(text)
            return text
    return compact_json(text)
