"""An ordinary Python class as an environment: its public methods are the tools, and its state is judged.

    @dataclass
    class Lamp:
        on: bool = False

        def switch(self, on: bool) -> str:
            "Switch the lamp on or off."
            self.on = on
            return "done"

    def load_tasks():
        return [ToolTask("lamp", "light_1", Lamp, [("Light, please.", [Call("switch", {"on": True})])], part="test")]

A turn passes if the state is that of a fresh object on which gold's calls of this turn and of those before were made.
Where gold's calls of a turn change nothing, their results must also be among those that the model saw in that turn.
Where gold makes no call, the model must refuse in words.

States are compared by the class's `__eq__`, else by what its `state()` returns, else by its attributes, floats up to
a rounding (`interaction.values`). Attempts do not share an object, but each call runs in a thread of its own:
`sqlite3.connect(..., check_same_thread=False)`.
"""

import inspect
import json
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple, get_type_hints

from docstring_parser import parse
from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model
from pydantic.fields import FieldInfo

from interaction.call import Call
from interaction.contract import ContractError
from interaction.environment import EnvironmentBase, GoldMessage, Part, Request
from interaction.outcome import ErrorKind, ToolResult, TurnResult, Verdicts
from interaction.protocol.docs import compact_json, documented
from interaction.record import StopReason
from interaction.refusal import is_refusal
from interaction.user_file import FromText
from interaction.values import ADVICE, in_json, same, same_state

__all__ = ["Call", "ToolEnvironment", "ToolTask"]

NO_TOOLS = ("reset", "state")
"""Public methods that are not offered to the model."""
ANSWER = "Done."
NO_TOOLS_OF = {*sys.stdlib_module_names, "pydantic", "typing_extensions"} - {"functools"}
"""Modules whose methods and objects in a class are no tools: those of BaseModel, or an alias such as Literal["C"]."""


@dataclass(frozen=True)
class ToolTask:
    """A task on an object of a class; as `interaction.environment.Task`."""

    environment: str
    """The stem of the file that has `load_tasks`."""
    id: str
    tools: Callable[..., Any]
    """The class. An object is made without arguments, then gets `start` by its method `reset`, as TRL does with a row
    of its data set; without such a method, `start` are the arguments with which it is made."""
    turns: Sequence[tuple[str, Sequence[Call]]]
    """For each turn, the user's words and gold's calls."""
    start: Mapping[str, Any] = field(default_factory=dict)
    part: Part = "train"
    category: str = "tools"
    cluster: str = ""
    """Tasks of one cluster stay on one side of a split; the id, if it is empty."""
    policy: str = ""
    """Rules of the domain, for the system prompt."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "cluster", self.cluster or self.id)

    def open(self) -> "ToolEnvironment":
        """A fresh attempt. Raises ContractError where the class cannot be used, or two fresh objects of it differ."""
        return ToolEnvironment(self)

    def gold(self) -> Iterator[GoldMessage]:
        """Each of gold's calls in a message of its own, and an answer at the end of each turn."""
        for _, calls in self.turns:
            yield from (GoldMessage(calls=(call,)) for call in calls)
            yield GoldMessage(answer=ANSWER)

    def fresh(self) -> Any:
        """An object as the task begins with."""
        if not hasattr(self.tools, "reset"):
            return self.tools(**self.start)
        made = self.tools()
        made.reset(**self.start)
        return made

    def shared_by_attempts(self) -> dict[str, bytes]:
        """What objects of the class have in common, as far as it can be written down: globals, attributes, defaults."""
        kind = type(self.fresh())
        own, found = sys.modules[kind.__module__], dict[str, Any]()
        imported = (item for item in vars(own).values() if isinstance(item, ModuleType))
        for module in (own, *(item for item in imported if isinstance(item.__loader__, FromText))):
            found |= {f"{module.__name__}.{key}": value for key, value in vars(module).items() if key[:2] != "__"}
        for name, value in ((name, value) for parent in kind.__mro__[:-1] for name, value in vars(parent).items()):
            found[f"{kind.__name__}.{name}"] = getattr(value, "__func__", value)  # of static methods too
        return {name: _written(value) for name, value in found.items()}


def _written(value: Any) -> bytes:
    """What can be pickled of a value."""
    try:
        value = inspect.unwrap(value)
        code = isinstance(value, FunctionType)
        return pickle.dumps((value.__defaults__, value.__kwdefaults__) if code else value)
    except Exception:  # modules, locks, connections
        parts = value.items() if isinstance(value, dict) else value if isinstance(value, list | tuple | set) else ()
        return b"".join(map(_written, [*parts]))


class ToolEnvironment(EnvironmentBase):
    """One attempt: the object that the model's calls change, and one on which gold's calls are made."""

    def __init__(self, task: ToolTask) -> None:
        self.task, self.passed = task, list[bool]()
        self.object, self.expected = task.fresh(), task.fresh()
        self.functions = tools_of(self.object.__class__)
        if not same_state(self.object, self.expected):
            kind = type(self.object).__name__
            raise ContractError(f"two fresh objects of {kind} differ, so that no state can be judged; {ADVICE}")
        self._gold, self._seen = self._next_gold(), list[Any]()

    def begin(self) -> Request:
        """The first turn's words, and all functions."""
        return Request(self.task.turns[0][0], [tool.schema for tool in self.functions.values()], self.task.policy)

    def call(self, call: Call) -> ToolResult:
        """Runs a method, after its arguments were checked against its type hints."""
        result, arguments, value = _run(self.object, self.functions, call)
        self._seen += [value] if result.error is None else []
        found = next((number for number, gold in self._gold.items() if gold == (call.name, arguments)), None)
        if found is not None:
            del self._gold[found]
        return ToolResult(result.text, result.error, facts={"gold": found})

    def answer(self, text: str) -> Request | None:
        """Judges the turn and gives the next one."""
        self._judge(text)
        if len(self.passed) == len(self.task.turns):
            return None
        self._gold, self._seen = self._next_gold(), []
        return Request(self.task.turns[len(self.passed)][0])

    def cut(self, reason: StopReason) -> bool:
        """Judges the turn as it stands."""
        self._judge()
        return True

    def verdicts(self) -> Verdicts:
        """All turns; those that were not reached have not passed."""
        passed = self.passed + [False] * (len(self.task.turns) - len(self.passed))
        turns = [
            TurnResult(words, ok, facts={"gold_calls": len(calls), "has_gold": bool(calls)})
            for (words, calls), ok in zip(self.task.turns, passed, strict=True)
        ]
        return Verdicts(tuple(turns), all(passed))

    def _next_gold(self) -> dict[int, tuple[str, dict[str, Any]]]:
        """Makes gold's calls of the next turn: number -> name and arguments, defaults included, of each."""
        before, made = self.task.fresh(), {}
        for _, calls in self.task.turns[: len(self.passed)]:
            for call in calls:
                _run(before, self.functions, call)
        results = []
        for number, call in enumerate(self.task.turns[len(self.passed)][1]):
            result, arguments, value = _run(self.expected, self.functions, call)
            if result.error:
                raise ContractError(f"gold's call {str(call)[:200]} gives an error: {result.text[:200]}")
            results.append(value)
            made[number] = call.name, arguments
        self._asked_for = results if same_state(before, self.expected) else []
        return made

    def _judge(self, said: str = "") -> None:
        done = bool(self.task.turns[len(self.passed)][1]) or is_refusal(said, frozenset(self.functions))
        found = all(any(same(value, seen) for seen in self._seen) for value in self._asked_for)
        self.passed.append(done and found and same_state(self.object, self.expected))


class Tool(NamedTuple):
    """A method, as a model is told of it and as its arguments are checked."""

    schema: dict[str, Any]
    arguments: type[BaseModel]
    signature: inspect.Signature


@cache
def tools_of(kind: Any) -> dict[str, Tool]:
    """Name -> tool of the public methods of a class, static ones too, in the order in which they are written.

    Raises:
        ContractError: the class has none, or one cannot be described as JSON Schema.
    """
    found, tools = {name: value for parent in reversed(kind.__mro__) for name, value in vars(parent).items()}, {}
    for name, value in found.items():
        if name in NO_TOOLS and inspect.iscoroutinefunction(value):
            raise ContractError(f"{kind.__name__}.{name} is async, and nothing awaits it here")
        source = value if isinstance(value, FunctionType | staticmethod | classmethod) else type(value)
        public = name[0] != "_" and name not in NO_TOOLS and not inspect.isclass(value)
        if public and source.__module__.partition(".")[0] not in NO_TOOLS_OF and callable(getattr(kind, name)):
            tools[name] = _tool(kind, name, value)
    if not tools:
        raise ContractError(f"{kind.__name__} has no public method, and so no tool")
    return tools


def _tool(kind: Any, name: str, value: Any) -> Tool:
    """Raises ContractError."""
    where, method = f"{kind.__name__}.{name}", getattr(kind, name)
    docs, fields = parse(inspect.getdoc(method) or ""), dict[str, Any]()
    described = {item.arg_name: item.description for item in docs.params}
    try:
        if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
            raise TypeError("it is async, and nothing awaits it here")
        signature, code = inspect.signature(method), inspect.unwrap(getattr(value, "func", method))
        given = {key: one.annotation for key, one in signature.parameters.items() if one.annotation is not one.empty}
        hints = get_type_hints(SimpleNamespace(__annotations__=given), getattr(code, "__globals__", {}), None, True)
        if hasattr(value, "__get__") and not isinstance(value, staticmethod | classmethod):  # self comes first
            signature = signature.replace(parameters=[*signature.parameters.values()][1:])
        for number, (key, parameter) in enumerate(signature.parameters.items()):
            named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
            if key not in hints or not named or isinstance(parameter.default, FieldInfo):
                raise TypeError(f"parameter {key} needs a type hint, a name of its own, and no Field as its default")
            notes = getattr(hints[key], "__metadata__", ())  # Field(description=...), Doc(...) or a text
            said = (getattr(note, "description", getattr(note, "documentation", note)) for note in notes)
            words = next((item for item in said if isinstance(item, str)), described.get(key))
            default = ... if parameter.default is parameter.empty else parameter.default
            default = default.tolist() if hasattr(default, "tolist") else default  # numbers of numpy
            fields[f"a{number}"] = (hints[key], Field(default, alias=key, description=words))  # BaseModel has names too
        arguments = create_model(where, __config__=ConfigDict(extra="forbid", strict=True), **fields)
        schema = json.loads(json.dumps(arguments.model_json_schema()), object_hook=_plain)
        text = "\n".join(filter(None, (docs.short_description, docs.long_description)))
        schema = {"type": "object", "properties": {}} | schema
        document = documented({"name": name, "description": text, "parameters": schema})
    except (NameError, TypeError, ValueError, PydanticUserError) as error:
        what = str(error).splitlines()[0].rstrip(".")
        raise ContractError(f"{where}: {what}; begin its name with _ if it is no tool") from error
    return Tool(document, arguments, signature)


def _plain(found: dict[str, Any]) -> dict[str, Any]:
    """A part of pydantic's schema as chat templates expect it: "nullable" for Optional, and open for other keys."""
    made = {key: value for key, value in found.items() if key != "additionalProperties" or value is not False}
    kinds = [kind for kind in made.get("anyOf") or () if kind != {"type": "null"}]
    if len(kinds) != 1 or len(made["anyOf"]) != 2:
        return made
    return kinds[0] | {key: made[key] for key in made if key != "anyOf"} | {"nullable": True}


def _run(target: Any, tools: Mapping[str, Tool], call: Call) -> tuple[ToolResult, dict[str, Any], Any]:
    """The result of a call, its arguments with their defaults, and its value in JSON; ContractError if it has none."""
    if (tool := tools.get(call.name)) is None:
        return ToolResult(f"there is no function {call.name[:80]!r}", ErrorKind.UNKNOWN_FUNCTION), {}, None
    if call.positional:
        return ToolResult(f"{call.name} takes {list(tool.signature.parameters)}", ErrorKind.BAD_ARGUMENTS), {}, None
    try:
        # As JSON, in which a text may stand for an Enum and an object for a dataclass, but no True for an int.
        checked = tool.arguments.model_validate_json(json.dumps(call.arguments))
    except ValidationError as error:
        wrong = (f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors(include_url=False)[:5])
        return ToolResult("; ".join(wrong), ErrorKind.BAD_ARGUMENTS), {}, None
    fields = type(checked).model_fields
    given = {str(fields[name].alias): getattr(checked, name) for name in checked.model_fields_set}
    try:
        bound = tool.signature.bind(**given)
        value = in_json(getattr(target, call.name)(**given))
        text = value if isinstance(value, str) else compact_json(value, allow_nan=False)
    except ContractError as error:
        raise ContractError(f"{type(target).__name__}.{call.name} returns {error}") from error
    except Exception as error:
        return ToolResult(str(error) or type(error).__name__, ErrorKind.EXECUTION), {}, None
    bound.apply_defaults()
    return ToolResult(text), dict(bound.arguments), value
