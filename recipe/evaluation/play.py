"""Play the episodes of an evaluation through an endpoint, side by side, and keep each one as soon as it is finished.

An episode whose server, tools or user fail is played a second time and then lost: it is in no number. So is one whose
prompt the server's context does not hold (a longer --max-model-len, or --docs signature). One in which our environment
fails is scored as in training (`environment_error`): the model's words may have led there, and must not decide what
counts.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any, TypeVar

from tqdm import tqdm

from interaction import Conversation, StopReason
from interaction.boundary import Apart, ToolUnavailable
from interaction.conversation import Reply
from interaction.endpoint import ContextFull, Endpoint, EndpointFault, EndpointRefusal, side_by_side
from interaction.environment import Task, UserFault
from interaction.users import User, make_user
from recipe.evaluation.store import Settings, Store

ATTEMPTS = 2
"""How often an episode is played; each message was asked for several times before that."""
LOST_IN_A_ROW = 10
"""So many lost episodes without a finished one between them: the server is gone."""

LEAVE_SECONDS = 5.0
"""After an interrupt, for a call that still runs and for what frees its environment."""

_WAITING = Apart()

T = TypeVar("T")
Lost = tuple[T, str]

Play = Callable[[Endpoint, Settings, Task, User | None], Awaitable[dict[str, Any]]]
"""As `play_episode`."""


async def each(items: Sequence[T], work: Callable[[T], Awaitable[None]], concurrency: int, bar: tqdm) -> list[Lost[T]]:
    """Work on items side by side. Returns what was lost, and why: to the server, or to its context.

    After `LOST_IN_A_ROW` the rest is not tried.
    """
    lost: list[tuple[T, str]] = []
    in_a_row, waiting = 0, iter(items)

    async def worker() -> None:
        nonlocal in_a_row
        for item in waiting:
            try:
                if in_a_row >= LOST_IN_A_ROW:
                    raise EndpointFault("not tried: the server or the user is gone")
                await work(item)
                in_a_row = 0
                bar.update()
            except ContextFull as error:
                lost.append((item, f"the context does not hold it: {error}"))
            except EndpointFault as error:
                in_a_row += 1
                lost.append((item, str(error)))

    with bar:
        await side_by_side(worker, concurrency)
    return lost


async def play_all(
    endpoint: Endpoint, settings: Settings, store: Store, concurrency: int, play: Play
) -> list[dict[str, Any]]:
    """Play what the store does not hold yet. Returns what was lost: task_id, category, sample and reason of each.

    Raises:
        EndpointRefusal: the server refuses every request.
        OSError: an episode cannot be kept.
    """
    done = store.episodes().keys()
    user = make_user(settings.user)
    left = [(task, sample) for task, sample in settings.tasks() if (task.id, sample) not in done]

    async def keep(item: tuple[Task, int]) -> None:
        fault = ""
        for number in range(1, ATTEMPTS + 1):
            try:
                line = {"attempts": number, **await play(endpoint, settings, item[0], user)}
                return store.add({"task_id": item[0].id, "sample": item[1], "part": item[0].part, **line})
            except EndpointFault as error:
                fault = str(error)
            except (ToolUnavailable, UserFault) as error:
                fault = f"the {'user' if isinstance(error, UserFault) else 'tools'}: {error}"
        raise EndpointFault(fault)

    bar = tqdm(desc="playing", total=len(done) + len(left), initial=len(done), unit="episode", mininterval=1)
    return [
        {"task_id": task.id, "category": task.category, "sample": sample, "reason": reason}
        for (task, sample), reason in await each(left, keep, concurrency, bar)
    ]


async def play_episode(endpoint: Endpoint, settings: Settings, task: Task, user: User | None = None) -> dict[str, Any]:
    """One episode from its first to its last message, with the tokens that the server counted.

    Raises:
        EndpointFault: the server did not answer.
        UserFault: the user said nothing that the environment can use.
        EndpointRefusal: the server never will answer, or nobody plays the user.
        ContextFull: the context is too small for this task.
    """
    tokens = {"prompt_tokens": 0, "completion_tokens": 0}
    conversation = settings.conversation(task)
    try:
        messages = (await begin(conversation, user)).messages
        opening = len(messages)
        while not conversation.done:
            began = perf_counter()
            try:
                said = await endpoint.complete(messages)
            except ContextFull:
                if len(messages) == opening:
                    raise
                await beside(conversation, conversation.stop, StopReason.max_tokens)
                break
            tokens["prompt_tokens"] += said.prompt_tokens
            tokens["completion_tokens"] += said.completion_tokens
            took = round(perf_counter() - began, 4)
            reply = await beside(conversation, conversation.reply, said.text, said.truncated, None, took)
            reply = await hear(conversation, reply, user)
            messages = [*messages, {"role": "assistant", "content": said.text}, *reply.messages]
        return {**tokens, "episode": conversation.record().to_dict()}
    finally:
        await leave(conversation)


async def leave(conversation: Conversation) -> None:
    """Close it; after an interrupt within `LEAVE_SECONDS`, or not at all."""
    task = asyncio.current_task()
    with suppress(TimeoutError):
        interrupted = task is not None and task.cancelling()
        await asyncio.wait_for(beside(conversation, conversation.close), LEAVE_SECONDS if interrupted else None)


async def beside(conversation: Conversation, function: Callable[..., T], *args: Any) -> T:
    """What a conversation does; in a thread, where its environment waits."""
    if not conversation.waits:
        return function(*args)
    return await asyncio.get_running_loop().run_in_executor(_WAITING, function, *args)


async def begin(conversation: Conversation, user: User | None) -> Reply:
    """The first request. Raises EndpointFault if the environment could not begin; else as `hear`."""
    opening = await hear(conversation, await beside(conversation, conversation.begin), user)
    if conversation.done:
        raise EndpointFault(f"the environment could not begin: {conversation.record().fault}")
    return opening


async def hear(conversation: Conversation, reply: Reply, user: User | None) -> Reply:
    """What the environment says once its user was heard, where it asks for one. Raises as `play_episode`."""
    while reply.ask is not None:
        if user is None:
            raise EndpointRefusal(f"{conversation.task.environment} asks for a user's words: give --user kind=...")
        began = perf_counter()
        words = await user.say(reply.ask)
        reply = await beside(conversation, conversation.hear, words, round(perf_counter() - began, 4))
    return reply
