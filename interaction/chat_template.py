"""What a chat template writes after an assistant message, which an engine leaves out.

An engine stops at the token that ends a message. What the template puts between that token and the next message, a
newline in ChatML, never comes from the engine, and neither does the ending itself when the model stopped with another
token: Qwen's models sometimes end with <|endoftext|>, Llama's with <|eom_id|>. Left out, the model goes on from a
conversation unlike any that it was trained on. verl restores the newline for the model types it knows (qwen2, qwen3,
qwen3_moe, qwen3_5 and a few others); every other type, llama among them, gets plain concatenation, also with a
template of ChatML's kind. Here it is read off the template, whatever the type.
"""

from collections.abc import Callable, Sequence

from interaction.protocol import Message

Render = Callable[[list[Message]], list[int]]
"""Token ids of a conversation by the chat template, without a header for the next message."""


def closing_ids(render: Render) -> list[int]:
    """What the template writes after the content of an assistant message: the ending, then what separates messages.

    It is what two conversations that differ in the last word of an assistant message have in common after that word.
    Empty for a template that writes nothing there.
    """
    first, second = (render([{"role": "user", "content": "a"}, _assistant(word)]) for word in ("yes", "no"))
    if first == second:
        raise ValueError("the chat template does not show what the assistant said")
    length = 0
    while length < min(len(first), len(second)) and first[-1 - length] == second[-1 - length]:
        length += 1
    return first[len(first) - length :]


def missing_ids(ids: Sequence[int], closing: Sequence[int]) -> list[int]:
    """The part of `closing` that a message's token ids do not end with already."""
    for length in range(min(len(ids), len(closing)), 0, -1):
        if list(ids[-length:]) == list(closing[:length]):
            return list(closing[length:])
    return list(closing)


def _assistant(content: str) -> Message:
    return {"role": "assistant", "content": content}
