"""What the environment says, made plain text before it is tokenised: no control tokens, no more than the budget holds.

A tokenizer turns the text `<|im_end|>` into the token that ends a message, whoever wrote it. Results, errors and hints
quote the model, so a model could close the environment's message and forge the next user's. Texts of the tokenizer's
special tokens are therefore broken up by a space; all other text is left as it is.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from interaction.protocol import Message

LONG = 100_000
"""Characters of a reply of the environment from which on it is measured before it is tokenised as a whole."""

PIECE = 20_000
"""Characters that are tokenised at a time to measure a long text."""

PIECE_ERROR = 256
"""Tokens that a cut through the middle of a word may add; more than any tokenizer was seen to."""


class PlainText:
    """Breaks up the texts of special tokens. One for each tokenizer; `of` gives it."""

    def __init__(self, tokenizer: Any) -> None:
        added = [token for token in tokenizer.added_tokens_decoder.values() if token.special]
        marked = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
        specials = {text for text in (*map(str, added), *tokenizer.all_special_tokens) if len(text) > 1}
        texts = sorted(specials, key=lambda text: (-len(text), text))
        self._pattern = re.compile("|".join(map(re.escape, texts)) or "(?!)")
        self._ids = (marked | set(tokenizer.all_special_ids)) - {tokenizer.unk_token_id}
        backend = getattr(tokenizer, "backend_tokenizer", None)
        normalises = getattr(backend, "normalizer", None) is not None and any(token.normalized for token in added)
        self._tokenizer: Any = tokenizer if normalises else None
        """It rewrites text before it looks for special tokens, so that other spellings lead to them too."""

    @staticmethod
    @cache
    def of(tokenizer: Any) -> "PlainText":
        """For a tokenizer of transformers."""
        return PlainText(tokenizer)

    def messages(self, messages: Sequence[Message]) -> list[Message]:
        """The messages with plain contents."""
        return [{**message, "content": self(message["content"])} for message in messages]

    def __call__(self, text: str) -> str:
        """The text without special tokens, and without lone surrogates, which no tokenizer takes."""
        text = _parted(self._pattern, text)
        return text if self._tokenizer is None else self._without_other_spellings(text)

    def _without_other_spellings(self, text: str) -> str:
        for gap in (" ", ""):  # broken up; where that does not help, left out
            encoded = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
            pairs = zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
            for begin, end in reversed([span for token, span in pairs if token in self._ids]):
                text = text[:begin] + (gap.join(text[begin:end]) if gap else "") + text[end:]
        return text


def fits(tokenizer: Any, messages: Sequence[Message], room: int) -> bool:
    """Whether the contents can have at most `room` tokens. Costs no more than tokenising what `room` can hold.

    Never says no to what fits; a text under `LONG` is not looked at.
    """
    if sum(len(message["content"]) for message in messages) < LONG:
        return True
    count = 0
    for message in messages:
        for begin in range(0, len(message["content"]), PIECE):
            piece = message["content"][begin : begin + PIECE]
            count += max(len(tokenizer.encode(piece, add_special_tokens=False)) - PIECE_ERROR, 0)
            if count > room:
                return False
    return True


_CONTROL = re.compile(
    r"<\|[^<>|\n]{1,64}\|>"  # Qwen, Llama 3 and 4, Phi, GPT, GLM, Granite, Kimi, Cohere
    r"|<\uff5c[^<>\uff5c\n]{1,64}\uff5c>"  # DeepSeek
    r"|</?s>|<(?:bos|eos|pad|unk|mask|sop|eop)>|\[gMASK\]"
    r"|<(?:start|end)_of_(?:turn|image)>"  # Gemma
    r"|\[/?(?:INST|IMG|THINK|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT)\]"  # Mistral
    r"|<</?SYS>>"  # Llama 2
)


def generic(text: str) -> str:
    """The text with a space in whatever looks like a control token of a common family, and without lone surrogates."""
    return _parted(_CONTROL, text)


def _parted(pattern: re.Pattern[str], text: str) -> str:
    text = text.encode("utf-8", "replace").decode("utf-8")
    while pattern.search(text):  # a space may join what it does not part
        text = pattern.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)
    return text
