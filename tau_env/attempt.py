"""One attempt on a domain whose tools work on tables of records: calls in, texts out, whatever the calls hold.

A call is looked up in a table of functions and its arguments are checked against the documentation before anything
runs. What a function changes becomes part of the state only when it is through, so that a refused call leaves nothing.
"""

import importlib.resources
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from interaction.call import MAX_CHARS, Call, CallError, copy_call
from interaction.outcome import ErrorKind, ToolResult
from tau_env.arguments import convert, misfits
from tau_env.arithmetic import ArithmeticBound, ArithmeticRefusal, calculate
from tau_env.domain import Assertion, Database, Side
from tau_env.records import Base, Tables

MAX_RESULT_CHARS = 200_000
"""Characters of one refusal. What upstream says of its own is far shorter; this cuts echoes of hostile values."""


class Refused(Exception):
    """A function says no, in upstream's words."""


class Unfit(Exception):
    """A value inside the arguments is not what the database stores. Upstream: a text of pydantic's."""


class Overfull(Exception):
    """A record would outgrow its bound. Upstream has none."""


class Halfway(Exception):
    """It failed after a part of its work, which stays, as upstream."""


Run = Callable[..., str]
"""Tables and the documented arguments in, text out. Raises the four above."""


@dataclass(frozen=True, slots=True)
class Function:
    """A tool."""

    doc: Mapping[str, Any]
    run: Run


def transfer_to_human_agents(tables: Tables, summary: str) -> str:
    """The end of a conversation, as far as a tool is concerned: its words."""
    return "Transfer successful"


def calculator(tables: Tables, expression: str) -> str:
    """The tool `calculate`."""
    try:
        return calculate(expression)
    except ArithmeticRefusal as error:
        raise Refused(str(error)) from error
    except ArithmeticBound as error:
        raise Overfull(str(error)) from error


def storable(fields: dict[str, str]) -> dict[str, Any]:
    """Texts that become part of a record, if they can be written.

    Raises:
        Unfit: half of a surrogate pair. Upstream stores it and then fails to write the record.
    """
    for name, text in fields.items():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise Unfit(f"{name} holds half of a surrogate pair") from error
    return dict(fields)


def load_functions(package: str, *modules: ModuleType) -> dict[str, Function]:
    """The functions that `functions.json` of a package documents, by name; the modules have what runs them."""
    runs: dict[str, Run] = {"calculate": calculator, "transfer_to_human_agents": transfer_to_human_agents}
    for module in modules:
        runs |= vars(module)
    docs = json.loads(importlib.resources.files(package).joinpath("functions.json").read_text("utf-8"))
    return {doc["name"]: Function(doc, runs[doc["name"]]) for doc in docs}


class Attempt:
    """The state of one attempt (a `Database`). Only the agent has tools here."""

    def __init__(self, base: Base, functions: Mapping[str, Function]) -> None:
        self.written: list[tuple[Side, Call]] = []
        self._functions = functions
        self._tables = Tables(base)

    def call(self, call: Call, side: Side) -> ToolResult:
        """Run one call; never raises for what it holds. A text of upstream's refusals begins with `Error: `."""
        function = self._functions.get(call.name) if side == "agent" and type(call.name) is str else None
        if function is None:
            return _failure(f"Tool {str(call.name)[:MAX_CHARS]} not found", ErrorKind.UNKNOWN_FUNCTION)
        try:
            call = copy_call(call)
        except CallError as error:
            return _failure(str(error), ErrorKind.LIMIT)
        if call.positional:
            return _failure("arguments must be given by name", ErrorKind.BAD_ARGUMENTS)
        if wrong := misfits(call.arguments, function.doc["parameters"]):
            text = f"Found {len(wrong)} validation errors parsing tool input arguments:"
            return _failure("\n- ".join([text, *wrong]), ErrorKind.BAD_ARGUMENTS)
        return self._run(call, function, side)

    def _run(self, call: Call, function: Function, side: Side) -> ToolResult:
        arguments = convert(call.arguments, function.doc["parameters"])
        try:
            result = ToolResult(function.run(self._tables, **arguments))
        except Refused as error:
            result = _failure(str(error), ErrorKind.RESULT)
        except Unfit as error:
            result = _failure(str(error), ErrorKind.BAD_ARGUMENTS)
        except Overfull as error:
            result = _failure(str(error), ErrorKind.LIMIT)
        except Halfway as error:
            if self._tables.keep():
                self.written.append((side, Call(call.name, arguments)))
            return _failure(str(error), ErrorKind.EXECUTION)
        except (ArithmeticError, LookupError, ValueError, TypeError) as error:
            result = _failure(str(error), ErrorKind.EXECUTION)
        if result.error is not None:
            self._tables.drop()
        elif self._tables.keep():
            self.written.append((side, Call(call.name, arguments)))
        return result

    def holds(self, assertion: Assertion) -> bool:
        """Raises:
        ValueError: always; tasks of these domains assert nothing.
        """
        raise ValueError(f"this domain knows no assertion {assertion.name}")

    def digest(self) -> str:
        """Equal for two states exactly where tau2-bench's hashes of them are equal."""
        return self._tables.digest()

    def differences(self, other: Database) -> tuple[Mapping[str, str], ...]:
        """Where this state is not like the other, which is as expected: at most ten places.

        Raises:
            TypeError: the other is no state of tables.
        """
        if not isinstance(other, Attempt):
            raise TypeError(f"a state of tables cannot be compared with {type(other).__name__}")
        return self._tables.differences(other._tables)

    def changed(self) -> dict[tuple[str, str], str]:
        """The JSON of every record that differs from the database's file, by table and key."""
        return self._tables.changed()


def _failure(text: str, kind: ErrorKind) -> ToolResult:
    text = f"Error: {text}"[:MAX_RESULT_CHARS]
    if not text.isascii():  # No tokenizer and no file takes half a surrogate pair.
        text = text.encode("utf-8", "backslashreplace").decode()
    return ToolResult(text, kind)
