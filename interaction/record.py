"""What happened in one episode, as data: the only thing that rewards, reports and evaluations read.

The record keeps facts and no scores. It is the same for all environments; what only one of them knows stands under
`facts`. Texts of results are the environment's own, before hints and truncation, so that a reward means the same
whatever the model was shown. Where the turns of a task are known beforehand, all are present, reached or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from itertools import zip_longest
from typing import Any, Literal

from pydantic import TypeAdapter

from .outcome import TurnResult, Verdicts

VERSION: Literal[3] = 3


class StopReason(StrEnum):
    """Why an episode ended. Logged one-hot as `stop/<reason>`."""

    completed = "completed"
    """Every user turn was ended by an answer."""
    max_steps = "max_steps"
    """A turn used all its messages without an answer."""
    max_tokens = "max_tokens"
    """The token budget ended, in the middle of a message or between two."""
    format_errors = "format_errors"
    """More malformed messages in one turn than allowed."""
    environment_error = "environment_error"
    """A fault of our environment, not of the model."""
    user_stop = "user_stop"
    """The user ended the conversation."""
    transfer = "transfer"
    """The model handed the user over to a person."""
    done = "done"
    """The environment ended the episode at a message of the model, as it does where there is one message only."""
    infrastructure = "infrastructure"
    """The engine failed, a user model failed, or the conversation was abandoned. Such an episode must not be scored."""


class TurnEnd(StrEnum):
    """How a user turn ended."""

    answer = "answer"
    """The model answered."""
    limit = "limit"
    """A limit of messages or format errors: judged as it stands."""
    over = "over"
    """The environment ended the episode."""
    cut = "cut"
    """Tokens, a fault or the outside: not judged, does not pass."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call of a function, and what came back."""

    name: str
    """As the model wrote it, whether there is such a function or not."""
    arguments: dict[str, Any]
    """By name, plain JSON."""
    result: str
    """The environment's text."""
    shown: str | None = None
    """What the model read instead, where a hint or a cut made it differ; otherwise None."""
    error: str | None = None
    """Kind of error, error results of the function included; None for a success."""
    hint: str | None = None
    """The environment's advice, where it gives any."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What only this environment knows of it."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One assistant message and what became of it."""

    text: str
    """The message as the model wrote it."""
    well_formed: bool
    """Whether it keeps to the protocol; one that was cut off does not."""
    format_error: str | None = None
    """The kind of what is wrong with it where it does not (`interaction.protocol`)."""
    thought: str | None = None
    """What it thought, where the protocol has a place for that."""
    answer: str | None = None
    """What it said to the user; None where it called functions."""
    calls: tuple[CallRecord, ...] = ()
    """In the order in which they were made."""
    facts: dict[str, Any] = field(default_factory=dict)
    """After its calls; empty without calls."""
    tokens: tuple[int, int] | None = None
    """Where the engine's token ids of this message stand in the response: start, and end which is not included.
    None where the caller had no tokens, as in an evaluation through an endpoint."""
    generate_seconds: float | None = None
    """How long the caller waited for the engine; None where it did not say."""
    environment_seconds: float = 0.0
    """How long parsing, calls and, at the end of a turn, judging took."""

    @property
    def error(self) -> str | None:
        """What its writer could see was wrong with it: a format error, or the kind of the first call's that failed."""
        return self.format_error or next((call.error for call in self.calls if call.error is not None), None)


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """One user turn."""

    user: str
    """What the user says; empty where the turn only announces functions."""
    reached: bool = False
    ended: str | None = None
    """A TurnEnd; None while the turn is running or was not reached."""
    passed: bool | None = False
    """None where the environment judges the episode only. A turn that was not judged or not reached does not pass."""
    difference: tuple[dict[str, str], ...] = ()
    """Why it did not pass, in the words of the environment's verdict; empty where the turn was not judged."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What only this environment knows of it."""
    steps: tuple[StepRecord, ...] = ()
    """The model's messages in it."""


@dataclass(slots=True)
class Turn:
    """A user turn that was reached."""

    user: str
    ended: TurnEnd | None = None
    steps: list[StepRecord] = field(default_factory=list)
    format_errors: int = 0


def turn_records(played: Sequence[Turn], judged: Verdicts | None) -> tuple[TurnRecord, ...]:
    """All turns, those that were played and those that an environment knows beforehand."""
    known = () if judged is None else judged.turns
    unjudged = False if judged is None else None
    records = []
    for turn, result in zip_longest(played, known):
        turn_result = result or TurnResult(turn.user, unjudged)
        steps, ended = (tuple(turn.steps), turn.ended) if turn else ((), None)
        passed = turn_result.passed and ended is not TurnEnd.cut  # a cut turn does not pass, whatever is said of it
        records.append(
            TurnRecord(
                user=turn.user if turn else turn_result.user,
                reached=turn is not None,
                ended=ended and ended.value,
                passed=None if turn_result.passed is None else bool(passed),
                difference=tuple(map(dict, turn_result.difference)),
                facts=dict(turn_result.facts),
                steps=steps,
            )
        )
    return tuple(records)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The judgement of the whole episode."""

    passed: bool
    """Whether the episode solved its task."""
    components: dict[str, float] = field(default_factory=dict)
    """What it is made of, where it has parts; `passed` is their product."""


@dataclass(frozen=True, slots=True)
class EpisodeRecord:
    """A whole conversation."""

    environment: str
    """The name under which it is known: bfcl, tau, the stem of a file."""
    task_id: str
    """Unique in its environment."""
    category: str
    """Of the task, for tables: multi_turn_base."""
    protocol: str
    """What the model writes: think_xml, hermes, ..."""
    options: dict[str, Any]
    """The environment's settings."""
    turns: tuple[TurnRecord, ...]
    """User turns in order, behind those in `given`: all of the task where they are known beforehand, else those that
    were played."""
    outcome: Outcome | None = None
    """None while the episode is running, and where the environment failed before it could judge."""
    stop_reason: StopReason | None = None
    """None while the episode is running."""
    fault: str | None = None
    """For environment_error and infrastructure, the exception in one line."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What only this environment knows of the episode."""
    heard: tuple[str, ...] = ()
    """What whoever plays the user said, each time; last words open no turn. Empty where nobody is asked."""
    heard_seconds: tuple[float | None, ...] = ()
    """How long the caller waited for each of these; None where it did not say."""
    given: tuple[TurnRecord, ...] = ()
    """First turns that gold played in place of the model, which goes on behind them: nothing of them is scored."""
    version: Literal[3] = VERSION
    """Of this form, for readers of stored records."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON: dicts, lists, texts, numbers, booleans and None."""
        return {name: _plain(getattr(self, name)) for name in self.__dataclass_fields__}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> EpisodeRecord:
        """The record that gave `data`."""
        return _reader().validate_python(data)


@cache
def _reader() -> TypeAdapter[EpisodeRecord]:
    return TypeAdapter(EpisodeRecord)


def _plain(value: Any) -> Any:
    """Contents of dicts are left as they are: `dataclasses.asdict` would copy every argument deeply, and slowly."""
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return value


def question_of(record: Mapping[str, Any], split: str = "train") -> dict[str, Any]:
    """What verl asks a reward of an episode."""
    names = {"environment": record["environment"], "task_id": record["task_id"]}
    return {
        "data_source": f"{record['environment']}/{record['category'].removeprefix('multi_turn_')}",
        "solution_str": "".join(step["text"] for turn in record["turns"] for step in turn["steps"]),
        "ground_truth": "[]",
        "extra_info": {"split": split, **names, "episode": deepcopy(record)},
    }
