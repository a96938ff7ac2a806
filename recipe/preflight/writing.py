"""Whether the protocol can write what a task asks for: of the others nobody could do the task."""

from interaction import get_protocol
from interaction.environment import Task
from interaction.gold import unwritable
from interaction.protocol import PROTOCOLS, Protocol


def cannot_write(task: Task, protocol: Protocol) -> str | None:
    """Why gold of a task cannot be written, and which protocols can; None if it can."""
    reason = unwritable(task, protocol)
    if reason is None:
        return None
    others = [name for name in PROTOCOLS if unwritable(task, get_protocol(name)) is None]
    return (
        f"is the task {task.id}, whose calls interaction.protocol={protocol.name} cannot write ({reason}); "
        + (f"set it to one that can: {', '.join(others)}" if others else "no protocol can")
        + ". data_prep leaves such tasks out"
    )
