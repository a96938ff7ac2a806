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

States are compared by the class's `__eq__`, else by what its `state()` returns, else by its attributes. Attempts do not
share an object, but each call runs in a thread of its own: `sqlite3.connect(..., check_same_thread=False)`.
"""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from reprlib import repr as short
from typing import Any, NamedTuple, get_type_hints

from docstring_parser import parse
from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model
from pydantic_core import to_json

from interaction.call import Call
from interaction.contract import ContractError
from interaction.environment import EnvironmentBase, GoldMessage, Part, Request
from interaction.outcome import ErrorKind, ToolResult, TurnResult, Verdicts
from interaction.record import StopReason

__all__ = ["Call", "ToolEnvironment", "ToolTask"]

NO_TOOLS = ("reset", "state")
"""Public methods that are not offered to the model."""
ANSWER = "Done."


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


class ToolEnvironment(EnvironmentBase):
    """One attempt: the object that the model's calls change, and one on which gold's calls are made."""

    def __init__(self, task: ToolTask) -> None:
        self.task, self.passed = task, list[bool]()
        self.object, self.expected = task.fresh(), task.fresh()
        self.functions = tools_of(self.object.__class__)
        if not _same(self.object, self.expected):
            raise ContractError(
                f"two fresh objects of {type(self.object).__name__} differ, so that no state can be judged; "
                "give it a method __eq__ or state() that compares what counts"
            )
        self._gold, self._seen = self._next_gold(), list[str]()

    def begin(self) -> Request:
        """The first turn's words, and all functions."""
        return Request(self.task.turns[0][0], [tool.schema for tool in self.functions.values()], self.task.policy)

    def call(self, call: Call) -> ToolResult:
        """Runs a method, after its arguments were checked against its type hints."""
        result, arguments = _run(self.object, self.functions, call)
        self._seen.append(result.text)
        found = next((number for number, gold in self._gold.items() if gold == (call.name, arguments)), None)
        if found is not None:
            del self._gold[found]
        return ToolResult(result.text, result.error, facts={"gold": found})

    def answer(self, text: str) -> Request | None:
        """Judges the turn and gives the next one."""
        self._judge()
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
            result, arguments = _run(self.expected, self.functions, call)
            if result.error:
                raise ContractError(f"gold's call {str(call)[:200]} gives an error: {result.text[:200]}")
            results.append(result.text)
            made[number] = call.name, arguments
        self._asked_for = results if _same(before, self.expected) else []
        return made

    def _judge(self) -> None:
        self.passed.append(_same(self.object, self.expected) and {*self._asked_for} <= {*self._seen})


class Tool(NamedTuple):
    """A method, as a model is told of it and as its arguments are checked."""

    schema: dict[str, Any]
    arguments: type[BaseModel]
    signature: inspect.Signature


@cache
def tools_of(kind: Any) -> dict[str, Tool]:
    """Name -> tool of the public methods of a class, in the order in which they are written.

    Raises:
        ContractError: the class has none, or one cannot be described as JSON Schema.
    """
    found = {name: value for parent in reversed(kind.__mro__) for name, value in vars(parent).items()}
    methods = {name: value for name, value in found.items() if inspect.isfunction(value) and name[0] != "_"}
    tools = {name: _tool(f"{kind.__name__}.{name}", methods[name]) for name in methods if name not in NO_TOOLS}
    if not tools:
        raise ContractError(f"{kind.__name__} has no public method, and so no tool")
    return tools


def _tool(where: str, method: Callable[..., Any]) -> Tool:
    """Raises ContractError."""
    signature, docs = inspect.signature(method), parse(inspect.getdoc(method) or "")
    described = {item.arg_name: item.description for item in docs.params}
    fields: dict[str, Any] = {}
    try:
        hints = get_type_hints(method, include_extras=True)
        for number, (name, parameter) in enumerate(list(signature.parameters.items())[1:]):
            if name not in hints or parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise ContractError(f"{where}: parameter {name} needs a type hint and a name of its own")
            default = ... if parameter.default is parameter.empty else parameter.default
            about = Field(default, alias=name, description=described.get(name))
            fields[f"a{number}"] = (hints[name], about)  # a name of the class BaseModel cannot be a field of it
        config = ConfigDict(extra="forbid", strict=True)
        arguments = create_model(where, __config__=config, **fields)
        schema = arguments.model_json_schema()
    except (NameError, TypeError, PydanticUserError) as error:
        raise ContractError(f"{where}: {str(error).splitlines()[0]}") from error
    parameters = _plain({"type": "object", "properties": {}} | schema, schema.get("$defs", {}), where)
    text = "\n".join(filter(None, (docs.short_description, docs.long_description)))
    return Tool({"name": where.rpartition(".")[2], "description": text, "parameters": parameters}, arguments, signature)


def _plain(schema: Any, shared: Mapping[str, Any], where: str, depth: int = 0) -> Any:
    """A schema as chat templates expect it: without references and titles, and "nullable" for Optional."""
    if depth > 20:
        raise ContractError(f"{where}: a type that contains itself cannot be described")
    if isinstance(schema, list):
        return [_plain(item, shared, where, depth + 1) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if (name := schema.get("$ref")) is not None:
        schema = shared[name.rpartition("/")[2]] | {key: value for key, value in schema.items() if key != "$ref"}
        return _plain(schema, shared, where, depth + 1)
    kinds = [item for item in schema.get("anyOf", ()) if item != {"type": "null"}]
    if len(kinds) == 1 and len(schema["anyOf"]) == 2:
        rest = {key: value for key, value in schema.items() if key != "anyOf"}
        return _plain(kinds[0] | rest | {"nullable": True}, shared, where, depth + 1)
    result = {}
    for key, value in schema.items():
        if key == "properties":
            result[key] = {name: _plain(item, shared, where, depth + 1) for name, item in value.items()}
        elif key in ("default", "enum", "const", "examples"):
            result[key] = value
        elif key not in ("title", "$defs") and value is not False:
            result[key] = _plain(value, shared, where, depth + 1)
    return result


def _run(target: Any, tools: Mapping[str, Tool], call: Call) -> tuple[ToolResult, dict[str, Any]]:
    """The result of a call, and its arguments with their defaults; without these where the call was refused."""
    if (tool := tools.get(call.name)) is None:
        return ToolResult(f"there is no function {call.name[:80]!r}", ErrorKind.UNKNOWN_FUNCTION), {}
    if call.positional:
        return ToolResult(f"{call.name} takes {list(tool.signature.parameters)[1:]}", ErrorKind.BAD_ARGUMENTS), {}
    try:
        # As JSON, in which a text may stand for an Enum and an object for a dataclass, but no True for an int.
        checked = tool.arguments.model_validate_json(json.dumps(call.arguments))
    except ValidationError as error:
        wrong = (f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors(include_url=False)[:5])
        return ToolResult("; ".join(wrong), ErrorKind.BAD_ARGUMENTS), {}
    fields = type(checked).model_fields
    given = {str(fields[name].alias): getattr(checked, name) for name in checked.model_fields_set}
    bound = tool.signature.bind(target, **given)
    try:
        value = getattr(target, call.name)(**given)
        text = value if isinstance(value, str) else to_json(value, fallback=short).decode()
    except Exception as error:
        return ToolResult(str(error) or type(error).__name__, ErrorKind.EXECUTION), {}
    bound.apply_defaults()
    return ToolResult(text), dict(list(bound.arguments.items())[1:])


def _same(one: Any, other: Any) -> bool:
    kind = type(one)
    if "__eq__" in {name for parent in kind.__mro__[:-1] for name in vars(parent)}:
        return bool(one == other)
    if hasattr(kind, "state"):
        return bool(one.state() == other.state())
    return bool(vars(one) == vars(other))
