"""Gold played as a conversation: what a model that does everything right would write, and how it begins."""

import json
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial, wraps
from itertools import chain, islice, repeat
from random import Random
from typing import Any, ParamSpec, TypeVar

from interaction.boundary import ToolUnavailable
from interaction.call import Call, copy_call
from interaction.contract import ContractError, called
from interaction.conversation import Conversation, Reply
from interaction.environment import AskUser, GoldMessage, Request, Task, UserFault, UserWords, opened, task_name, waits
from interaction.policy import FromGold
from interaction.protocol import Message, Protocol, get_protocol
from interaction.record import EpisodeRecord, StopReason

T = TypeVar("T")
P = ParamSpec("P")

GREETING = "Hello, I need your help."
"""What a user who speaks first, and of whom gold has no words, is taken to say."""
MOST_WORDS = 20
"""So often the user is heard before the first request."""
AT_ONCE = 64
"""Tasks that wait, beside each other."""
ATTEMPTS = 3
"""So often an episode is played at most, where a service behind its tools fails."""
NOTHING = Call("nothing", {"x": [1]})
"""A function that no task has, with an argument that a dictionary cannot have as a key: a model may write both."""


def beside_each_other(
    work: Callable[[Any], T], items: Sequence[Any], waiting: Callable[[Any], bool] = waits
) -> list[T]:
    """What work with each item gives; with those that wait, at once with `AT_ONCE` others."""
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        begun = [pool.submit(work, item) if waiting(item) else None for item in items]
        return [work(item) if later is None else later.result() for item, later in zip(items, begun, strict=True)]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def played_again(play: Callable[P, T]) -> Callable[P, T]:
    """A play from the beginning, which begins anew where a service fails, up to `ATTEMPTS` times in all."""

    @wraps(play)
    def attempts(*args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(ATTEMPTS - 1):
            with suppress(ToolUnavailable):
                return play(*args, **kwargs)
        return play(*args, **kwargs)

    return attempts


def hear_gold(conversation: Conversation, words: str) -> Reply:
    """As `Conversation.hear`, for words that no model made up: if they cannot be used, the environment has failed."""
    try:
        return conversation.hear(words)
    except UserFault as fault:
        conversation.stop(StopReason.environment_error, fault=f"it cannot use {words[:80]!r}: {fault}"[:500])
        return Reply([], done=True, stop_reason=conversation.stop_reason)


@played_again
def opening(task: Task, protocol: Protocol, **settings: Any) -> list[Message]:
    """The messages that a conversation begins with.

    Where the user has to be asked for the first words they are gold's, or a greeting, so that the messages are about as
    long as those of an episode. None where the environment failed, or never stopped asking.

    Args:
        settings: those of the turn policy.
    """
    words = _words(task)
    with Conversation(task, protocol=protocol, **settings) as conversation:
        reply = conversation.begin()
        while reply.ask is not None and reply.ask.heard < MOST_WORDS:
            reply = hear_gold(conversation, next(words))
        return reply.messages


def _words(task: Task) -> Iterator[str]:
    return chain((item.text for item in task.gold() if isinstance(item, UserWords)), repeat(GREETING))


def first_request(task: Task, **options: Any) -> Request:
    """What an attempt begins with, for its policy and functions; the user's first words as in `opening`.

    Args:
        options: those of the environment.

    Raises:
        ValueError: it ends with its first message, or never stops asking.
    """
    attempt = opened(task, options)
    try:
        said: Request | AskUser | None = attempt.begin()
        if attempt.over is not None:
            raise ValueError(f"{task.id} ends with the first message of the model")
        for words in islice(_words(task), MOST_WORDS):
            if isinstance(said, Request):
                return said
            said = attempt.hear(words)
        raise ValueError(f"{task.id} has no request after {MOST_WORDS} words of its user")
    finally:
        attempt.close()


@played_again
def play_gold(task: Task, protocol: Protocol, **settings: Any) -> tuple[list[Message], EpisodeRecord]:
    """The whole gold conversation, from the system prompt to the last message, and its record.

    Thoughts name the functions that are called. A task without gold ends as an abandoned one.

    Args:
        settings: those of the turn policy.

    Raises:
        RuntimeError: gold goes on after the end, speaks before its user was heard, or has words that nobody asks for.
    """
    messages: list[Message] = []
    with Conversation(task, protocol=protocol, **settings) as conversation:
        messages += conversation.begin().messages
        given = 0
        for item in task.gold():
            given += 1
            if conversation.stop_reason is StopReason.environment_error:
                break
            try:
                if isinstance(item, UserWords):
                    messages += hear_gold(conversation, item.text).messages
                    continue
                text = _text(item, protocol)
                messages += [{"role": "assistant", "content": text}, *conversation.reply(text).messages]
            except ToolUnavailable:
                raise
            except RuntimeError as error:
                raise RuntimeError(f"gold of {task_name(task.environment, task.id)}: {error}") from error
        if given and not conversation.done:
            conversation.stop(StopReason.infrastructure, fault=f"gold ends after {given} messages, before the episode")
    return messages, conversation.record()


def gold_turns(task: Task) -> list[list[GoldMessage]]:
    """Gold's messages by user turn: each turn ends with an answer, or with the conversation."""
    turns: list[list[GoldMessage]] = [[]]
    for item in task.gold():
        if isinstance(item, GoldMessage):
            turns[-1].append(item)
            if not item.calls:
                turns.append([])
    return [turn for turn in turns if turn]


def most_given(task: Task) -> int:
    """First turns that gold may play for the model: a turn with calls is left. 0 where a model plays the user."""
    working = [number for number, turn in enumerate(gold_turns(task)) if turn[0].calls]
    return 0 if not working or any(isinstance(item, UserWords) for item in task.gold()) else working[-1]


def given_turns(conversation: Conversation, settings: FromGold, step: int) -> int:
    """How many first turns gold plays for the model in a step of training, from 1: the same for all its attempts.

    A share that is no whole number of turns is rounded up or down by chance, which task and step decide. None of a task
    that is judged as a whole: what gold did would be paid.
    """
    task = conversation.task
    if not (most := may_be_given(conversation)):
        return 0
    share = settings.share * max(0.0, 1 - (step - 1) / settings.steps)
    whole = share * len(gold_turns(task)) + Random(f"{step} {task_name(task.environment, task.id)}").random()
    return min(int(whole), most)


def may_be_given(conversation: Conversation) -> int:
    """First turns that gold may play for the model in a conversation that has begun; 0 where turns are not judged."""
    judged = all(turn.passed is not None for turn in conversation.record().turns)
    return most_given(conversation.task) if judged else 0


def play_first(conversation: Conversation, turns: int) -> list[tuple[str, list[Message]]]:
    """Play gold's first turns of a conversation that has begun; they are then no turns of its record.

    Returns:
        Gold's messages, each with what the environment says to it.

    Raises:
        RuntimeError: the conversation ends within them, or one of them does not pass.
    """
    said, gold = list[tuple[str, list[Message]]](), iter(conversation.task.gold())
    while conversation.turn < turns:
        item = next(gold)
        text = _text(item, conversation.protocol) if isinstance(item, GoldMessage) else ""
        said.append((text, conversation.reply(text).messages))
    if not all(turn.passed for turn in conversation.record().turns[:turns]):
        raise RuntimeError(f"gold does not pass the first {turns} turns of {conversation.task.id} by this turn policy")
    conversation.given = turns
    return said


def unwritable(task: Task, protocol: Protocol) -> str | None:
    """Why gold of a task cannot be written in a protocol, which no model can then; None if it can."""
    messages = [item for item in task.gold() if isinstance(item, GoldMessage)]
    try:
        for message in messages:
            _text(message, protocol)
    except ValueError as error:
        return str(error)
    return None


def _text(message: GoldMessage, protocol: Protocol) -> str:
    """The message in a protocol. Raises ValueError for what that cannot write."""
    thought = (", ".join(call.name for call in message.calls) or message.answer) * protocol.gold_thinks
    if message.calls:
        return protocol.render_calls(thought, message.calls)
    return protocol.render_answer(thought, message.answer)


def check_gold(task: Task) -> list[GoldMessage | UserWords]:
    """Gold of a task of a user's, as a list.

    Raises:
        ContractError: it is not what it should be.
    """

    def checked() -> list[GoldMessage | UserWords]:
        items = list(task.gold())
        for item in items:
            if not isinstance(item, GoldMessage | UserWords):
                raise ContractError(f"{item!r:.80} is among it; expected GoldMessage or UserWords")
        for call in (call for item in items if isinstance(item, GoldMessage) for call in item.calls):
            copy_call(call)
        return items

    return called(f"environment {task.environment}: task {task.id}: gold()", checked)


@played_again
def check_task(task: Task, options: Mapping[str, Any] | None = None) -> str | None:
    """Play an answer at once and a call that nothing knows on a task of a user's.

    Args:
        options: settings of the environment.

    Returns:
        A note where turns are judged but not listed from the beginning. A reward by turn then pays whoever stops early
        as if there were no more turns.

    Raises:
        ContractError: something raises, or is of another type than it should be.
    """
    protocol, gold = get_protocol("think_xml", docs="signature"), check_gold(task)
    where, listed = f"environment {task.environment}: task {task.id}", 0
    for text in (protocol.render_answer("t", "done"), protocol.render_calls("t", [NOTHING])):
        words = _words(task)
        environments = {task.environment: dict(options or {})}
        with Conversation(task, protocol, max_steps=1, environments=environments) as conversation:
            reply = conversation.begin()
            try:
                while reply.ask is not None and reply.ask.heard < MOST_WORDS:
                    reply = conversation.hear(next(words))
            except UserFault:
                break
            if not reply.done and reply.ask is None:
                listed = listed or len(conversation.record().turns)
                conversation.reply(text)
            try:
                record = conversation.record()
                json.dumps(record.to_dict(), allow_nan=False)
            except (TypeError, ValueError, AttributeError) as error:
                raise ContractError(f"{where}: its verdicts, facts or texts are no JSON: {error}") from error
        if record.stop_reason is StopReason.environment_error:
            raise ContractError(f"{where}: {record.fault}")
        judged = any(turn.reached and turn.passed is not None for turn in record.turns)
        said = [item for item in gold if isinstance(item, GoldMessage)]
        turns = sum(not item.calls for item in said) + bool(said and said[-1].calls)
        if listed < turns and turns > 1 and judged:
            return (
                f"{where}: verdicts() lists {listed} of {turns} turns before the first is played. List all from the "
                "beginning, or judge the episode alone (passed=None in each turn)"
            )
    return None


def check_attempts(task: Task, options: Mapping[str, Any] | None = None) -> EpisodeRecord | None:
    """The record of gold of a user's task, if it can be played. Raises ContractError if a second attempt may differ."""
    where, protocol = f"environment {task.environment}: task {task.id}", get_protocol("think_xml", docs="signature")
    if not check_gold(task) or unwritable(task, protocol):
        return None
    play = partial(play_gold, task, protocol, environments={task.environment: dict(options or {})})
    shared = partial(called, where, getattr(task, "shared_by_attempts", dict))
    limited = play if waits(task) else partial(called, where, play)  # of tools that wait each call has a limit
    before, (said, record), between = shared(), limited(), shared()
    (again, other), after = limited(), shared()
    before |= {name: between.get(name, b"") for name, value in before.items() if value == pickle.dumps(None)}  # unset
    if changed := [name for name in before if before[name] != after.get(name)]:
        what = f"{changed[0]}, or its defaults, which attempts share"
        raise ContractError(f"{where}: gold changes {what}. Use reset(), or fill it when the file is loaded")
    texts = () if waits(task) else zip(said, again, strict=False)  # a service may tell the time
    for one, two in (*texts, (record.outcome, other.outcome)):
        if one != two:
            raise ContractError(f"{where}: gold gives {one!r:.120}, then {two!r:.120}: attempts are not independent")
    return record
