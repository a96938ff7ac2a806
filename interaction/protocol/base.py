"""The protocol interface: one object that decides how a model and the environment write to each other.

System prompt, parser, feedback texts, announcements and result messages belong to one object because a
model is punished for every disagreement between them: a prompt that asks for one tag and a parser that
wants another makes every rollout malformed, and nothing in the training curves says so.

A protocol holds no state about an episode. It is safe to share between conversations and threads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from bfcl_env import Call

from .docs import DocStyle, render_docs

Message = dict[str, str]
"""A chat message, {"role": ..., "content": ...}."""

REVEAL_SENTENCE = "I have updated some more functions you can choose from. What about now?"
"""What BFCL's user says in the turn that reveals withheld functions."""


class FormatError(StrEnum):
    """Why an assistant message is malformed. The value is what records, logs and feedback show."""

    missing_think = "missing_think"
    multiple_blocks = "multiple_blocks"
    missing_action = "missing_action"
    both_actions = "both_actions"
    text_outside = "text_outside"
    bad_json = "bad_json"
    wrong_shape = "wrong_shape"
    empty_calls = "empty_calls"
    too_many_calls = "too_many_calls"
    too_long = "too_long"
    too_deep = "too_deep"
    truncated = "truncated"
    """Cut by the token budget. Set by the conversation, which is told so; a parser cannot know."""


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

    @property
    def well_formed(self) -> bool:
        return self.error is None


class Protocol(ABC):
    """How one family of models writes thoughts, calls and answers.

    `docs` chooses how function documentation is written: "json" for real models, "signature" for models so
    small that the prompt is most of their context; with "signature" the rest of the prompt is short as well.
    """

    name: ClassVar[str]

    def __init__(self, *, docs: DocStyle = "json") -> None:
        self.docs: DocStyle = docs

    # What the model reads.

    @abstractmethod
    def system_prompt(self, functions: Sequence[dict[str, Any]]) -> str:
        """Rules of the format, own examples, and the documentation of `functions`."""

    @abstractmethod
    def examples(self) -> tuple[str, ...]:
        """The assistant messages that `system_prompt` shows, each verbatim. Every one of them parses."""

    def opening(self, functions: Sequence[dict[str, Any]], user: str) -> list[Message]:
        """The first messages of an episode."""
        return [{"role": "system", "content": self.system_prompt(functions)}, {"role": "user", "content": user}]

    def user_turn(self, user: str, revealed: Sequence[dict[str, Any]] = ()) -> list[Message]:
        """The messages that begin a later user turn; `revealed` are the documents of newly shown functions.

        BFCL's user says nothing but REVEAL_SENTENCE in a turn that reveals functions, so its text is empty there.
        """
        words = user or REVEAL_SENTENCE
        return [{"role": "user", "content": self.announce(words, revealed) if revealed else words}]

    def announce(self, words: str, revealed: Sequence[dict[str, Any]]) -> str:
        """The text of a turn that reveals functions: their documentation, then the user's words."""
        return f"{render_docs(revealed, self.docs)}\n{words}"

    @abstractmethod
    def results(self, texts: Sequence[str]) -> list[Message]:
        """The messages that bring the results of one message's calls, in the order of the calls."""

    @abstractmethod
    def feedback(self, parsed: Parsed) -> list[Message]:
        """The messages that tell the model what is wrong with its format and what to write instead."""

    # What the model writes.

    @abstractmethod
    def parse(self, text: str) -> Parsed:
        """Read one assistant message. Never raises, never evaluates, and is bounded in size and depth."""

    @abstractmethod
    def render_calls(self, thought: str, calls: Sequence[Call]) -> str:
        """The message that makes these calls; `parse` gives them back. For gold conversations and examples."""

    @abstractmethod
    def render_answer(self, thought: str, text: str) -> str:
        """The message that ends a user turn with `text`; `parse` gives it back."""
