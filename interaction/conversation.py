"""One episode of conversation: a state machine over user turns and the model's messages within them.

Knows nothing of tokens, engines or rewards. The caller passes the model's text in and gets chat messages out:

    with Conversation(scenario, protocol=get_protocol("think_xml")) as conversation:
        messages = conversation.start()
        while not conversation.done:
            reply = conversation.reply(model(messages))
            messages = reply.messages
    record = conversation.record()

Whatever a model writes, `reply` does not raise. A fault inside the environment ends the episode with
`environment_error` and is logged; only misuse of this class (a reply before the start or after the end) raises.
"""

from __future__ import annotations

import logging
from copy import deepcopy
from dataclasses import dataclass, field, replace
from time import perf_counter
from types import TracebackType
from typing import Any, Self

from bfcl_env import Call, Episode, Scenario

from .policy import TurnPolicy
from .protocol import FormatError, Message, Parsed, Protocol
from .record import CallRecord, EpisodeRecord, StepRecord, StopReason, TurnEnd, TurnRecord

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reply:
    """What the environment says to one assistant message."""

    messages: list[Message]
    """To append to the conversation; empty when it is done."""
    done: bool
    stop_reason: StopReason | None = None


@dataclass(slots=True)
class _TurnState:
    """A user turn while it is played; becomes a TurnRecord."""

    user: str
    gold_calls: int
    reached: bool = False
    closeness: float | None = None
    ended: TurnEnd | None = None
    passed: bool = False
    passed_official: bool = False
    difference: tuple[dict[str, str], ...] = ()
    steps: list[StepRecord] = field(default_factory=list)
    format_errors: int = 0

    def record(self) -> TurnRecord:
        return TurnRecord(
            user=self.user,
            has_gold=self.gold_calls > 0,
            gold_calls=self.gold_calls,
            reached=self.reached,
            closeness=self.closeness,
            ended=None if self.ended is None else self.ended.value,
            passed=self.passed,
            passed_official=self.passed_official,
            difference=self.difference,
            steps=tuple(self.steps),
        )


class Conversation:
    """Plays `scenario` with one model. Single use: start, reply until done, record, close.

    `settings` are those of `TurnPolicy`, by name.

    Raises ValueError, naming setting and value, for a setting that is not one of these.
    """

    def __init__(self, scenario: Scenario, protocol: Protocol, **settings: Any) -> None:
        self.scenario = scenario
        self.protocol = protocol
        self.policy = TurnPolicy(**settings)
        self.stop_reason: StopReason | None = None
        self._fault: str | None = None
        self._episode: Episode | None = None
        self._started = False
        self._position = 0
        self._turns = [_TurnState(turn.user, len(turn.gold)) for turn in scenario.turns]

    @property
    def done(self) -> bool:
        return self.stop_reason is not None

    @property
    def turn(self) -> int:
        """The user turn being played, from 0."""
        return self._position

    def start(self) -> list[Message]:
        """System prompt and first user request. The environment is made at the first reply, which meets faults."""
        if self._started or self.done:
            raise RuntimeError("this conversation has already been started or closed; make a new one per episode")
        self._started = True
        self._turns[0].reached = True
        return self.protocol.opening(self.scenario.functions(0), self.scenario.turns[0].user)

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
        the record. Raises RuntimeError before start and after the end.
        """
        began = perf_counter()
        if not self._started or self.done:
            raise RuntimeError(
                f"the conversation ended with {self.stop_reason}; it takes no further reply"
                if self.done
                else "call start() before reply()"
            )
        steps = self._turns[self._position].steps
        before = len(steps)
        try:
            return self._take(assistant_text.encode("utf-8", "replace").decode("utf-8"), truncated)
        finally:
            if len(steps) > before:  # no step was kept if the environment could not even be made
                took = perf_counter() - began
                steps[-1] = replace(
                    steps[-1], tokens=tokens, generate_seconds=generate_seconds, environment_seconds=round(took, 6)
                )

    def _take(self, text: str, truncated: bool) -> Reply:
        if truncated:
            self._keep(text, Parsed(error=FormatError.truncated))
            return self._end(StopReason.max_tokens)
        parsed = self.protocol.parse(text)
        try:
            return self._advance(text, parsed)
        except Exception as fault:
            self._fail(fault)
            return self._end(StopReason.environment_error)

    def stop(self, reason: StopReason, fault: str | None = None) -> None:
        """End the episode from outside. The running turn and those not reached do not pass. Does nothing when done."""
        if not self.done:
            self.stop_reason = StopReason(reason)
            self._fault = self._fault or fault
            if self._started and self._turns[self._position].ended is None:
                self._turns[self._position].ended = TurnEnd.cut
        self._release()

    def close(self) -> None:
        """Free the environment; may be called twice. A conversation closed before its end was abandoned."""
        self.stop(StopReason.infrastructure, fault="closed before its end")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def record(self) -> EpisodeRecord:
        """What happened so far; after the end, the whole episode."""
        return EpisodeRecord(
            scenario_id=self.scenario.id,
            category=self.scenario.category,
            protocol=self.protocol.name,
            augment=self.policy.augment,
            turns=tuple(turn.record() for turn in self._turns),
            stop_reason=self.stop_reason,
            fault=self._fault,
        )

    # One message.

    def _advance(self, text: str, parsed: Parsed) -> Reply:
        turn = self._turns[self._position]
        if self._episode is None:
            self._episode = Episode(self.scenario, augment=self.policy.augment, withheld=self.policy.withheld)
        if parsed.error is not None:
            self._keep(text, parsed)
            turn.format_errors += 1
            if turn.format_errors > self.policy.max_format_errors_per_turn:
                return self._judge_and_end(StopReason.format_errors)
            messages = self.protocol.feedback(parsed)
        elif parsed.answer is not None:
            self._keep(text, parsed)
            return self._next_turn()
        else:
            messages = self.protocol.results(self._run(text, parsed))
        official = self.policy.at_step_limit == "official"
        if len(turn.steps) < self.policy.max_steps_per_turn + official:
            return Reply(messages, done=False)
        if official and self._position + 1 < len(self._turns):
            return self._end(StopReason.max_steps)
        return self._judge_and_end(StopReason.max_steps)

    def _run(self, text: str, parsed: Parsed) -> list[str]:
        """Execute all calls in order. A step whose execution breaks off is recorded with the calls that ran."""
        assert self._episode is not None
        turn = self._turns[self._position]
        if turn.closeness is None:
            turn.closeness = self._episode.closeness()
        calls: list[CallRecord] = []
        closeness = None
        try:
            for call in parsed.calls:
                calls.append(self._execute(call))
            closeness = self._episode.closeness()
        finally:
            self._keep(text, parsed, tuple(calls), closeness)
        return [call.result if call.shown is None else call.shown for call in calls]

    def _execute(self, call: Call) -> CallRecord:
        assert self._episode is not None
        arguments = deepcopy(call.arguments)  # BFCL's classes keep lists they are given, and change them later
        result = self._episode.execute(call)
        shown = cut(result.text, self.policy.max_result_chars)
        if result.hint:
            shown = f"{shown} Hint: {result.hint}"
        return CallRecord(
            name=call.name,
            arguments=arguments,
            result=result.text,
            shown=None if shown == result.text else shown,
            error=None if result.error is None else str(result.error),
            hint=result.hint or None,
            gold=self._episode.credit(call, result),
        )

    def _keep(
        self, text: str, parsed: Parsed, calls: tuple[CallRecord, ...] = (), closeness: float | None = None
    ) -> None:
        self._turns[self._position].steps.append(
            StepRecord(
                text=text,
                well_formed=parsed.well_formed,
                format_error=None if parsed.error is None else parsed.error.value,
                thought=parsed.thought,
                answer=parsed.answer,
                calls=calls,
                closeness=closeness,
            )
        )

    # Turns and the end.

    def _next_turn(self) -> Reply:
        self._judge(TurnEnd.answer)
        if self._position + 1 == len(self._turns):
            return self._end(StopReason.completed)
        self._position += 1
        self._turns[self._position].reached = True
        turn = self.scenario.turns[self._position]
        shown = self.scenario.functions(self._position) if turn.revealed else []
        revealed = [function for function in shown if function["name"] in turn.revealed]
        return Reply(self.protocol.user_turn(turn.user, revealed), done=False)

    def _judge(self, ended: TurnEnd) -> None:
        assert self._episode is not None
        verdict = self._episode.end_turn(answered=ended is TurnEnd.answer)
        turn = self._turns[self._position]
        turn.ended = ended
        turn.passed_official = bool(verdict.passed_official)
        by_bfcl = self.policy.empty_gold == "official" and not turn.gold_calls
        turn.passed = turn.passed_official if by_bfcl else bool(verdict.passed)
        turn.difference = tuple(verdict.difference)

    def _judge_and_end(self, reason: StopReason) -> Reply:
        self._judge(TurnEnd.limit)
        return self._end(reason)

    def _end(self, reason: StopReason) -> Reply:
        self.stop(reason)
        return Reply([], done=True, stop_reason=self.stop_reason)

    def _fail(self, fault: Exception) -> None:
        logger.exception("environment fault in %s, turn %d", self.scenario.id, self._position)
        self.stop(StopReason.environment_error, fault=f"{type(fault).__name__}: {fault}"[:500])

    def _release(self) -> None:
        """Close the environment. A fault here changes nothing about the episode, so it is only logged."""
        episode, self._episode = self._episode, None
        if episode is not None:
            try:
                episode.close()
            except Exception:
                logger.exception("environment fault while closing %s", self.scenario.id)


def cut(text: str, max_chars: int | None) -> str:
    """The first `max_chars` characters, and after them a mark that says how much is missing."""
    if max_chars is None or len(text) <= max_chars:
        return text
    return f"{text[:max_chars]}... [{len(text) - max_chars} more characters]"
