"""What happened in one episode, as data: the only thing that rewards, reports and evaluations read.

The record keeps facts and no scores. Texts of results are BFCL's own, before hints and truncation, so that
a reward means the same whatever the model was shown. Every user turn of the scenario is present, reached or
not, because "turns passed of all turns" is what an episode is worth.

`to_dict` gives plain JSON; `from_dict` reads it back. VERSION changes when a reader of old records would err.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

VERSION = 2


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
    infrastructure = "infrastructure"
    """The engine failed, or the conversation was abandoned. Such an episode must not be scored."""


class TurnEnd(StrEnum):
    """How a user turn ended."""

    answer = "answer"
    """The model answered."""
    limit = "limit"
    """A limit of messages or format errors: judged as it stands."""
    cut = "cut"
    """Tokens, a fault or the outside: not judged, does not pass."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    name: str
    arguments: dict[str, Any]
    result: str
    """BFCL's text."""
    shown: str | None = None
    """What the model read instead, where a hint or a cut made it differ; otherwise None."""
    error: str | None = None
    """Kind of error, BFCL's own error results included; None for a success."""
    hint: str | None = None
    """The environment's advice, when augmentation is on."""
    gold: int | None = None
    """Which of this turn's gold calls it is (same function, arguments and result), from 0; each is given once."""

    def to_dict(self) -> dict[str, Any]:
        return _fields(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CallRecord:
        return cls(**data)


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One assistant message and what became of it."""

    text: str
    well_formed: bool
    format_error: str | None = None
    thought: str | None = None
    answer: str | None = None
    calls: tuple[CallRecord, ...] = ()
    closeness: float | None = None
    """After its calls: the share of what gold changes in this turn that is as gold leaves it. None without calls, and
    where gold changes nothing."""
    tokens: tuple[int, int] | None = None
    """Where the engine's token ids of this message stand in the response: start, and end which is not included.
    None where the caller had no tokens, as in an evaluation through an endpoint."""
    generate_seconds: float | None = None
    """How long the caller waited for the engine; None where it did not say."""
    environment_seconds: float = 0.0
    """How long parsing, calls and, at the end of a turn, judging took."""

    def to_dict(self) -> dict[str, Any]:
        return _fields(self) | {
            "calls": [call.to_dict() for call in self.calls],
            "tokens": None if self.tokens is None else list(self.tokens),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> StepRecord:
        tokens = data["tokens"]
        calls = tuple(map(CallRecord.from_dict, data["calls"]))
        return cls(**{**data, "calls": calls, "tokens": None if tokens is None else (tokens[0], tokens[1])})


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """One user turn."""

    user: str
    """What the scenario's user says; empty where the turn only reveals functions."""
    has_gold: bool
    """Whether gold makes calls in this turn. Without gold the right thing is to call nothing and answer."""
    gold_calls: int = 0
    """How many."""
    reached: bool = False
    closeness: float | None = None
    """As a step's, before the first call."""
    ended: str | None = None
    """A TurnEnd; None while the turn is running or was not reached."""
    passed: bool = False
    passed_official: bool = False
    difference: tuple[dict[str, str], ...] = ()
    """What differs from gold, in the words of the environment's verdict; empty where the turn was not judged."""
    steps: tuple[StepRecord, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return _fields(self) | {
            "difference": [dict(item) for item in self.difference],
            "steps": [step.to_dict() for step in self.steps],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TurnRecord:
        steps = tuple(map(StepRecord.from_dict, data["steps"]))
        return cls(**{**data, "difference": tuple(map(dict, data["difference"])), "steps": steps})


@dataclass(frozen=True, slots=True)
class EpisodeRecord:
    scenario_id: str
    category: str
    protocol: str
    augment: bool
    turns: tuple[TurnRecord, ...]
    """All user turns of the scenario, in order."""
    stop_reason: StopReason | None = None
    """None while the episode is running."""
    fault: str | None = None
    """For environment_error and infrastructure, the exception in one line."""
    version: int = VERSION

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON: dicts, lists, texts, numbers, booleans and None."""
        return _fields(self) | {
            "stop_reason": None if self.stop_reason is None else self.stop_reason.value,
            "turns": [turn.to_dict() for turn in self.turns],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> EpisodeRecord:
        """The record that gave `data`. Raises ValueError for a record of another version."""
        if data.get("version") != VERSION:
            raise ValueError(f"episode record has version {data.get('version')!r}; this code reads version {VERSION}")
        reason = data["stop_reason"]
        return cls(
            **{
                **data,
                "stop_reason": None if reason is None else StopReason(reason),
                "turns": tuple(map(TurnRecord.from_dict, data["turns"])),
            }
        )


def _fields(record: Any) -> dict[str, Any]:
    """The fields as they are. `dataclasses.asdict` would copy every argument deeply, and slowly."""
    return {name: getattr(record, name) for name in record.__dataclass_fields__}
