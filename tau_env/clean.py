"""Which writes of an attempt its task did not need: the official reward lets them pass."""

from collections.abc import Sequence
from typing import Any

from interaction.call import Call
from tau_env.domain import Domain, Side, Task
from tau_env.exchange import HAND_OVER

Write = tuple[Side, Call]
RECORD = ("order_id", "reservation_id", "user_id")
"""Arguments that say what a write is about, the narrowest first."""


def needless(domain: Domain, task: Task, written: Sequence[Write]) -> tuple[Write, ...]:
    """The writes beyond those that the task needs, in order: each of these counts as often as it is listed.

    A write is a needed one if it is the same function for the same order, reservation or user: where the state ends as
    gold's, its other arguments have said the same, in whatever form. A domain that knows better (telecom, whose tasks
    do not compare states) says so with a function of its own.
    """
    if (own := getattr(domain, "needless", None)) is not None:
        found: tuple[Write, ...] = own(task, written)
        return found
    left = [_about(write) for write in domain.needed(task)]
    beyond = []
    for write in written:
        if (about := _about(write)) in left:
            left.remove(about)
        else:
            beyond.append(write)
    return tuple(beyond)


def hands_over(task: Task) -> bool:
    """Whether the task is one that ends with a transfer: then that is needed, and everywhere else it is not."""
    return bool(task.gold) and task.gold[-1].call.name == HAND_OVER


def _about(write: Write) -> tuple[Any, ...]:
    side, call = write
    record = next((call.arguments[name] for name in RECORD if name in call.arguments), None)
    return side, call.name, repr(record)
