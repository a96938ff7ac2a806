"""BFCL's own verdict on a recorded conversation, and the listed differences that could make it another than ours.

The checker is given the conversation as it was played: for every turn that ended, the calls of each message, written
again as Python from the record. Three things follow from "the same conversation":
- A call that the environment answered as unknown (no such function, or one that was withheld and refused) reached no
  function, so the checker gets a call of nothing in its place: a call was made, and it failed. No name that a
  model invented is ever written into text that is evaluated.
- A message that could not be read made no calls: it was answered with feedback, and the checker sees nothing of it.
- A conversation that stopped before its last turn ended is what BFCL calls force-terminated: its evaluation fails it
  by the number of turns, before the checker is asked.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from bfcl_env import ErrorKind, Scenario, load_scenarios
from bfcl_env.proof.differences import MULTI_TURN as LISTED
from bfcl_env.proof.grounding import leaves
from bfcl_env.source import function_owners, load_padding
from interaction.protocol import get_protocol
from interaction.protocol.python_calls import PythonCalls
from interaction.record import CallRecord, EpisodeRecord, StepRecord, TurnEnd

CPU_SECONDS = 10
MEMORY_BYTES = 2 * 10**9

CALL_OF_NOTHING = "unknown_function()"
"""Stands for every call that reached no function."""

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CALL_LIKE = re.compile(r"\b([a-zA-Z_]\w*)\s*(?=\()")
"""What BFCL's executor takes for the name of a function, inside strings as well."""
_CARD_FUNCTIONS = frozenset({"book_flight", "cancel_booking", "purchase_insurance"})


@dataclass(frozen=True, slots=True)
class OfficialVerdict:
    """What BFCL says about one conversation."""

    valid: bool | None
    """None where the checker gave no verdict: it was ended by a limit, or failed."""
    reason: str | None
    """BFCL's type of error, or why there is no verdict."""
    differences: tuple[str, ...]
    """Names from `bfcl_env/proof/differences.py` that apply to this conversation, so that the verdicts may differ."""


def call_text(call: CallRecord, scenario: Scenario) -> str:
    """The call as Python: the name of one of the scenario's functions and literals, or CALL_OF_NOTHING."""
    refused = call.error in (ErrorKind.UNKNOWN_FUNCTION, ErrorKind.WITHHELD_FUNCTION)
    if refused or function_owners().get(call.name) not in scenario.classes or not plain_names(call.arguments):
        return CALL_OF_NOTHING
    return as_python(call.name, call.arguments)


def plain_names(arguments: Iterable[str]) -> bool:
    return all(map(_IDENTIFIER.fullmatch, arguments))


def as_python(name: str, arguments: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def with_literals(record: EpisodeRecord) -> EpisodeRecord:
    """The record with arguments as they were written: Python's tuples and numeric keys, which JSON does not keep."""
    if record.protocol != PythonCalls.name:
        return record
    protocol = get_protocol(record.protocol)

    def read_again(step: StepRecord) -> StepRecord:
        written = protocol.parse(step.text).calls
        if [call.name for call in written] != [call.name for call in step.calls]:
            return step
        pairs = zip(step.calls, written, strict=True)
        return replace(step, calls=tuple(replace(call, arguments=said.arguments) for call, said in pairs))

    turns = (replace(turn, steps=tuple(map(read_again, turn.steps))) for turn in record.turns)
    return replace(record, turns=tuple(turns))


def turns_as_text(record: EpisodeRecord, scenario: Scenario) -> list[list[list[str]]]:
    """Calls as text by ended turn and message; messages without calls are left out, as BFCL does."""
    return [
        [[call_text(call, scenario) for call in step.calls] for step in turn.steps if step.calls]
        for turn in record.turns
        if turn.ended in (TurnEnd.answer, TurnEnd.limit)
    ]


def applying_differences(record: EpisodeRecord, scenario: Scenario) -> tuple[str, ...]:
    """Listed differences that could give this conversation another verdict, by what was called with which values."""
    calls = [call for turn in record.turns for step in turn.steps for call in step.calls]
    found = {name for call in calls for name in _of_call(call, scenario)}
    # Gold shares with the model what BFCL shares between instances, so its calls count as well.
    pairs = [(call.name, call.arguments) for call in calls]
    pairs += [(call.name, call.arguments) for turn in scenario.turns for call in turn.gold]
    if scenario.long_context and "TravelAPI" in scenario.classes:
        bookings = scenario.initial_config.get("TravelAPI", {}).get("booking_record", {})
        shared = {*_shared_ids(), *(key for key, item in bookings.items() if item.get("card_id") in _shared_ids())}
        used = [value for name, given in pairs if name in _CARD_FUNCTIONS for value in given.values()]
        if any(isinstance(value, str) and value in shared for value in used):
            found.add("shared_cards")
    posts_bare = any(name == "post_tweet" and not {"tags", "mentions"} <= arguments.keys() for name, arguments in pairs)
    if posts_bare and any(name == "mention" for name, _ in pairs):
        found.add("shared_tweet_lists")
    assert found <= LISTED.keys()
    return tuple(sorted(found))


class OfficialChecker:
    """Asks a subprocess (`checker.py`) for verdicts. To be used with `with`; not thread-safe."""

    def __init__(self, cpu_seconds: int = CPU_SECONDS) -> None:
        self._limits = {"cpu_seconds": cpu_seconds, "memory_bytes": MEMORY_BYTES}
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.checker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            cwd=Path(__file__).parents[2],
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()  # a fork that is still at work ends by its own CPU limit
            process.communicate()

    def judge(self, record: EpisodeRecord) -> OfficialVerdict:
        """BFCL's verdict on one conversation.

        Raises:
            KeyError: no scenario has the record's id.
            RuntimeError: the subprocess itself has ended.
        """
        scenario = scenarios_by_id()[record.task_id]
        record = with_literals(record)
        differences = applying_differences(record, scenario)
        turns = turns_as_text(record, scenario)
        if len(turns) != len(scenario.turns):
            return OfficialVerdict(False, "multi_turn:force_terminated", differences)
        said = self._ask({"id": scenario.id, "turns": turns, **self._limits})
        if "fault" in said:
            return OfficialVerdict(None, said["fault"], differences)
        return OfficialVerdict(said["valid"], said["reason"], differences)

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._process is not None, "use OfficialChecker with `with`"
        requests: IO[str] | None = self._process.stdin
        answers: IO[str] | None = self._process.stdout
        assert requests is not None and answers is not None
        try:
            requests.write(json.dumps(question) + "\n")
            answer = answers.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise RuntimeError(f"the process of BFCL's checker has ended with status {self._process.wait()}")
        return json.loads(answer)


def judge_all(records: Iterable[EpisodeRecord]) -> Iterator[OfficialVerdict]:
    """BFCL's verdict on each conversation, one after the other (about 10 ms each)."""
    with OfficialChecker() as checker:
        for record in records:
            yield checker.judge(record)


@cache
def scenarios_by_id() -> dict[str, Scenario]:
    """All 800 scenarios."""
    return {scenario.id: scenario for scenario in load_scenarios()}


def _of_call(call: CallRecord, scenario: Scenario) -> Iterator[str]:
    if not plain_names(call.arguments):
        yield "names_that_are_not_names"
    if call.error == ErrorKind.LIMIT:
        yield "limits"
    if not all(math.isfinite(value) for value in leaves(call.arguments) if isinstance(value, float)):
        yield "not_a_number"
    text = call_text(call, scenario)
    head = text.index("(")
    for match in _CALL_LIKE.finditer(text, head):
        if match[0] != match[1] or function_owners().get(match[1]) in scenario.classes:
            yield "call_like_text"


@cache
def _shared_ids() -> frozenset[str]:
    """Ids of the cards and bookings that BFCL adds to long-context tasks, the same objects for every instance."""
    padding: Any = load_padding()
    return frozenset(padding.CREDIT_CARD_EXTENSION) | frozenset(padding.BOOKING_RECORD_EXTENSION)
