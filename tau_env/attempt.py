"""One attempt on a domain's database: calls in, texts out, whatever the calls hold.

A call is looked up in a table of functions and its arguments are checked against the documentation before anything
runs. What a function of retail or airline changes becomes part of the state only when it is through, so that a refused
call leaves nothing.
"""

import importlib.resources
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from interaction.call import MAX_CHARS, Call, CallError, copy_call
from interaction.outcome import ErrorKind, ToolResult
from tau_env.domain import Assertion, Database, Side
from tau_env.records import Base, Tables

Schema = Mapping[str, Any]


class Refused(Exception):
    """A function says no, in upstream's words."""

    kind, prefix = ErrorKind.RESULT, "Error: "


class SaysNo(Refused):
    """A function says no in an answer that upstream returns like any other: no `Error: ` stands before it."""

    prefix = ""


class Unfit(Refused):
    """A value is not what the database stores. The words are ours: upstream's are pydantic's, which change."""

    kind = ErrorKind.BAD_ARGUMENTS


class Overfull(Refused):
    """A record would outgrow its bound. Upstream has none."""

    kind = ErrorKind.LIMIT


class Halfway(Refused):
    """It failed after a part of its work, which stays, as upstream."""

    kind = ErrorKind.EXECUTION


@dataclass(frozen=True, slots=True)
class Function:
    """A tool."""

    doc: Mapping[str, Any]
    """Name, description, parameters as a JSON schema."""
    run: Callable[..., str]
    """State and the documented arguments in, text out. Raises the above."""


def misfits(arguments: dict[str, Any], schema: Schema) -> list[str]:
    """One sentence for each way in which the arguments do not fit, in the words of inspect's schema check.

    As there, 3.0 is a whole number and true is none. Only objects of text, numbers, choices, and lists of text or of
    objects are known, which is what the schemas use.
    """
    properties = schema["properties"]
    found: list[str] = []
    for name, expected in properties.items():
        if name in arguments:
            found += _misfits(arguments[name], expected)
    for name in schema["required"]:
        if name not in arguments:
            found.append(f"{name!r} is a required property")
    if surplus := sorted(arguments.keys() - properties.keys()):
        verb = "was" if len(surplus) == 1 else "were"
        found.append(f"Additional properties are not allowed ({', '.join(map(repr, surplus))} {verb} unexpected)")
    return found


def _misfits(value: Any, expected: Schema) -> list[str]:
    if "anyOf" in expected:  # the widest alternative is what counts
        fits = any(_CHECKS[each["type"]](value) for each in expected["anyOf"] if "type" in each)
        return [] if fits else [f"{value!r} is not valid under any of the given schemas"]
    kind = expected["type"]
    found = [] if _CHECKS[kind](value) else [f"{value!r} is not of type {kind!r}"]
    if "enum" in expected and value not in expected["enum"]:
        found.append(f"{value!r} is not one of {expected['enum']!r}")
    if kind == "array" and type(value) is list:
        for item in value:
            found += _misfits(item, expected["items"])
    return found


_CHECKS: Mapping[str, Callable[[Any], bool]] = {
    "string": lambda value: type(value) is str,
    "integer": lambda value: type(value) is int or (type(value) is float and value.is_integer()),
    "number": lambda value: type(value) in (int, float),
    "object": lambda value: type(value) is dict,
    "array": lambda value: type(value) is list,
}


def read_arguments(call: Call, schema: Schema) -> dict[str, Any]:
    """The arguments as a function takes them: 3.0 as 3 where a whole number is meant.

    Raises:
        Unfit: they do not fit; or a number is not finite, which no JSON has and which equals nothing in a database.
    """
    if call.positional:
        raise Unfit("arguments must be given by name")
    if wrong := misfits(call.arguments, schema):
        raise Unfit("\n- ".join([f"Found {len(wrong)} validation errors parsing tool input arguments:", *wrong]))
    arguments = dict(call.arguments)
    for name, value in arguments.items():
        kind = schema["properties"][name].get("type")
        if kind == "integer":
            arguments[name] = int(value)
        elif kind == "number" and not _is_finite(value):
            raise Unfit(f"{name} must be a finite number")
    return arguments


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


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


def transfer_to_human_agents(state: Any, summary: str) -> str:
    """The end of a conversation, as far as a tool is concerned: its words."""
    return "Transfer successful"


def load_functions(package: str, file: str, *modules: ModuleType) -> dict[str, Function]:
    """The functions that a file of a package documents, by name; the modules have what runs them."""
    runs: dict[str, Any] = {"transfer_to_human_agents": transfer_to_human_agents}
    for module in modules:
        runs |= vars(module)
    docs = json.loads(importlib.resources.files(package).joinpath(file).read_text("utf-8"))
    return {doc["name"]: Function(doc, runs[doc["name"]]) for doc in docs}


class Attempt:
    """The checks that all domains share; a domain says how a function is run on its state."""

    max_result_chars = 200_000
    """Longer texts are cut. What upstream says is far shorter; this cuts echoes of hostile values."""

    def __init__(self, tools: Mapping[Side, Mapping[str, Function]]) -> None:
        self.written: list[tuple[Side, Call]] = []
        self._tools = tools

    def call(self, call: Call, side: Side) -> ToolResult:
        """Run one call; never raises for what it holds. A text of upstream's errors begins with `Error: `."""
        function = self._tools[side].get(call.name) if type(call.name) is str else None
        if function is None:
            return self._result(f"Error: Tool {str(call.name)[:MAX_CHARS]} not found", ErrorKind.UNKNOWN_FUNCTION)
        try:
            call = copy_call(call)
            arguments = read_arguments(call, function.doc["parameters"])
            return self._result(self._run(side, call.name, function.run, arguments))
        except CallError as error:
            return self._result(f"Error: {error}", ErrorKind.LIMIT)
        except Refused as error:
            return self._result(f"{error.prefix}{error}", error.kind)
        except (ArithmeticError, LookupError, ValueError, TypeError) as error:
            return self._result(f"Error: {error}", ErrorKind.EXECUTION)

    def _run(self, side: Side, name: str, run: Callable[..., str], arguments: dict[str, Any]) -> str:
        """The text of a function's answer; notes in `written` what changed something."""
        raise NotImplementedError

    def _result(self, text: str, error: ErrorKind | None = None) -> ToolResult:
        if len(text) > self.max_result_chars:
            text = f"{text[: self.max_result_chars]} [cut: the result has {len(text)} characters]"
            error = error or ErrorKind.LIMIT
        if not text.isascii():  # No tokenizer and no file takes half a surrogate pair.
            text = text.encode("utf-8", "backslashreplace").decode()
        return ToolResult(text, error)


class TableAttempt(Attempt):
    """The state of one attempt on tables of records (a `Database`). Only the agent has tools here."""

    def __init__(self, base: Base, functions: Mapping[str, Function]) -> None:
        super().__init__({"agent": functions, "user": {}})
        self._tables = Tables(base)

    def _run(self, side: Side, name: str, run: Callable[..., str], arguments: dict[str, Any]) -> str:
        try:
            text = run(self._tables, **arguments)
        except Halfway:
            self._keep(side, name, arguments)
            raise
        except Exception:
            self._tables.drop()
            raise
        self._keep(side, name, arguments)
        return text

    def _keep(self, side: Side, name: str, arguments: dict[str, Any]) -> None:
        if self._tables.keep():
            self.written.append((side, Call(name, arguments)))

    def holds(self, assertion: Assertion) -> bool:
        """Tasks of these domains assert nothing."""
        raise ValueError(f"this domain knows no assertion {assertion.name}")

    def digest(self) -> str:
        """Equal for two states exactly where tau2-bench's hashes of them are equal."""
        return self._tables.digest()

    def differences(self, other: Database) -> tuple[Mapping[str, str], ...]:
        """Where this state is not like the other, which is as expected: at most ten places."""
        assert isinstance(other, TableAttempt)
        return self._tables.differences(other._tables)

    def changed(self) -> dict[tuple[str, str], str]:
        """The JSON of every record that differs from the database's file, by table and key."""
        return self._tables.changed()
