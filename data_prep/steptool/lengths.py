"""How much of a row a model can hold: whole steps are dropped from the end, and none is cut.

StepTool cuts what is too long on the left, so that the head of the first prompt is lost without a word. A step that was
half seen has a reward that its tokens did not earn.
"""

import math
import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import accumulate, takewhile
from typing import Any

from interaction.plain_text import PlainText


class Measure:
    """Loads the tokenizer, which takes seconds.

    Args:
        tokenizer: a model's folder or hub id; None for no limits.
        context: tokens of a whole row, prompts and responses.
        response: tokens of each message of the model.

    Raises:
        ValueError: the tokenizer cannot be read.
    """

    def __init__(self, tokenizer: str | None, context: int | None = None, response: int | None = None) -> None:
        self._context, self._response = context or math.inf, response or math.inf
        self._tokenizer: Any = None
        if tokenizer is not None:
            from transformers import AutoTokenizer

            try:
                self._tokenizer = AutoTokenizer.from_pretrained(tokenizer)
            except Exception as error:
                words = " ".join(str(error).split())[:200]
                raise ValueError(f"--tokenizer {tokenizer} cannot be read: {words}") from error

    def trajectory(self, row: dict[str, Any]) -> int:
        """How many of the first steps of a trajectory fit."""
        if self._tokenizer is None:
            return len(row["steps"])
        texts = [text for step in row["steps"] for text in (step["prompt"], step["response"])]
        counts = [len(ids) for ids in token_ids(texts, self._tokenizer)]
        return self._fitting(zip([*accumulate(counts)][1::2], counts[1::2], strict=True))

    def conversation(self, row: dict[str, Any]) -> int:
        """How many of the first messages fit: up to one of the model, or none.

        Raises:
            ValueError: the tokenizer has no chat template, or the template refuses the messages.
        """
        if self._tokenizer is None:
            return len(row["messages"])
        messages = PlainText.of(self._tokenizer).messages(row["messages"])
        ends = [place for place, item in enumerate(messages, start=1) if item["role"] == "assistant"]
        fitting = self._fitting(self._sizes(messages[:end]) for end in ends)
        return ends[fitting - 1] if fitting else 0

    def _sizes(self, messages: Sequence[dict[str, str]]) -> tuple[int, int]:
        try:
            written = self._tokenizer.apply_chat_template(messages, tokenize=False)
        except Exception as error:  # a template raises what it likes
            words = " ".join(str(error).split())[:200]
            raise ValueError(f"--tokenizer: its chat template refuses a conversation: {words}") from error
        total, response = self._tokenizer([written, messages[-1]["content"]], add_special_tokens=False)["input_ids"]
        return len(total), len(response)

    def _fitting(self, sizes: Iterable[tuple[int, int]]) -> int:
        """How many of the first steps fit, by tokens of the row up to a step's end and of its response."""
        fits = (total <= self._context and response <= self._response for total, response in sizes)
        return sum(1 for _ in takewhile(bool, fits))


def token_ids(texts: Sequence[str], tokenizer: Any) -> list[list[int]]:
    """Ids of prompt, response, prompt, ...: after the first prompt, control tokens stand around a text alone."""
    plain, frames = PlainText.of(tokenizer), _frames(tokenizer)
    parts = [frames[number % 2].fullmatch(text).groups("") for number, text in enumerate(texts[1:], 1)]  # type: ignore[union-attr]
    said = [texts[0], *(f"{before}{plain(words)}{after}" for before, words, after in parts)]
    return tokenizer(said, add_special_tokens=False)["input_ids"]


@cache
def _frames(tokenizer: Any) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """The marks around a prompt and a response, whatever white space is between them."""
    talk = [{"role": role, "content": f"word{number}"} for number, role in enumerate(("user", "assistant") * 2)]
    try:
        _, turn, back, _, end = re.split(r"word\d", tokenizer.apply_chat_template(talk, tokenize=False))
    except Exception:  # there is no template, or it refuses plain messages
        turn = back = end = ""
    turn, header, end = (r"\s*".join(map(re.escape, mark.split())) for mark in (turn, back.removeprefix(end), end))
    header, end = header.replace("user", r"\w+"), f"(?:{end}|{re.escape(tokenizer.eos_token or '')})"
    prompt, response = rf"(\s*{end}?\s*{header}\s*)?(.*?)({turn}\s*)?", rf"()(.*?)({end}\s*)?"
    return re.compile(prompt, re.DOTALL), re.compile(response, re.DOTALL)
