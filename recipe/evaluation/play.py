"""Play all episodes of an evaluation through an endpoint, side by side, and keep each one as soon as it is finished.

What decides the outcome is in `Settings`, which is kept beside the episodes (`recipe.evaluation.store`). An episode
that cannot be played because the server failed is played again and then reported as lost. It is never scored, and
neither is one whose first request the server's context does not hold. One in which our environment failed is scored as
it stands, as in training (`environment_error`): what the model wrote may have led there, and must not decide what
counts.
"""

import sys
from typing import Any

from tqdm import tqdm

from interaction.endpoint.client import Endpoint, EndpointFault
from interaction.endpoint.workers import side_by_side
from interaction.environment import Task
from interaction.user_fault import UserFault
from interaction.users import User, make_user
from recipe.evaluation.episode import PromptTooLong, play_episode
from recipe.evaluation.results import CONTEXT, NOT_TRIED, THE_USER, Lost
from recipe.evaluation.search import search_episode
from recipe.evaluation.store import Settings, Store

ATTEMPTS = 2
"""How often an episode is played; each message was asked for several times before that."""
LOST_IN_A_ROW = 10
"""So many lost episodes without a finished one between them: the server is gone, and the rest is not tried."""


def progress_bar(name: str, total: int, done: int = 0) -> tqdm:
    """A bar for people at a terminal; where the output goes to a file, a line now and then."""
    often = 0.5 if sys.stderr.isatty() else 60.0
    return tqdm(desc=name, total=total, initial=done, unit="episode", mininterval=often)


async def play_all(endpoint: Endpoint, settings: Settings, store: Store, concurrency: int) -> list[Lost]:
    """Play what the store does not hold yet. Returns what could not be played.

    Raises:
        EndpointRefusal: the server refuses every request.
        OSError: an episode cannot be kept.
    """
    done = store.episodes().keys()
    user = make_user(settings.user)
    tasks = settings.tasks()
    left = [(task, sample) for task, sample in tasks if (task.id, sample) not in done]
    lost: list[Lost] = []
    in_a_row = 0
    waiting = iter(left)
    with progress_bar("playing", len(tasks), done=len(tasks) - len(left)) as bar:

        async def work() -> None:
            nonlocal in_a_row
            for task, sample in waiting:
                fault = f"{NOT_TRIED}: {in_a_row} episodes in a row were lost"
                if in_a_row < LOST_IN_A_ROW:
                    try:
                        line, fault = await _play_or_lose(endpoint, settings, task, user)
                    except PromptTooLong as error:
                        line, fault = None, f"{CONTEXT}: {error}"
                    else:
                        in_a_row = 0 if line is not None else in_a_row + 1
                    if line is not None:
                        store.add({"task_id": task.id, "sample": sample, **line})
                        bar.update()
                        continue
                lost.append(Lost(task.id, task.category, sample, fault))
                bar.set_postfix(lost=len(lost))

        await side_by_side(work, concurrency)
    return lost


async def _play_or_lose(
    endpoint: Endpoint, settings: Settings, task: Task, user: User | None
) -> tuple[dict[str, Any] | None, str]:
    """The finished episode, or None and why there is none.

    Raises:
        EndpointRefusal, PromptTooLong: as `play_episode`; to play it again would change nothing.
    """
    fault = ""
    play = play_episode if settings.strategy == "cot" else search_episode
    for attempt in range(1, ATTEMPTS + 1):
        try:
            line = await play(endpoint, settings, task, user)
        except EndpointFault as error:
            fault = str(error)
            continue
        except UserFault as error:
            fault = f"{THE_USER}: {error}"
            continue
        return {"attempts": attempt, **line}, ""
    return None, fault
