"""The token ids of one episode, and of each whether the model wrote it, with what log-probability, and in which step.

All of it grows here and nowhere else, so it stays aligned: `mask` and `log_probs` are as long as `response`; `spans`
cover exactly the tokens with mask 1; between two steps stands a token of the environment. What would break that is
refused where it is appended.
"""

from collections.abc import Callable, Sequence
from typing import Any

from interaction.protocol import Message
from interaction.token_rewards import Span

Render = Callable[[list[Message]], list[int]]
"""Token ids of a conversation by the chat template, without a header for the next message."""


class Trajectory:
    """Prompt and response of one episode while it is played."""

    def __init__(self, prompt: Sequence[int]) -> None:
        self.prompt = list(prompt)
        self.response: list[int] = []
        """All ids after the prompt, the model's as the engine gave them."""
        self.mask: list[int] = []
        """1 for a token of the model, 0 for one of the environment."""
        self.log_probs: list[float] | None = None
        """The engine's, 0 on tokens of the environment; None where it gives none."""
        self.spans: list[Span] = []
        """The steps among the tokens of the response."""

    def __len__(self) -> int:
        """Tokens of the response."""
        return len(self.response)

    @property
    def ids(self) -> list[int]:
        """Prompt and response: what the engine is asked to go on from."""
        return self.prompt + self.response

    @property
    def last_step(self) -> list[int]:
        """The ids of the last step."""
        return self.response[self.spans[-1].start : self.spans[-1].end]

    def add_step(self, turn: int, ids: Sequence[int], log_probs: Sequence[float] | None) -> Span:
        """Append what the engine gave for one step.

        Args:
            turn: user turn in which it was said, from 0.

        Raises:
            ValueError: there is no token, another step stands right before it, log-probabilities are not one a token,
                or were given for other steps only.
        """
        number, start = len(self.spans), len(self)
        if not ids:
            raise ValueError(f"step {number} has no tokens")
        if self.mask and self.mask[-1]:
            raise ValueError(f"step {number} begins at token {start} without a token of the environment before it")
        if log_probs is not None and len(log_probs) != len(ids):
            raise ValueError(f"step {number} has {len(ids)} tokens and {len(log_probs)} log-probabilities")
        if number and (log_probs is None) != (self.log_probs is None):
            came, before = ("no", "some") if log_probs is None else ("some", "none")
            raise ValueError(f"step {number} has {came} log-probabilities, the steps before it had {before}")
        if log_probs is not None:
            self.log_probs = [0.0] * start if self.log_probs is None else self.log_probs
            self.log_probs += log_probs
        self.response += ids
        self.mask += [1] * len(ids)
        self.spans.append(Span(turn, start, len(self)))
        return self.spans[-1]

    def add_context(self, ids: Sequence[int]) -> None:
        """Append what the environment said."""
        self.response += ids
        self.mask += [0] * len(ids)
        if self.log_probs is not None:
            self.log_probs += [0.0] * len(ids)

    def go_on(self, ids: Sequence[int], removed: int = 0) -> None:
        """Take what the environment said from the whole conversation, prompt included, as it goes on after it.

        Args:
            removed: last tokens of the last step that are the environment's there. Some models stop with the token
                that opens the next message: verl takes it away from the step and writes it in the context.

        Raises:
            ValueError: nothing but a step's last tokens may be removed, and all others must be as they were.
        """
        if removed and not (self.spans and self.spans[-1].end == len(self) and removed < len(self.last_step)):
            raise ValueError(f"{removed} tokens removed that are not the last ones of a longer step")
        kept = len(self) - removed
        whole = len(self.prompt) + kept
        if list(ids[:whole]) != self.ids[:whole]:
            raise ValueError("the conversation does not go on from the token ids that it had")
        if removed:
            last = self.spans.pop()
            self.spans.append(Span(last.turn, last.start, kept))
            del self.response[kept:], self.mask[kept:]
            if self.log_probs is not None:
                del self.log_probs[kept:]
        self.add_context(ids[whole:])


def closing_ids(render: Render) -> list[int]:
    """What the chat template writes after an assistant message: the ending, then what separates messages.

    An engine leaves it out: it stops at the token that ends a message, or at another one (<|endoftext|> of Qwen's
    models, <|eom_id|> of Llama's). verl restores ChatML's newline for the model types it knows; here all of it is read
    off the template, whatever the type: the common end of two conversations that differ in the last word.

    Raises:
        ValueError: the template does not show what the assistant said.
    """
    first, second = (
        render([{"role": "user", "content": "a"}, {"role": "assistant", "content": word}]) for word in ("yes", "no")
    )
    if first == second:
        raise ValueError("the chat template does not show what the assistant said")
    length = 0
    while length < min(len(first), len(second)) and first[-1 - length] == second[-1 - length]:
        length += 1
    return first[len(first) - length :]


def stop_ids(tokenizer: Any, closing: Sequence[int]) -> list[int]:
    """The token that ends a message: of `closing` the first that is no text. A base model may have another end."""
    return [number for number in closing if number in tokenizer.added_tokens_decoder][:1]


def missing_ids(ids: Sequence[int], closing: Sequence[int], stops: Sequence[int] = ()) -> list[int]:
    """The part of `closing` that a message's token ids do not end with already: after a stop token, what follows it."""
    if ids and ids[-1] in stops:  # whatever text the template writes before it
        return list(closing[closing.index(ids[-1]) + 1 :])
    for length in range(min(len(ids), len(closing)), 0, -1):
        if list(ids[-length:]) == list(closing[:length]):
            return list(closing[length:])
    return list(closing)
