"""One attempt at a telecom task: runs calls of both sides on a state, and says what became of it."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import Any

from interaction.call import Call, CallError, copy_call
from interaction.outcome import ErrorKind, ToolResult
from tau_env.domain import Assertion, Database, Side, Task
from tau_env.telecom import agent_tools, device_reads, device_writes
from tau_env.telecom.arguments import BadArguments, read_arguments
from tau_env.telecom.company import Refusal, SaysNo
from tau_env.telecom.documents import functions
from tau_env.telecom.setup import prepare
from tau_env.telecom.state import State

MAX_RESULT_CHARS = 20_000
"""Longer texts are cut. The longest of an ordinary episode has 1,800; upstream has no limit of its own."""

_SHOWN = 100
"""Characters of a value that is shown to people."""
_DIFFERENCES = 10


def _tools(side: Side, *modules: ModuleType) -> dict[str, Callable[..., str]]:
    """The functions in the modules that are documented for a side, by name."""
    documented = {each["name"] for each in functions(side)}
    return {name: tool for module in modules for name, tool in vars(module).items() if name in documented}


_TOOLS: Mapping[Side, Mapping[str, Callable[..., str]]] = {
    "agent": _tools("agent", agent_tools),
    "user": _tools("user", device_reads, device_writes),
}
WRITES = agent_tools.WRITES | _tools("user", device_writes).keys()


class TelecomDatabase:
    """The state of one attempt."""

    def __init__(self, state: State) -> None:
        self.written: list[tuple[Side, Call]] = []
        self._state = state

    def call(self, call: Call, side: Side) -> ToolResult:
        """Runs one call of a function of this side. Never raises for what the call holds.

        Where upstream raises an error, the text begins with `Error: `, as tau2-bench shows it to a model.
        """
        tool = _TOOLS[side].get(call.name) if type(call.name) is str else None
        if tool is None:
            return _result(f"Error: Tool {_name(call)} not found", ErrorKind.UNKNOWN_FUNCTION)
        try:
            call = copy_call(call)
            arguments = read_arguments(call, _parameters(side)[call.name])
            if call.name in WRITES:
                return _result(self._write(side, call.name, tool, arguments))
            return _result(tool(self._state, **arguments))
        except CallError as error:
            return _result(f"Error: {error}", ErrorKind.LIMIT)
        except BadArguments as error:
            return _result(f"Error: {error}", ErrorKind.BAD_ARGUMENTS)
        except SaysNo as error:
            return _result(str(error), ErrorKind.RESULT)
        except Refusal as error:
            return _result(f"Error: {error}", ErrorKind.RESULT)

    def _write(self, side: Side, name: str, tool: Callable[..., str], arguments: dict[str, Any]) -> str:
        """Notes the call, as it was understood, if it changed something."""
        before = self._state.mark()
        text = tool(self._state, **arguments)
        self._state.synchronise()
        if self._state.mark() != before:
            if "permission" in arguments:
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
        except Refusal:
            return False

    def dump(self) -> dict[str, Any]:
        """The whole state in JSON values."""
        return self._state.dump()

    def digest(self) -> str:
        """Of the whole state. Upstream's hash is unusable here: it compares with a gold state that is half updated."""
        return hashlib.sha256(json.dumps(self.dump(), sort_keys=True).encode()).hexdigest()

    def differences(self, other: Database) -> tuple[Mapping[str, str], ...]:
        """Where two states differ, at most ten places; `other` is what was expected.

        Raises:
            TypeError: the other is not a state of telecom.
        """
        if not isinstance(other, TelecomDatabase):
            raise TypeError(f"a telecom state cannot be compared with {type(other).__name__}")
        found, expected = dict(_leaves(self.dump())), dict(_leaves(other.dump()))
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


@cache
def _parameters(side: Side) -> Mapping[str, Mapping[str, Any]]:
    return {each["name"]: each["parameters"] for each in functions(side)}


def _result(text: str, error: ErrorKind | None = None) -> ToolResult:
    """Bounded, and such that it can be written as UTF-8."""
    if len(text) > MAX_RESULT_CHARS:
        text = f"{text[:MAX_RESULT_CHARS]} [cut: the result has {len(text)} characters]"
        error = error or ErrorKind.LIMIT
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode()
    return ToolResult(text, error)


def _name(call: Call) -> str:
    return call.name[:MAX_RESULT_CHARS] if type(call.name) is str else "(no text)"


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
    bill = state.company.bills.get(overdue_bill_id)
    return bill is None or bill["status"] == "Paid"


_CHECKS: Mapping[str, Callable[..., bool]] = {
    "assert_can_send_mms": _can_send_mms,
    "assert_mobile_data_status": _mobile_data_status,
    "assert_internet_speed": _internet_speed,
    "assert_service_status": _service_status,
    "assert_data_refueling_amount": _data_refueling_amount,
    "assert_no_overdue_bill": _no_overdue_bill,
}
