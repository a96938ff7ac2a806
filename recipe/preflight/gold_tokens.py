"""Which tasks gold itself cannot finish within the tokens that an episode has: no model can pass those.

Gold is played as briefly as the protocol allows, under the turn policy that is given, and its messages and results are
counted with the model's tokenizer. A text is tokenized only where its bytes do not settle the matter: it never has
more tokens than bytes, and nearly all tasks have fewer bytes than the budget has tokens.

Used by preflight (`recipe/preflight/budget.py`) and by evaluation.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from interaction import Conversation, StopReason
from interaction.call import Call
from interaction.environment import GoldMessage, Task, UserWords
from interaction.gold import hear_gold
from interaction.plain_text import PlainText
from interaction.protocol import Message, Protocol

THOUGHT = "I call what this takes."
"""What gold thinks before each message: a short sentence, as no model leaves it out."""


LIMITS = (StopReason.max_steps, StopReason.max_tokens, StopReason.format_errors)

TEMPLATE = 256
"""No chat template writes more tokens than this around the first two messages."""


@dataclass(frozen=True)
class Budget:
    """The tokens that an episode has; None: no such limit."""

    context: int | None = None
    """Prompt and response together."""
    response: int | None = None
    """All after the prompt: what the model writes and what it reads."""
    reply: int | None = None
    """One message of the model."""


class Lengths:
    """Counts the tokens of messages with one tokenizer.

    Args:
        tokenizer: of transformers, with a chat template; what it writes around a message is counted once.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer, self._plain = tokenizer, PlainText.of(tokenizer)
        turn = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "x"}]
        self._around = (self._templated(turn * 2) - self._templated(turn) + 1) // 2

    def _templated(self, messages: list[Message], prompt: bool = False) -> int:
        return len(self._tokenizer.apply_chat_template(messages, add_generation_prompt=prompt, return_dict=False))

    def prompt(self, messages: list[Message]) -> int:
        """Tokens of the messages that an episode begins with."""
        return self._templated(self._plain.messages(messages), prompt=True)

    def of(self, text: str) -> int:
        """Tokens of a text alone."""
        return len(self._tokenizer.encode(self._plain(text), add_special_tokens=False))

    def most(self, texts: list[str]) -> int:
        """What these messages cannot have more tokens than, without tokenizing them."""
        return self._around * len(texts) + sum(len(self._plain(text).encode()) for text in texts)

    def response(self, texts: list[str], limit: int) -> int:
        """Tokens of all later messages with what stands around them; counted until they are more than `limit`."""
        if (most := self.most(texts)) <= limit:
            return most
        found = self._around * len(texts)
        for text in texts:
            if found > limit:
                break
            found += self.of(text)
        return found


def over_budget(
    tasks: Iterable[Task],
    open_conversation: Callable[[Task], Conversation],
    lengths: Lengths,
    budget: Budget,
) -> list[str]:
    """Ids of the tasks that gold cannot finish within `budget` and the conversation's own limits, in their order.

    Of a task without gold nothing is known, and it is none of them.

    Args:
        open_conversation: an unstarted conversation, with the turn policy that episodes will have.
    """
    return [task.id for task in tasks if not _fits(task, open_conversation(task), lengths, budget)]


def reply_needed(
    tasks: Sequence[Task],
    open_conversation: Callable[[Task], Conversation],
    lengths: Lengths,
    budget: Budget,
) -> int:
    """A `budget.reply` with which gold can finish these tasks, all of which it can finish without one.

    One call a message takes the least tokens; where so many messages are too many, all calls stand in one as gold has
    them.
    """
    longest = whole = 0
    for task in tasks:
        with open_conversation(task) as conversation:
            protocol = conversation.protocol
        for item in task.gold():
            if isinstance(item, GoldMessage) and item.calls:
                longest = max(longest, *(lengths.of(protocol.render_calls(THOUGHT, [call])) for call in item.calls))
                whole = max(whole, lengths.of(protocol.render_calls(THOUGHT, item.calls)))
            elif isinstance(item, GoldMessage):
                longest = max(longest, lengths.of(protocol.render_answer(THOUGHT, item.answer)))
    single = longest + 1  # the token that ends it
    if over_budget(tasks, open_conversation, lengths, replace(budget, reply=single)):
        return max(longest, whole) + 1
    return single


def _fits(task: Task, conversation: Conversation, lengths: Lengths, budget: Budget) -> bool:
    with conversation:
        opening, texts = _play(task, conversation, lengths, budget)
        if texts and conversation.stop_reason in (None, *LIMITS):
            return False
    if budget.response is not None and lengths.response(texts, budget.response) > budget.response:
        return False
    if budget.context is None:
        return True
    if lengths.most([*(message["content"] for message in opening), *texts]) <= budget.context - TEMPLATE:
        return True
    left = budget.context - lengths.prompt(opening)
    return lengths.response(texts, left) <= left


def _play(task: Task, conversation: Conversation, lengths: Lengths, budget: Budget) -> tuple[list[Message], list[str]]:
    """The opening messages, and all texts after them, until the conversation is done."""
    protocol, reply = conversation.protocol, conversation.begin()
    opening, texts = reply.messages, []
    for item in task.gold():
        if conversation.stop_reason is StopReason.environment_error:
            break
        if isinstance(item, UserWords):
            reply = hear_gold(conversation, item.text)
            if not opening:
                opening = reply.messages
            else:
                texts += [message["content"] for message in reply.messages]
            continue
        calls = _calls(item.calls, protocol, lengths, budget)
        for message in calls or [protocol.render_answer(THOUGHT, item.answer)]:
            reply = conversation.reply(message, truncated=not _short_enough(message, lengths, budget))
            texts += [message, *(said["content"] for said in reply.messages)]
            if reply.done:
                return opening, texts
    return opening, texts


def _calls(calls: tuple[Call, ...], protocol: Protocol, lengths: Lengths, budget: Budget) -> list[str]:
    """The calls in as few messages as the limit of one message allows."""
    messages: list[tuple[Call, ...]] = []
    for call in calls:
        longer = (*messages[-1], call) if messages else (call,)
        if messages and _short_enough(protocol.render_calls(THOUGHT, longer), lengths, budget):
            messages[-1] = longer
        else:
            messages.append((call,))
    return [protocol.render_calls(THOUGHT, part) for part in messages]


def _short_enough(text: str, lengths: Lengths, budget: Budget) -> bool:
    """Whether a message fits `budget.reply` together with the token that ends it."""
    return budget.reply is None or len(text.encode()) < budget.reply or lengths.of(text) < budget.reply
