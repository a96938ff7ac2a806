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
        counts = [len(ids) for ids in token_ids(texts, self._tokenizer)]
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
            total, response = self._count([self._written(messages[:end]), messages[end - 1]["content"]])
            if not self._fits(total, response):
                break
            fitting = end
        return fitting

    def _fits(self, total: int, response: int) -> bool:
        context, longest = self.limits.context, self.limits.response
        return (context is None or total <= context) and (longest is None or response <= longest)

    def _count(self, texts: Sequence[str]) -> list[int]:
        return [len(ids) for ids in self._tokenizer(texts, add_special_tokens=False)["input_ids"]]  # type: ignore[misc]

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
    """Ids of the texts prompt, response, prompt, ... of a trajectory.

    Later prompts and responses have control tokens at their ends alone, where the chat template has them. The first
    prompt is a rendered conversation: its marks are left as they stand.
    """
    plain, frames = PlainText.of(tokenizer), _frames(tokenizer)
    said = [texts[0]]
    for number, text in enumerate(texts[1:], 1):
        before, words, after = frames[number % 2].fullmatch(text).groups("")  # type: ignore[union-attr]
        said.append(f"{before}{plain(words)}{after}")
    return tokenizer(said, add_special_tokens=False)["input_ids"]


@cache
def _frames(tokenizer: Any) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """The marks around the words of a prompt and of a response, whatever white space is between them."""

    def pattern(mark: str) -> str:
        return r"\s*".join(map(re.escape, mark.split()))

    messages = [{"role": ("user", "assistant")[number % 2], "content": f"word{number}"} for number in range(4)]
    try:
        rendered = tokenizer.apply_chat_template(messages, tokenize=False)
        _, turn, back, _, end = re.split(r"word\d", rendered)
    except Exception:  # there is none, or it refuses plain messages
        turn = back = end = ""
    closing = f"(?:{pattern(end)}|{re.escape(tokenizer.eos_token or '')})"
    header = pattern(back.removeprefix(end)).replace("user", r"\w+")
    prompt = rf"((?:\s*{closing})?\s*{header}\s*)?(.*?)({pattern(turn)}\s*)?"
    return re.compile(prompt, re.DOTALL), re.compile(rf"()(.*?)({closing}\s*)?", re.DOTALL)


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
