"""Gold conversations for the warm start.

The messages come from the same Conversation and protocol that training uses, so a model warmed up on them meets
nothing new in its first rollout.
"""

from collections.abc import Mapping
from typing import Any

from interaction.environment import Task, task_name
from interaction.gold import play_gold
from interaction.protocol import Message, Protocol


def gold_messages(
    task: Task, protocol: Protocol, max_result_chars: int | None = None, options: Mapping[str, Any] | None = None
) -> list[Message]:
    """The whole gold conversation, from the system prompt to the last answer.

    Args:
        protocol: decides how calls and answers are written.
        max_result_chars: results are cut to this length, as `Conversation` does in training; None for no cut.
        options: the environment's own settings.

    Raises:
        RuntimeError: gold did not pass, so the messages must not be learned.
    """
    environments = {task.environment: dict(options or {})}
    settings = {"max_result_chars": max_result_chars, "environments": environments, "max_steps_per_turn": 1000}
    messages, record = play_gold(task, protocol, **settings)
    if record.outcome is None or not record.outcome.passed:
        failed = [number for number, turn in enumerate(record.turns) if not turn.passed]
        fault = f" ({record.fault})" if record.fault else ""
        raise RuntimeError(
            f"gold of {task_name(task.environment, task.id)} ends with {record.stop_reason}{fault} and does not pass "
            f"in turns {failed} with protocol {protocol.name!r}: check the environment's gold"
        )
    return messages
