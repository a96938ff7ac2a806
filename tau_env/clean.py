"""Which writes of an attempt its task did not need: the official reward lets them pass."""

from collections.abc import Sequence

from interaction.call import Call
from tau_env.domain import Domain, Side, Task

Write = tuple[Side, Call]


def needless(domain: Domain, task: Task, written: Sequence[Write]) -> tuple[Write, ...]:
    """The writes beyond those that the task needs, in order: each of these counts as often as it is listed.

    A domain that knows better (data refuelled in parts) says so with a function of its own.
    """
    if (own := getattr(domain, "needless", None)) is not None:
        found: tuple[Write, ...] = own(task, written)
        return found
    left = list(domain.needed(task))
    beyond = []
    for write in written:
        if write in left:
            left.remove(write)
        else:
            beyond.append(write)
    return tuple(beyond)
