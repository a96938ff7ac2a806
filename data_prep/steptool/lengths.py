"""How much of a row a model can hold: whole steps are dropped from the end, and none is cut.

StepTool cuts what is too long on the left, so that the head of the first prompt is lost without a word. A step that was
half seen has a reward that its tokens did not earn.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from interaction.plain_text import PlainText


@dataclass(frozen=True)
class Limits:
    """The longest that a row may be, in tokens of a model; None for no limit."""

    context: int | None = None
    """Of the whole row, prompts and responses."""
    response: int | None = None
    """Of each message of the model."""
    tokenizer: str | None = None
    """A model's folder or hub id. Needed where there is a limit."""


class Measure:
    """Applies limits. Loads the tokenizer, which takes seconds, where there is a limit.

    Raises:
        ValueError: the tokenizer cannot be read.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._tokenizer = None if limits.context is None and limits.response is None else _load(str(limits.tokenizer))

    def trajectory(self, row: dict[str, Any]) -> int:
        """How many of the first steps of a trajectory fit."""
        steps = row["steps"]
        if self._tokenizer is None:
            return len(steps)
        texts = [text for step in steps for text in (step["prompt"], step["response"])]
        counts = [*map(len, token_ids(texts, self._tokenizer))]
        total = 0
        for number, (prompt, response) in enumerate(zip(counts[::2], counts[1::2], strict=True)):
            total += prompt + response
            if not self._fits(total, response):
                return number
        return len(steps)

    def conversation(self, row: dict[str, Any]) -> int:
        """How many of the first messages fit: up to one of the model, or none.

        Raises:
            ValueError: the tokenizer has no chat template, or the template refuses the messages.
        """
        messages = row["messages"]
        if self._tokenizer is None:
            return len(messages)
        messages = PlainText.of(self._tokenizer).messages(messages)
        fitting = 0
        for end in (place for place, item in enumerate(messages, start=1) if item["role"] == "assistant"):
            texts = [self._written(messages[:end]), messages[end - 1]["content"]]
            total, response = map(len, self._tokenizer(texts, add_special_tokens=False)["input_ids"])
            if not self._fits(total, response):
                break
            fitting = end
        return fitting

    def _fits(self, total: int, response: int) -> bool:
        context, longest = self.limits.context, self.limits.response
        return (context is None or total <= context) and (longest is None or response <= longest)

    def _written(self, messages: Sequence[dict[str, str]]) -> str:
        try:
            return self._tokenizer.apply_chat_template(messages, tokenize=False)  # type: ignore[union-attr]
        except Exception as error:  # a template raises what it likes
            words = " ".join(str(error).split())[:200]
            raise ValueError(
                f"the chat template of --tokenizer {self.limits.tokenizer} does not take these conversations: {words}; "
                "give that of an instruct model"
            ) from error


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


def _load(path: str) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(path)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the tokenizers library is no Exception
        words = " ".join(str(error).split())[:200]
        raise ValueError(
            f"the tokenizer of --tokenizer {path} cannot be read: {type(error).__name__}: {words}; give a model's "
            "folder or hub id"
        ) from error
