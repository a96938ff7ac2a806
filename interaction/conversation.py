"""One episode of conversation: a state machine over user turns and the model's steps within them.

It knows nothing of tokens, engines or rewards, and does no input or output:

    with Conversation(task, protocol=get_protocol("think_xml")) as conversation:
        messages = conversation.start()
        while not conversation.done:
            messages = conversation.reply(model(messages)).messages
    record = conversation.record()

Where a model plays the user too, a reply asks for its words (`Reply.ask`), and `hear` takes them.

Whatever a model writes, `reply` does not raise. `hear` raises `UserFault` for words that the environment cannot use,
and any method `ToolUnavailable` where a service behind the tools fails: the caller plays the episode again. Another
fault inside the environment is logged and ends the episode with `environment_error`. Otherwise only misuse of this
class raises.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from threading import RLock
from time import perf_counter
from types import TracebackType
from typing import Any, Self

from .boundary import Hangs, ToolUnavailable, UserCodeError, raised
from .call import Call
from .environment import AskUser, Environment, EnvironmentBase, Request, Task, UserFault, opened, read_options, waits
from .masked import masked
from .outcome import ToolResult, Verdicts
from .policy import TurnPolicy
from .protocol import FormatError, Message, Parsed, Protocol
from .record import CallRecord, EpisodeRecord, Outcome, StepRecord, StopReason, Turn, TurnEnd, turn_records
from .words import MAX_WORDS, cut

logger = logging.getLogger(__name__)

UNFINISHED = (StopReason.max_tokens, StopReason.environment_error, StopReason.infrastructure)
"""Ends with which no episode passes, however things stood; nor does one whose last turn was cut."""

GAVE_UP = "gave_up"
"""What is wrong with a message that gives up, in a protocol that has words for it."""

NOT_RUN = "not run: one call a message"
"""The result of a call after the first, where only the first is run."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the environment says to one message of the model, or to the words of a user model."""

    messages: list[Message]
    """To append to the conversation; empty when it is done, and when the user has to be asked."""
    done: bool
    stop_reason: StopReason | None = None
    ask: AskUser | None = None
    """Whom to ask before the conversation goes on with `hear`."""
    wrong: str | None = None
    """What the model can see was wrong with its message: a format error, the kind of error of a call, `GAVE_UP`. Says
    nothing of what the environment thinks of it."""


class Conversation:
    """Plays `task` with one model. Single use: start, reply until done, record, close.

    `settings` are those of `TurnPolicy`, by name.

    Raises ValueError, naming setting and value, for a setting that is not one of these.
    """

    def __init__(self, task: Task, protocol: Protocol, **settings: Any) -> None:
        self.task = task
        self.protocol = protocol
        self.policy = TurnPolicy(**settings)
        self.options = read_options(task.environment, self.policy.environments.get(task.environment, {}))
        self.stop_reason: StopReason | None = None
        self.given = 0
        """First turns that are gold's (`interaction.gold.play_first`)."""
        self._fault: str | None = None
        self._environment: Environment | None = None
        self._verdicts: Verdicts | None = None
        self._asking: AskUser | None = None
        self._started = False
        self._messages = 0
        self._busy = RLock()
        self._turns: list[Turn] = []
        self._heard: list[str] = []
        self._heard_seconds: list[float | None] = []

    @property
    def done(self) -> bool:
        return self.stop_reason is not None

    @property
    def waits(self) -> bool:
        """Whether its environment waits for something outside: other conversations then go on in other threads."""
        return waits(self.task)

    @property
    def asks(self) -> bool:
        """Whether the user has to be asked, and heard, before the model goes on."""
        return self._asking is not None

    @property
    def turn(self) -> int:
        """The user turn being played, from 0."""
        return max(len(self._turns) - 1, 0)

    def start(self) -> list[Message]:
        """System prompt and first user request; none if the environment failed, and then the conversation is done.

        Raises:
            RuntimeError: the first request has to be asked for (`begin`), or the conversation was begun before.
        """
        reply = self.begin()
        if reply.ask is not None:
            raise RuntimeError(f"the first words of {self.task.id} are those of a user model; begin with begin()")
        return reply.messages

    def begin(self) -> Reply:
        """As `start`, also where the first request has to be asked for.

        Raises:
            RuntimeError: the conversation was begun or closed before.
        """
        if self._started or self.done:
            raise RuntimeError("this conversation has already been started or closed; make a new one per episode")
        self._started = True
        return self._guarded(lambda _: self._open())

    def reply(
        self,
        assistant_text: str,
        truncated: bool = False,
        tokens: tuple[int, int] | None = None,
        generate_seconds: float | None = None,
    ) -> Reply:
        """Take one message of the model, run its calls, and say what comes next.

        `truncated` says that the message was cut by the token budget: it is malformed whatever it looks like,
        nothing in it runs, and the episode ends with `max_tokens`. `tokens` and `generate_seconds` are only noted in
        the record. Raises RuntimeError before start, after the end, and while the user has to be asked.
        """
        began = perf_counter()
        self._require(asking=False)
        steps = self._turns[-1].steps
        reply = self._take(assistant_text.encode("utf-8", "replace").decode("utf-8"), truncated)
        took = round(perf_counter() - began, 6)
        steps[-1] = replace(steps[-1], tokens=tokens, generate_seconds=generate_seconds, environment_seconds=took)
        return reply

    def hear(self, words: str, seconds: float | None = None) -> Reply:
        """Take what the user model said to the last `Reply.ask`; `seconds`, how long it took, is only noted.

        Raises:
            UserFault: the environment cannot use it. The episode cannot go on.
            RuntimeError: nobody was asked.
        """
        self._require(asking=True)
        self._asking = None
        words = cut(words.encode("utf-8", "replace").decode("utf-8"), MAX_WORDS)
        self._heard.append(words)
        self._heard_seconds.append(seconds)
        return self._guarded(lambda environment: self._heard_by(environment, words), (UserFault,))

    def stop(self, reason: StopReason, fault: str | None = None) -> None:
        """End the episode from outside. The running turn and those not reached do not pass. Does nothing when done."""
        if not self.done:
            self.stop_reason = StopReason(reason)
            self._fault = self._fault or fault
            if self._turns and self._turns[-1].ended is None:
                self._turns[-1].ended = TurnEnd.cut
        self._release()

    def close(self) -> None:
        """Free the environment, after a call that still runs; may be called twice. Before its end: abandoned."""
        with self._busy, suppress(ToolUnavailable):
            self.stop(StopReason.infrastructure, fault="closed before its end")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def record(self) -> EpisodeRecord:
        """What happened so far; after the end, the whole episode."""
        judged = self._judgement()
        outcome = None
        if judged is not None and self.done:
            unfinished = self.stop_reason in UNFINISHED or any(turn.ended is TurnEnd.cut for turn in self._turns)
            outcome = Outcome(bool(judged.passed) and not unfinished, dict(judged.components))
        turns = turn_records(self._turns, judged)
        return EpisodeRecord(
            environment=self.task.environment,
            task_id=self.task.id,
            category=self.task.category,
            protocol=self.protocol.name,
            options=masked(self.options),
            turns=turns[self.given :],
            given=turns[: self.given],
            heard=tuple(self._heard),
            heard_seconds=tuple(self._heard_seconds),
            outcome=outcome,
            stop_reason=self.stop_reason,
            fault=self._fault,
            facts={} if judged is None else dict(judged.facts),
        )

    def record_if_cut(self) -> EpisodeRecord:
        """The record that the episode gets if a token budget ends it here; after its end, its record."""
        record = self.record()
        if self.done:
            return record
        turns = tuple(
            replace(turn, ended=TurnEnd.cut.value, passed=None if turn.passed is None else False)
            if turn.reached and turn.ended is None
            else turn
            for turn in record.turns
        )
        components = {} if self._verdicts is None else dict(self._verdicts.components)
        return replace(record, turns=turns, outcome=Outcome(False, components), stop_reason=StopReason.max_tokens)

    # One message.

    def _require(self, asking: bool) -> None:
        if not self._started:
            raise RuntimeError("call start() before reply()")
        if self.done:
            raise RuntimeError(f"the conversation ended with {self.stop_reason}; it takes no further reply")
        if asking != self.asks:
            raise RuntimeError("the user has to be asked, and heard, first" if self.asks else "nobody was asked")

    def _open(self) -> Reply:
        self._environment = opened(self.task, self.options, self.policy.call_timeout)
        return self._go_on(self._environment.begin())

    def _guarded(self, step: Callable[[Any], Reply], passing: tuple[type[Exception], ...] = ()) -> Reply:
        """The reply of `step(environment)`. A fault of the environment ends the episode; `passing` are raised."""
        not_ours: tuple[type[Exception], ...] = (*passing, ToolUnavailable)
        try:
            with self._busy:
                return step(self._environment)
        except not_ours:
            raise
        except Exception as fault:
            self._note(fault, f"turn {self.turn}")
            self.stop(StopReason.environment_error, fault=raised(fault))
            return Reply([], done=True, stop_reason=self.stop_reason)

    def _take(self, text: str, truncated: bool) -> Reply:
        steps = self._turns[-1].steps
        if truncated:
            self._keep(text, Parsed(error=FormatError.truncated))
            return replace(self._end(StopReason.max_tokens), wrong=steps[-1].error)
        parsed = self.protocol.parse(text)
        reply = self._guarded(lambda environment: self._advance(environment, text, parsed))
        return replace(reply, wrong=GAVE_UP if parsed.gave_up else steps[-1].error)

    def _advance(self, environment: Environment, text: str, parsed: Parsed) -> Reply:
        turn = self._turns[-1]
        if parsed.answer is not None:
            self._keep(text, parsed)
            following = environment.answer(parsed.answer)
            turn.ended = TurnEnd.answer
            return self._go_on(following)
        surplus = max(0, len(parsed.calls) - 1) if self.policy.calls_per_message == "first" else 0
        if surplus:
            parsed = replace(parsed, calls=parsed.calls[:1], error=FormatError.too_many_calls)
        if parsed.calls:
            messages = self.protocol.results([*self._run(environment, text, parsed), *[NOT_RUN] * surplus])
        else:
            self._keep(text, parsed)
            messages = self.protocol.feedback(parsed)
        if (reason := environment.over) is not None:
            turn.ended = TurnEnd.over
            return self._end(reason)
        turn.format_errors += parsed.error is not None
        if turn.format_errors > self.policy.max_format_errors_per_turn:
            return self._cut(environment, StopReason.format_errors)
        if len(turn.steps) < self.policy.max_steps_per_turn and not self._used_up:
            return Reply(messages, done=False)
        return self._cut(environment, StopReason.max_steps)

    @property
    def _used_up(self) -> bool:
        """Whether the episode has had all its messages: the model's, or those of all."""
        steps, most = sum(len(turn.steps) for turn in self._turns), self.policy.max_messages
        return steps == self.policy.max_steps or (most is not None and self._messages >= most)

    def _run(self, environment: Environment, text: str, parsed: Parsed) -> list[str]:
        """Execute all calls in order. A step whose execution breaks off is recorded with the calls that ran."""
        calls: list[CallRecord] = []
        facts: dict[str, Any] = {}
        try:
            if parsed.beside and isinstance(environment, EnvironmentBase):
                environment.beside(parsed.beside)
            if len(parsed.calls) > 1 and isinstance(environment, EnvironmentBase) and environment.parallel:
                calls += map(self._kept_call, parsed.calls, environment.call_all(parsed.calls))
            else:
                for call in parsed.calls:
                    calls.append(self._execute(environment, call))
            facts = dict(environment.facts())
        finally:
            self._keep(text, parsed, tuple(calls), facts)
        return [call.result if call.shown is None else call.shown for call in calls]

    def _execute(self, environment: Environment, call: Call) -> CallRecord:
        given = replace(call, arguments=deepcopy(call.arguments))  # an environment may keep lists and change them later
        return self._kept_call(given, environment.call(call))

    def _kept_call(self, call: Call, result: ToolResult) -> CallRecord:
        if not isinstance(result, ToolResult) or not isinstance(result.text, str):
            raise TypeError(f"call() gave {type(result).__name__}; expected a ToolResult with a text")
        shown = cut(result.text, self.policy.max_result_chars)
        if result.hint:
            shown = f"{shown} Hint: {result.hint}"
        return CallRecord(
            name=call.name,
            arguments=call.arguments,
            result=result.text,
            shown=None if shown == result.text else shown,
            error=None if result.error is None else str(result.error),
            hint=result.hint or None,
            facts=dict(result.facts),
        )

    def _keep(
        self, text: str, parsed: Parsed, calls: tuple[CallRecord, ...] = (), facts: dict[str, Any] | None = None
    ) -> None:
        self._messages += 1 if parsed.answer is not None else 2  # calls are answered, and so is what is malformed
        self._turns[-1].steps.append(
            StepRecord(
                text=text,
                well_formed=parsed.well_formed,
                format_error=None if parsed.error is None else parsed.error.value,
                thought=parsed.thought,
                answer=parsed.answer,
                calls=calls,
                facts=facts or {},
            )
        )

    # Turns and the end.

    def _heard_by(self, environment: Environment, words: str) -> Reply:
        following = environment.hear(words)
        self._messages += 2 * isinstance(following, AskUser)  # a call on the user's device, and its result
        return self._go_on(following)

    def _go_on(self, following: Request | AskUser | None) -> Reply:
        if following is None:
            over = None if self._environment is None else self._environment.over
            return self._end(over or StopReason.completed)
        self._messages += isinstance(following, Request)
        if self._used_up and self._environment is not None:
            self._environment.cut(StopReason.max_steps)
            return self._end(StopReason.max_steps)
        if isinstance(following, AskUser):
            self._asking = replace(following, task_id=self.task.id, heard=len(self._heard))
            return Reply([], done=False, ask=self._asking)
        if not isinstance(following, Request):
            raise TypeError(f"{type(following).__name__} is to follow; expected a Request, an AskUser or None")
        functions = list(map(dict, following.functions))
        self._turns.append(Turn(following.user))
        if len(self._turns) == 1:
            return Reply(self.protocol.opening(functions, following.user, following.policy), done=False)
        return Reply(self.protocol.user_turn(following.user, functions), done=False)

    def _cut(self, environment: Environment, reason: StopReason) -> Reply:
        judged = environment.cut(reason)
        if judged not in (True, False):
            raise TypeError(f"cut() gave {judged!r}; expected True where the turn was judged, or False")
        self._turns[-1].ended = TurnEnd.limit if judged else TurnEnd.cut
        return self._end(reason)

    def _end(self, reason: StopReason) -> Reply:
        self.stop(reason)
        return Reply([], done=True, stop_reason=self.stop_reason)

    def _judgement(self) -> Verdicts | None:
        """The environment's verdicts as they stand, or those it had when it was freed; None where it has none."""
        if self._environment is not None:
            try:
                found = self._environment.verdicts()
                if not isinstance(found, Verdicts):
                    raise TypeError(f"verdicts() gave {type(found).__name__}; expected Verdicts")
                for passed in (found.passed, *(turn.passed for turn in found.turns)):
                    if passed not in (True, False, None):  # a text would count as true
                        raise TypeError(f"verdicts() has passed={passed!r}; expected True, False or None")
                self._verdicts = found
            except ToolUnavailable:
                raise
            except Exception as fault:
                self._note(fault, "its verdicts")
                self.stop_reason = self.stop_reason and StopReason.environment_error
                self._fault = self._fault or raised(fault)
        return self._verdicts

    def _release(self) -> None:
        """Close the environment. A fault here changes nothing about the episode, so it is only logged."""
        try:
            self._judgement()
        finally:
            environment, self._environment = self._environment, None
            try:
                if environment is not None:
                    environment.close()
            except Exception as fault:
                self._note(fault, "its end")

    def _note(self, fault: Exception, where: str) -> None:
        """Log a fault in one line, an exception with its traceback. A hanging environment is not called again."""
        trace = not isinstance(fault, UserCodeError)
        logger.error("environment fault in %s, %s: %s", self.task.id, where, raised(fault), exc_info=trace)
        if isinstance(fault, Hangs):
            self._environment = None
