"""How much of a conversation the model can take, counted as verl's data set writes it: message by message.

verl renders each message on its own, cuts off what its chat template puts before a first message, and lets the loss see
what follows the header of a message of the assistant's. That is right for a template that writes a message the same
way wherever it stands, and behind the header that it writes for the model; here every conversation is looked at.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from omegaconf import DictConfig, OmegaConf

from interaction.protocol import Message
from recipe.conversations.files import Conversation
from recipe.errors import PreflightError

EMPTY: Message = {"role": "user", "content": ""}
NAMED = 3
"""Conversations that a message names."""
TO_SET = (
    "Raise data.max_length, or set data.truncation=messages (what is too long ends with the last message of the model "
    "that fits) or drop (it is left out)"
)


class Template:
    """A model's chat template, as verl's data set uses it. The figures are texts; tokens are counted where needed.

    Raises:
        PreflightError: the template refuses plain messages.
    """

    def __init__(self, tokenizer: Any, model: str, data: DictConfig) -> None:
        self.tokenizer, self.model, self.alone = tokenizer, model, bool(data.ignore_input_ids_mismatch)
        self.options: dict[str, Any] = OmegaConf.to_container(data.apply_chat_template_kwargs, resolve=True)  # type: ignore[assignment]
        self.thinking = data.enable_thinking_default
        once, twice = self._render([EMPTY]), self._render([EMPTY, EMPTY])
        self.before = once[: 2 * len(once) - len(twice)]
        self.header = self._render([EMPTY], add_generation_prompt=True)[len(once) :]

    def pieces(self, conversation: Conversation) -> list[str]:
        """The text of each message; joined, what is trained on.

        Raises:
            PreflightError: the conversation as a whole reads otherwise, or the loss would see other tokens than the
                model's, or not all of them.
        """
        messages, kept = list(conversation.messages), conversation.kept
        options: dict[str, Any] = {}
        if (thinking := kept.get("enable_thinking", self.thinking)) is not None:
            options["enable_thinking"] = bool(thinking)
        tools = kept.get("tools")
        pieces = []
        for number, message in enumerate(messages):
            text = self._render([message], tools=None if number else tools, **options)
            pieces.append(text[len(self.before) :] if number and message["role"] != "system" else text)
            if message["role"] == "assistant" and not pieces[-1].startswith(self.header):
                raise PreflightError(
                    f"{conversation.place}: the chat template of {self.model} lets the model begin with "
                    f"{self.header[-60:]!r} and writes its messages otherwise, so that the loss would see other "
                    "tokens than the model's. Take another model, or put a chat_template.jinja that does not into "
                    "its folder."
                )
        if not self.alone and self._render(messages, tools=tools, **options) != "".join(pieces):
            raise PreflightError(
                f"{conversation.place}: the chat template of {self.model} writes this conversation otherwise as a "
                "whole than message by message. Set data.ignore_input_ids_mismatch=true to train on the latter, which "
                "is what rollouts consist of, or take another model."
            )
        return pieces

    def _render(self, messages: Sequence[Message], **options: Any) -> str:
        from verl.utils.tokenizer.chat_template import apply_chat_template

        given = {"tokenize": False, "add_generation_prompt": False, **self.options, **options}
        try:
            return str(apply_chat_template(self.tokenizer, list(messages), **given))
        except Exception as error:  # a template raises what it likes
            roles, words = ", ".join(message["role"] for message in messages[:8]), " ".join(str(error).split())[:300]
            raise PreflightError(
                f"the chat template of {self.model} refuses messages with the roles {roles}: {type(error).__name__}: "
                f"{words}. Take another model, or put a chat_template.jinja that takes them into its folder."
            ) from error


@dataclass
class Fitted:
    """Conversations that fit, and what became of those that did not."""

    conversations: list[Conversation] = field(default_factory=list)
    too_long: dict[str, int] = field(default_factory=dict)
    """Place -> tokens that it had."""
    cut: int = 0
    left_out: int = 0


def fit(conversations: Sequence[Conversation], template: Template, limit: int, how: str) -> Fitted:
    """Conversations of at most `limit` tokens.

    Args:
        how: `data.truncation`: error; drop, leave out what is longer; messages, end it with the last message of the
            model that fits, and leave it out where none does; right, let verl cut it anywhere.

    Raises:
        PreflightError: by `error`, there are longer ones; or the template cannot be used.
    """
    fitted = Fitted()
    for one in conversations:
        pieces = template.pieces(one)
        if len("".join(pieces).encode()) <= limit:  # a token has a byte or more
            fitted.conversations.append(one)
            continue
        ends = list(accumulate(map(len, template.tokenizer(pieces, add_special_tokens=False)["input_ids"])))
        if ends[-1] > limit:
            fitted.too_long[one.place] = ends[-1]
            if how in ("drop", "messages"):
                end = max((at for at in _ends_of_model(one) if ends[at - 1] <= limit), default=0)
                if how == "drop" or not end:
                    fitted.left_out += 1
                    continue
                fitted.cut += 1
                one = replace(one, messages=one.messages[:end])
        fitted.conversations.append(one)
    if fitted.too_long and how == "error":
        raise PreflightError(f"{told(fitted, len(conversations), limit)}. {TO_SET}.")
    return fitted


def told(fitted: Fitted, number: int, limit: int) -> str:
    """How many of so many conversations were too long, and which, the longest first."""
    longest = sorted(fitted.too_long.items(), key=lambda item: -item[1])
    named = ", ".join(f"{place}: {tokens}" for place, tokens in longest[:NAMED])
    more = ", ..." if len(longest) > NAMED else ""
    return f"{len(longest)} of {number} conversations have more than data.max_length={limit} tokens ({named}{more})"


def _ends_of_model(one: Conversation) -> list[int]:
    return [number for number, message in enumerate(one.messages, start=1) if message["role"] == "assistant"]
