"""One episode through an endpoint, message after message."""

from time import perf_counter
from typing import Any

from interaction import Conversation, StopReason
from interaction.conversation import Reply
from interaction.endpoint.client import ContextFull, Endpoint, EndpointFault, EndpointRefusal
from interaction.environment import Task
from interaction.users import User
from recipe.evaluation.store import Settings

NO_USER = "the environment {} asks for the words of a user: say with --user who plays it, such as --user kind=..."


class PromptTooLong(Exception):
    """The server's context does not hold the first request: nothing that the model has said is too much."""


async def play_episode(endpoint: Endpoint, settings: Settings, task: Task, user: User | None = None) -> dict[str, Any]:
    """One episode from its first to its last message, with the tokens that the server counted.

    Raises:
        EndpointFault: the server did not answer.
        UserFault: whoever plays the user said nothing, or nothing that the environment can use.
        EndpointRefusal: the server never will answer, or nobody plays the user.
        PromptTooLong: the context is too small for this task.
    """
    tokens = {"prompt_tokens": 0, "completion_tokens": 0}
    with settings.conversation(task) as conversation:
        messages = (await begin(conversation, user)).messages
        opening = len(messages)
        while not conversation.done:
            began = perf_counter()
            try:
                said = await endpoint.complete(messages)
            except ContextFull as full:
                if len(messages) == opening:
                    raise PromptTooLong(str(full)) from full
                conversation.stop(StopReason.max_tokens)
                break
            tokens["prompt_tokens"] += said.prompt_tokens
            tokens["completion_tokens"] += said.completion_tokens
            took = round(perf_counter() - began, 4)
            reply = conversation.reply(said.text, truncated=said.truncated, generate_seconds=took)
            reply = await hear(conversation, reply, user)
            messages = [*messages, {"role": "assistant", "content": said.text}, *reply.messages]
        return {**tokens, "episode": conversation.record().to_dict()}


async def begin(conversation: Conversation, user: User | None) -> Reply:
    """The first request.

    Raises:
        EndpointFault: the environment could not begin.
        UserFault, EndpointRefusal: as `play_episode`.
    """
    opening = await hear(conversation, conversation.begin(), user)
    if conversation.done:
        raise EndpointFault(f"the environment could not begin: {conversation.record().fault}")
    return opening


async def hear(conversation: Conversation, reply: Reply, user: User | None) -> Reply:
    """What the environment says once its user was heard, where it asks for one.

    Raises:
        UserFault, EndpointRefusal: as `play_episode`.
    """
    while reply.ask is not None:
        if user is None:
            raise EndpointRefusal(NO_USER.format(conversation.task.environment))
        began = perf_counter()
        words = await user.say(reply.ask)
        reply = conversation.hear(words, round(perf_counter() - began, 4))
    return reply
