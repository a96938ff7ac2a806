"""Gold played as a conversation: what a model that does everything right would write.

The messages come from the same Conversation and protocol that training uses, so a model warmed up on them meets
nothing new in its first rollout. One assistant message holds all gold calls of a turn, the next one the answer.
"""

from bfcl_env import Scenario
from interaction import Conversation
from interaction.protocol import Protocol

Message = dict[str, str]


def gold_messages(scenario: Scenario, protocol: Protocol, max_result_chars: int | None = None) -> list[Message]:
    """The whole gold conversation, from the system prompt to the last answer.

    Args:
        scenario: the task.
        protocol: decides how calls and answers are written.
        max_result_chars: results are cut to this length, as `Conversation` does in training; None for no cut.

    Raises:
        RuntimeError: gold did not pass every turn, so the messages must not be learned.
    """
    with Conversation(scenario, protocol=protocol, max_result_chars=max_result_chars) as conversation:
        messages = list(conversation.start())
        for turn in scenario.turns:
            if turn.gold:
                thought = ", ".join(call.name for call in turn.gold)
                _say(conversation, messages, protocol.render_calls(thought, turn.gold))
            _say(conversation, messages, protocol.render_answer("done", "done"))
        record = conversation.record()
    failed = [number for number, turn in enumerate(record.turns) if not turn.passed]
    if failed or not conversation.done:
        raise RuntimeError(
            f"gold of {scenario.id} does not pass in turns {failed} with protocol {protocol.name!r}: "
            "run `python -m bfcl_env validate`, and check that the protocol parses what it renders"
        )
    return messages


def _say(conversation: Conversation, messages: list[Message], text: str) -> None:
    messages.append({"role": "assistant", "content": text})
    messages.extend(conversation.reply(text).messages)
