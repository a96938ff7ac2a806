"""One attempt at a telecom task: runs calls of both sides on a state, and says what became of it."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from interaction.call import Call
from tau_env import source
from tau_env.attempt import Attempt, Function, Refused, load_functions
from tau_env.domain import Assertion, Database, PolicyKind, Side, Task
from tau_env.telecom import reads, writes
from tau_env.telecom.setup import prepare
from tau_env.telecom.state import State

_SHOWN = 100
"""Characters of a value that is shown to people."""
_DIFFERENCES = 10

_TOOLS: Mapping[Side, Mapping[str, Function]] = {
    "agent": load_functions(__package__, "agent_functions.json", reads, writes),
    "user": load_functions(__package__, "device_functions.json", reads, writes),
}
_DOCS = {side: tuple(function.doc for function in tools.values()) for side, tools in _TOOLS.items()}
WRITES = frozenset(name for tools in _TOOLS.values() for name in tools if name in vars(writes))
DONE: dict[str, Any] = {
    "name": "done",
    "description": "Call this function when you are done with the task.",
    "parameters": {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
}
"""Ends an episode without a user. The environment's own: no database knows it."""


def functions(side: Side) -> tuple[Mapping[str, Any], ...]:
    """Documentation (name, description, parameters as a JSON schema) of the functions of one side, upstream's words."""
    return _DOCS[side]


@cache
def policy(kind: PolicyKind, solo: bool) -> str:
    """The rules, with the manual of technical support (`full`) or its flow chart (`workflow`).

    The manual is the same without a user: upstream has none of its own for that.
    """
    if kind == "none":
        return ""
    end = "_solo.txt" if solo else ".txt"
    support = f"tech_support_workflow{end}" if kind == "workflow" else "tech_support_manual.txt"
    rules, guide = (source.read(f"domains/telecom/{name}").decode() for name in (f"main_policy{end}", support))
    return f"<main_policy>\n{rules}\n</main_policy>\n<tech_support_policy>\n{guide}\n</tech_support_policy>"


class TelecomDatabase(Attempt):
    """The state of one attempt."""

    max_result_chars = 20_000
    """The longest text of an ordinary episode has 1,800; upstream has no limit of its own."""

    def __init__(self, state: State) -> None:
        super().__init__(_TOOLS)
        self._state = state

    def _run(self, side: Side, name: str, run: Callable[..., str], arguments: dict[str, Any]) -> str:
        if name not in WRITES:
            return run(self._state, **arguments)
        before = self._state.mark()
        text = run(self._state, **arguments)
        self._state.synchronise()
        if self._state.mark() != before:
            if "permission" in arguments:  # noted as it was understood
                arguments["permission"] = arguments["permission"].lower()
            self.written.append((side, Call(name, arguments)))
        return text

    def holds(self, assertion: Assertion) -> bool:
        """Whether a task's assertion is as it expects; one about a record that is not there is not.

        Raises:
            KeyError: no task of this release has such an assertion.
        """
        try:
            return _CHECKS[assertion.name](self._state, **assertion.arguments) == assertion.expected
        except Refused:
            return False

    def digest(self) -> str:
        """Of the whole state. Upstream's hash is unusable here: it compares with a gold state that is half updated."""
        return hashlib.sha256(json.dumps(self._state.dump(), sort_keys=True).encode()).hexdigest()

    def differences(self, other: Database) -> tuple[Mapping[str, str], ...]:
        """Where two states differ, at most ten places; `other` is what was expected."""
        assert isinstance(other, TelecomDatabase)
        found, expected = dict(_leaves(self._state.dump())), dict(_leaves(other._state.dump()))
        places = [place for place in expected | found if expected.get(place) != found.get(place)]
        return tuple(
            {"where": place, "expected": _show(expected.get(place)), "found": _show(found.get(place))}
            for place in places[:_DIFFERENCES]
        )


def open_database(task: Task) -> TelecomDatabase:
    """The state in which the task begins."""
    state = State()
    prepare(state, task.setup)
    return TelecomDatabase(state)


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every single value with the way to it; records of a list go by their id where they have one."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            name = next(iter(item.values())) if isinstance(item, Mapping) and "status" in item else index
            yield from _leaves(item, f"{place}[{name}]")
    else:
        yield place, value


def _show(value: Any) -> str:
    return "nothing" if value is None else repr(value)[:_SHOWN]


# The six checks of the state at the end that the tasks use.

_CLOSE = 1e-6


def _can_send_mms(state: State, expected_status: bool) -> bool:
    return state.phone.can_send_mms(state.surroundings) == expected_status


def _mobile_data_status(state: State, expected_status: bool) -> bool:
    return state.phone.has_data(state.surroundings) == expected_status


def _internet_speed(state: State, expected_speed: float, expected_desc: str | None = None) -> bool:
    speed, grade = state.phone.speed(state.surroundings) or (0.0, "No Connection")
    return speed >= expected_speed and (expected_desc is None or grade.lower() == expected_desc.lower())


def _service_status(state: State, expected_status: str) -> bool:
    return state.phone.network_connection_status == expected_status


def _data_refueling_amount(state: State, customer_id: str, line_id: str, expected_amount: float) -> bool:
    refuelled: float = state.company.owned_line(customer_id, line_id)["data_refueling_gb"]
    return abs(refuelled - expected_amount) < _CLOSE


def _no_overdue_bill(state: State, overdue_bill_id: str) -> bool:
    bill = state.company.tables["bills"].get(overdue_bill_id)
    return bill is None or bill["status"] == "Paid"


_CHECKS: Mapping[str, Callable[..., bool]] = {
    "assert_can_send_mms": _can_send_mms,
    "assert_mobile_data_status": _mobile_data_status,
    "assert_internet_speed": _internet_speed,
    "assert_service_status": _service_status,
    "assert_data_refueling_amount": _data_refueling_amount,
    "assert_no_overdue_bill": _no_overdue_bill,
}
