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
Where gold makes no call, the model must refuse in words. With `check`, a function of the user's judges instead.

States are compared by the class's `__eq__`, else by what its `state()` returns, else by its attributes, floats up to
a rounding (`interaction.values`). Attempts do not share an object, but each call runs in a thread of its own:
`sqlite3.connect(..., check_same_thread=False)`.

A class whose tools are coroutines, or that says `WAITS = True`, waits for something outside. Its conversations run
beside each other, its object is made with the first call, gold's calls are made once a task and process, and what a
service fails to do is done again (`interaction.boundary.patiently`). The class may have, beside `WAITS`:

    ONCE = ("pay",)                          methods that are not repeated within an attempt
    PARALLEL = True                          calls of one message run beside each other
    UNAVAILABLE = (httpx.TransportError,)    what says that the service, not the call, has failed
"""

import atexit
import inspect
import json
import logging
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache, partial
from threading import Lock
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple, get_type_hints

from docstring_parser import parse
from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model
from pydantic.fields import FieldInfo

from interaction import boundary
from interaction.boundary import CALL_SECONDS, ToolUnavailable, UserCodeError, patiently, raised, waited
from interaction.call import Call
from interaction.contract import ContractError
from interaction.environment import EnvironmentBase, GoldMessage, Part, Request, waits_by_class
from interaction.outcome import ErrorKind, ToolResult, TurnResult, Verdicts
from interaction.protocol.docs import compact_json, documented
from interaction.record import StopReason
from interaction.refusal import is_refusal
from interaction.user_file import FromText
from interaction.values import ADVICE, in_json, same, same_state

__all__ = ["Call", "Made", "ToolEnvironment", "ToolTask", "ToolUnavailable"]

logger = logging.getLogger(__name__)

NO_TOOLS = ("reset", "setup", "state", "check", "check_episode", "teardown", "close")
"""Public methods that are not offered to the model."""
ANSWER = "Done."
AT_ONCE = 16
"""Calls of one message that run beside each other."""
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
    turns: Sequence[tuple[str, Sequence[Call]] | tuple[str, Sequence[Call], str] | str]
    """For each turn, the user's words, gold's calls and, where it matters, gold's answer; of a task with `check` the
    user's words alone will do."""
    start: Mapping[str, Any] = field(default_factory=dict)
    part: Part = "train"
    category: str = "tools"
    cluster: str = ""
    """Tasks of one cluster stay on one side of a split; the id, if it is empty."""
    policy: str = ""
    """Rules of the domain, for the system prompt."""
    check: Callable[..., Any] | None = None
    """In place of gold, plain or async: `check(object, turn, calls, words)` at the end of each turn, numbered from 0,
    with what the model called in it (`Made`) and its last words. 1 or True passes; a smaller number is that share of
    the turn. Without it, a method `check(turn, calls, words)` of the class."""
    check_episode: Callable[..., Any] | None = None
    """`check_episode(object, calls, words)` at the end, with all calls; it has to pass beside the turns."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "cluster", self.cluster or self.id)

    @property
    def said(self) -> list[tuple[str, Sequence[Call]]]:
        """For each turn the user's words and gold's calls; none where the words stand alone."""
        return [(turn, ()) if isinstance(turn, str) else (turn[0], turn[1]) for turn in self.turns]

    @property
    def waits(self) -> bool:
        """Whether attempts wait for something outside."""
        kind = self.kind()
        checks = inspect.iscoroutinefunction(self.check) or inspect.iscoroutinefunction(self.check_episode)
        return checks or _kind_waits(kind or type(self.tools))

    @property
    def checked(self) -> bool:
        """Whether something else than gold judges."""
        return bool(self.check or self.check_episode or hasattr(self.kind(), "check"))

    def kind(self) -> type | None:
        """The class, as far as it can be known before there is an object."""
        made = self.tools.func if isinstance(self.tools, partial) else self.tools
        return made if isinstance(made, type) else None

    def open(self) -> "ToolEnvironment":
        """A fresh attempt. Raises ContractError where the class cannot be used, or two fresh objects of it differ."""
        return WaitingTools(self) if self.waits else ToolEnvironment(self)

    def attempt(self, seconds: float) -> "ToolEnvironment":
        """A fresh attempt of a class that waits, each of whose calls has this limit."""
        return WaitingTools(self, seconds)

    def gold(self) -> Iterator[GoldMessage]:
        """Each of gold's calls in a message of its own, an answer at the end of each turn; nothing if it is unknown."""
        known = [turn for turn in self.turns if not isinstance(turn, str)]
        for turn in known if len(known) == len(self.turns) else ():
            yield from (GoldMessage(calls=(call,)) for call in turn[1])
            yield GoldMessage(answer=turn[2] if len(turn) > 2 else ANSWER)

    def fresh(self) -> Any:
        """An object as the task begins with."""
        start = deepcopy(self.start)
        if not hasattr(self.tools, "reset"):
            return self.tools(**start)
        made = self.tools()
        made.reset(**start)
        return made

    def shared_by_attempts(self) -> dict[str, bytes]:
        """What objects of the class have in common, as far as it can be written down: globals, attributes, defaults."""
        servers: Any = type(self.tools)
        kind = self.kind() or (servers if _kind_waits(servers) else type(self.fresh()))
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


class Made(NamedTuple):
    """A call of the model's, for `check`."""

    name: str
    arguments: dict[str, Any]
    """With defaults, where the call fits the function."""
    value: Any
    """What it returned, in JSON's types; None where there is an error."""
    error: str | None
    """What the model read in its place."""


Ran = tuple[ToolResult, dict[str, Any], Any]
"""The result of a call, its arguments with their defaults, and its value in JSON."""


class ToolEnvironment(EnvironmentBase):
    """One attempt: the object that the model's calls change, and one on which gold's calls are made."""

    def __init__(self, task: ToolTask) -> None:
        self.task, self.passed, self.shares = task, list[bool | None](), list[float | None]()
        self.episode: float | None = None
        self._open, self._calls, self._seen = list[Any](), list[Made](), list[Any]()
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        self.object = self._fresh(self._open)
        kind: Any = type(self.object)
        self.functions = tools_of(kind)
        if self.task.kind() is None and (_kind_waits(kind) or hasattr(kind, "check")):
            raise ContractError(
                f"tools must be {kind.__name__} itself or a functools.partial of it: it waits or checks"
            )
        if not self.task.checked:
            self.expected = self._fresh(self._open)
            if not same_state(self.object, self.expected):
                raise ContractError(
                    f"two fresh objects of {kind.__name__} differ, so that no state can be judged; {ADVICE}"
                )
        self._begin_turn()

    def _do(self, function: Callable[..., Any], *args: Any, once: bool = False, **kwargs: Any) -> Any:
        """A call of the user's code."""
        return function(*args, **kwargs)

    def _fresh(self, owner: list[Any]) -> Any:
        """An object as the task begins with, set up; `owner` closes it."""
        start = deepcopy(self.task.start)  # calls may change what the object was given
        given = {} if hasattr(self.task.kind() or self.task.tools, "reset") else start
        made = self._do(partial(self.task.tools, **given))  # its names are not those of `_do`
        owner.append(made)
        if hasattr(made, "reset"):
            self._do(made.reset, **start)
        if hasattr(made, "setup"):
            self._do(made.setup, once="setup" in getattr(made, "ONCE", ()))
        return made

    def begin(self) -> Request:
        """The first turn's words, and all functions."""
        return Request(self.task.said[0][0], [tool.schema for tool in self.functions.values()], self.task.policy)

    def call(self, call: Call) -> ToolResult:
        """Runs a method, after its arguments were checked against its type hints."""
        return self._note(call, self._run(self.object, call))

    def _note(self, call: Call, ran: Ran) -> ToolResult:
        result, arguments, value = ran
        self._seen += [value] if result.error is None else []
        self._calls.append(Made(call.name, arguments or call.arguments, value, result.text if result.error else None))
        ran_as = None if result.error else (call.name, arguments)  # of one that failed no arguments are known
        found = next((number for number, gold in self._gold.items() if gold == ran_as), None)
        if found is not None:
            del self._gold[found]
        return ToolResult(result.text, result.error, facts={"gold": found})

    def answer(self, text: str) -> Request | None:
        """Judges the turn and gives the next one."""
        self._judge(text)
        if len(self.passed) == len(self.task.turns):
            self._judge_episode(text)
            return None
        self._begin_turn()
        return Request(self.task.said[len(self.passed)][0])

    def cut(self, reason: StopReason) -> bool:
        """Judges the turn as it stands."""
        self._judge("")
        self._judge_episode("")
        return True

    def verdicts(self) -> Verdicts:
        """All turns; those that were not reached have not passed."""
        alone = self.task.check_episode is not None and not self._checks_turns()
        left = len(self.task.turns) - len(self.passed)
        turns = []
        for given, (words, calls), ok, share in zip(
            self.task.turns,
            self.task.said,
            [*self.passed, *[None if alone else False] * left],
            [*self.shares, *[None] * left],
            strict=True,
        ):
            facts: dict[str, Any] = {"has_gold": bool(calls) or self.task.checked}
            if not isinstance(given, str):  # of words alone nobody knows which call is one too many
                facts |= {"gold_calls": len(calls), "gold_functions": [call.name for call in calls]}
                facts["gold_arguments"] = [{name: [value] for name, value in call.arguments.items()} for call in calls]
            turns.append(TurnResult(words, ok, facts=facts if share is None else facts | {"share": share}))
        whole = not left and False not in self.passed and (self.task.check_episode is None or self.episode == 1)
        return Verdicts(tuple(turns), whole, {} if self.episode is None else {"episode": self.episode})

    def close(self) -> None:
        """Ends each object once: `teardown`, then `close`. A fault of one keeps none of the others."""
        while self._open:
            self._end(self._open.pop())

    def _end(self, made: Any) -> None:
        for name in ("teardown", "close"):
            try:
                if hasattr(made, name):
                    self._do(getattr(made, name), once=name in ("close", *getattr(made, "ONCE", ())))
            except Exception as error:
                logger.error("%s.%s in %s: %s", type(made).__name__, name, self.task.id, raised(error))

    def _begin_turn(self) -> None:
        self._seen, self._from = list[Any](), len(self._calls)
        self._gold, calls = dict[int, tuple[str, dict[str, Any]]](), self.task.said[len(self.passed)][1]
        for number, call in enumerate(calls):
            wrong, found = checked(self.functions, call)
            if wrong is not None:
                raise ContractError(f"gold's call {str(call)[:200]} gives an error: {wrong.text[:200]}")
            self._gold[number] = call.name, found.bound
        self._asked_for = [] if self.task.checked else self._gold_results(calls)

    def _gold_results(self, calls: Sequence[Call]) -> list[Any]:
        """Makes gold's calls of the turn; what the model must have seen."""
        made = list[Any]()
        try:
            before = self._fresh(made)
            for _, earlier in self.task.said[: len(self.passed)]:
                self._make_gold(before, earlier)
            results = self._make_gold(self.expected, calls)
            return results if same_state(before, self.expected) else []
        finally:
            for one in made:
                self._end(one)

    def _make_gold(self, target: Any, calls: Sequence[Call]) -> list[Any]:
        """The values of gold's calls. Raises ContractError where one fails."""
        values = []
        for call in calls:
            result, _, value = self._run(target, call)
            if result.error:
                raise ContractError(f"gold's call {str(call)[:200]} gives an error: {result.text[:200]}")
            values.append(value)
        return values

    def _checks_turns(self) -> bool:
        return self.task.check is not None or hasattr(self.task.kind() or self.object, "check")

    def _judge(self, said: str) -> None:
        turn = len(self.passed)
        if not self.task.checked:
            done = bool(self.task.said[turn][1]) or is_refusal(said, frozenset(self.functions))
            found = all(any(same(value, seen) for seen in self._seen) for value in self._asked_for)
            self._keep(done and found and self._as_gold(turn))
        elif self._checks_turns():
            check = partial(self.task.check, self.object) if self.task.check else self.object.check
            self._keep(None, share_of(self._do(check, turn, self._calls[self._from :], said), "check"))
        else:
            self._keep(None)

    def _keep(self, passed: bool | None, share: float | None = None) -> None:
        self.passed.append(passed if share is None else share == 1)
        self.shares.append(share)

    def _judge_episode(self, said: str) -> None:
        if self.task.check_episode is not None:
            value = self._do(self.task.check_episode, self.object, self._calls, said)
            self.episode = share_of(value, "check_episode")

    def _as_gold(self, turn: int) -> bool:
        return same_state(self.object, self.expected)

    def _run(self, target: Any, call: Call) -> Ran:
        """Raises ContractError for a value that JSON has not, ToolUnavailable where a service fails."""
        wrong, found = checked(self.functions, call)
        if wrong is not None:
            return wrong, {}, None
        once = call.name in getattr(target, "ONCE", ())
        try:
            value = in_json(self._do(self.functions[call.name].run, target, call.name, found.given, once=once))
            text = value if isinstance(value, str) else compact_json(value, allow_nan=False)
        except ContractError as error:
            raise ContractError(f"{type(target).__name__}.{call.name} returns {error}") from error
        except (ToolUnavailable, UserCodeError):
            raise
        except getattr(target, "UNAVAILABLE", ()) as error:
            raise ToolUnavailable(raised(error)) from error
        except Exception as error:
            return ToolResult(str(error) or type(error).__name__, ErrorKind.EXECUTION), {}, None
        return ToolResult(text), found.bound, value


def share_of(value: Any, name: str) -> float:
    """What a check returned, as a share. Raises ContractError for another value than True, False or one from 0 to 1."""
    found = in_json(value)  # of numpy too
    if isinstance(found, bool | int | float) and 0 <= found <= 1:
        return float(found)
    raise ContractError(f"{name}() gives {value!r:.80}; expected True, False or a number from 0 to 1")


class WaitingTools(ToolEnvironment):
    """One attempt with a class that waits: its object is made with the first call, gold is kept for the process."""

    def __init__(self, task: ToolTask, seconds: float = CALL_SECONDS) -> None:
        self._seconds, self._making, self._stopped = seconds, Lock(), boundary.stopped_loops
        super().__init__(task)

    def _start(self) -> None:
        kind: Any = self.task.kind() or self.task.tools
        self._unavailable, self.parallel = (
            tuple(getattr(kind, "UNAVAILABLE", ())),
            bool(getattr(kind, "PARALLEL", False)),
        )
        told = getattr(kind, "functions", None) if self.task.kind() is None else None  # of a server
        if told is not None and not self.task.checked:
            raise ContractError("tools of a server have no state that gold is compared with; give the task a check")
        self.functions = tools_of(kind) if told is None else self._do(told, self.task.start)
        self._begin_turn()

    def __getattr__(self, name: str) -> Any:
        if name != "object":
            raise AttributeError(name)
        with self._making:
            if "object" not in vars(self):
                self.object = self._fresh(self._open)
        return self.object

    def _do(self, function: Callable[..., Any], *args: Any, once: bool = False, **kwargs: Any) -> Any:
        of = getattr(function, "__self__", getattr(function, "func", None))
        seconds = max(self._seconds, getattr(of, "START_SECONDS", 0.0))  # to start a server
        work = partial(waited, function, seconds, *args, **kwargs)
        try:
            return patiently(work, self._unavailable, once)
        except Exception as error:
            if boundary.stopped_loops == self._stopped:
                raise
            raise ToolUnavailable(raised(error)) from error  # what this object has begun may work in no other loop

    def _fresh(self, owner: list[Any]) -> Any:
        """Raises ToolUnavailable: the model's words have no part in it."""
        try:
            return super()._fresh(owner)
        except (ToolUnavailable, ContractError):
            raise
        except Exception as error:
            raise ToolUnavailable(raised(error)) from error

    def call_all(self, calls: Sequence[Call]) -> Sequence[ToolResult]:
        """Runs calls beside each other, at most `AT_ONCE`."""
        with ThreadPoolExecutor(min(len(calls), AT_ONCE)) as pool:
            ran = [*pool.map(partial(self._run, self.object), calls)]
        return [self._note(call, one) for call, one in zip(calls, ran, strict=True)]

    def _gold_results(self, calls: Sequence[Call]) -> list[Any]:
        return []  # they are made when the turn is judged

    def _as_gold(self, turn: int) -> bool:
        kept = _kept.setdefault(id(self.task), KeptGold(self.task))
        wanted, asked_for = kept.of_turn(turn, self)
        found = all(any(same(value, seen) for seen in self._seen) for value in asked_for)
        return found and self._alike(self._state(self.object), wanted)

    def _state(self, made: Any) -> Any:
        """What is compared of an object: a copy of what `state()` returns, or the object itself."""
        return [deepcopy(self._do(made.state))] if has_state(type(made)) else made

    def _alike(self, one: Any, other: Any) -> bool:
        return bool(self._do(same, one, other))


class KeptGold:
    """Gold of one task, made once in a process, as far as attempts have come."""

    def __init__(self, task: ToolTask) -> None:
        self.task, self._lock, self._failure = task, Lock(), ""
        self._forget()

    def _forget(self) -> None:
        self.states, self.asked_for, self.open = list[Any](), list[list[Any]](), list[Any]()

    def of_turn(self, turn: int, attempt: WaitingTools) -> tuple[Any, list[Any]]:
        """The state after gold's calls of a turn, and the values that the model must have seen.

        Raises:
            ToolUnavailable: it cannot be made now. Attempts that have waited for it do not try again.
        """
        before = self._failure
        with self._lock:
            if self._failure is not before:
                raise ToolUnavailable(self._failure)
            try:
                while len(self.asked_for) <= turn:
                    self._go_on(attempt)
            except BaseException as error:
                self._close(attempt)
                self._forget()
                if not isinstance(error, Exception):
                    raise
                self._failure = f"gold of {self.task.id}: {raised(error)}"
                raise ToolUnavailable(self._failure) from error
            return self.states[turn + 1], self.asked_for[turn]

    def _go_on(self, attempt: WaitingTools) -> None:
        if not self.states:
            self.states.append(attempt._state(attempt._fresh(self.open)))
        turn = len(self.asked_for)
        target = self.open[-1]
        if not has_state(type(target)):  # each state is an object of its own
            target = attempt._fresh(self.open)
            for _, calls in self.task.said[:turn]:
                attempt._make_gold(target, calls)
        values = attempt._make_gold(target, self.task.said[turn][1])
        after = attempt._state(target)
        self.asked_for.append(values if attempt._alike(self.states[-1], after) else [])
        self.states.append(after)
        if turn + 1 == len(self.task.turns) and has_state(type(target)):
            self._close(attempt)

    def _close(self, attempt: WaitingTools) -> None:
        while self.open:
            attempt._end(self.open.pop())


_kept: dict[int, KeptGold] = {}
"""Identity of a task, which its gold keeps alive -> its gold."""


@atexit.register
def _close_kept() -> None:
    for kept in _kept.values():
        kept._close(WaitingTools(kept.task))


@cache
def _kind_waits(kind: Any) -> bool:
    """Whether a class of tools waits."""
    return waits_by_class(kind, *(name for name in dir(kind) if name[0] != "_"))


def has_state(kind: type) -> bool:
    """Whether objects of a class are compared by `state()`."""
    equal: Any = kind.__eq__
    return equal is object.__eq__ and hasattr(kind, "state")


class Tool(NamedTuple):
    """A method, as a model is told of it and as its arguments are checked."""

    schema: dict[str, Any]
    arguments: type[BaseModel]
    signature: inspect.Signature

    def check(self, call: Call) -> "Checked":
        """Whether a call fits, as JSON: a text may stand for an Enum, an object for a dataclass, no True for an int."""
        try:
            found = self.arguments.model_validate_json(json.dumps(call.arguments))
        except ValidationError as error:
            wrong = (
                f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors(include_url=False)[:5]
            )
            return Checked("; ".join(wrong))
        fields = type(found).model_fields
        given = {str(fields[name].alias): getattr(found, name) for name in found.model_fields_set}
        bound = self.signature.bind(**given)
        bound.apply_defaults()
        return Checked(None, given, dict(bound.arguments))

    def run(self, target: Any, name: str, given: Mapping[str, Any]) -> Any:
        """What the method of an object returns."""
        return getattr(target, name)(**given)


class Checked(NamedTuple):
    """A call beside the function's schema."""

    wrong: str | None
    """What is wrong with it."""
    given: Mapping[str, Any] = {}
    """The arguments to call with."""
    bound: dict[str, Any] = {}
    """The same with defaults, as they are compared with gold's."""


def checked(tools: Mapping[str, Any], call: Call) -> tuple[ToolResult | None, Checked]:
    """What a model reads of a call that is wrong, and the call as it is made."""
    if (tool := tools.get(call.name)) is None:
        return ToolResult(f"there is no function {call.name[:80]!r}", ErrorKind.UNKNOWN_FUNCTION), Checked("")
    if call.positional:
        names = [*tool.schema["parameters"]["properties"]]
        return ToolResult(f"{call.name} takes {names}", ErrorKind.BAD_ARGUMENTS), Checked("")
    found = tool.check(call)
    return None if found.wrong is None else ToolResult(found.wrong, ErrorKind.BAD_ARGUMENTS), found


@cache
def tools_of(kind: Any) -> dict[str, Tool]:
    """Name -> tool of the public methods of a class, static ones too, in the order in which they are written.

    Raises:
        ContractError: the class has none, or one cannot be described as JSON Schema.
    """
    found, tools = {name: value for parent in reversed(kind.__mro__) for name, value in vars(parent).items()}, {}
    for name, value in found.items():
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
        if inspect.isasyncgenfunction(method):
            raise TypeError("it yields, and nothing reads that here")
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
