"""Gold played as a conversation: what a model that does everything right would write."""

from typing import Any

from interaction.conversation import Conversation
from interaction.environment import Task, UserWords
from interaction.protocol import Message, Protocol
from interaction.record import EpisodeRecord


def play_gold(task: Task, protocol: Protocol, **settings: Any) -> tuple[list[Message], EpisodeRecord]:
    """The whole gold conversation, from the system prompt to the last message, and its record.

    Thoughts name the functions that are called. A task without gold ends as an abandoned one.

    Args:
        settings: those of the turn policy.
    """
    messages: list[Message] = []
    with Conversation(task, protocol=protocol, **settings) as conversation:
        messages += conversation.begin().messages
        for item in task.gold():
            if isinstance(item, UserWords):
                messages += conversation.hear(item.text).messages
                continue
            if item.calls:
                text = protocol.render_calls(", ".join(call.name for call in item.calls), item.calls)
            else:
                text = protocol.render_answer(item.answer, item.answer)
            messages += [{"role": "assistant", "content": text}, *conversation.reply(text).messages]
    return messages, conversation.record()
