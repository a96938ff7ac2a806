"""Several who ask one server side by side."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from interaction.endpoint.client import EndpointRefusal


async def side_by_side(work: Callable[[], Coroutine[Any, Any, None]], number: int) -> None:
    """Runs so many of `work()` at once, until all have ended.

    Raises:
        EndpointRefusal, OSError: of the first that ended so; the others are cancelled.
    """
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(number):
                group.create_task(work())
    except ExceptionGroup as error:  # not except*: before Python 3.11.4 it wraps what is raised in it
        if (ends := error.subgroup((EndpointRefusal, OSError))) is None:
            raise
        raise ends.exceptions[0] from None
