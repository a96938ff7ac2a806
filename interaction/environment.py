"""What a conversation asks of an environment, and where environments are found by name.

This room imports no environment: an environment imports the vocabulary (`call`, `outcome`) and fulfils what stands
here. A task is frozen data; `open` makes a fresh attempt at it, which is used once and closed.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import import_module
from inspect import iscoroutinefunction
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Protocol

from pydantic import ValidationError

from interaction.boundary import CALL_SECONDS, LOAD_SECONDS, MODULE, Limited, call, how
from interaction.call import Call
from interaction.contract import called, checked_tasks
from interaction.outcome import Facts, ToolResult, Verdicts
from interaction.record import EpisodeRecord, StopReason
from interaction.user_file import load
from interaction.words import wrong_settings

ENVIRONMENTS: dict[str, str] = {"bfcl": "bfcl_env", "bfcl_single": "bfcl_env.single_turn", "tau": "tau_env"}
"""Name -> package that has `load_tasks()`. It may have `Options` (a frozen dataclass of an attempt's settings),
`judge_all(records)` (its source's own checker), `data_sets(tiny, options)`, `made_from()` and
`leaderboard_averages(accuracies)`; the functions below say what these give."""

READERS: dict[str, str] = {".json": "bfcl_env.entries"}
"""Ending of a file of a user's that holds tasks and no code -> package that reads it: its `environment(name, path)`
gives what the packages above have."""

NAME = re.compile(r"[A-Za-z_][\w-]*", re.ASCII)
"""What an environment of a user's can be called, so that settings name it without quotes."""

DEFAULT = "bfcl"
"""The environment of rows that name none."""

_files: dict[str, str] = {}
"""Environments of a user's: name -> Python file, which has what the packages above have, or a file of `READERS`."""


class UserFault(RuntimeError):
    """A user model failed, or said what cannot be used: the episode is played again, and nothing of it is scored.

    An environment raises it in `hear` where what the user said makes no sense to it.
    """


Part = Literal["train", "dev", "test"]
"""Where a task stands: tasks to train on; dev tasks, which may choose; test tasks, which are reported."""


@dataclass(frozen=True, slots=True)
class DataSet:
    """The tasks of one file of a data set."""

    kind: Literal["train", "val", "sft"]
    """Rows to train on, rows to validate on, or gold conversations."""
    tasks: Sequence["Task"]
    max_result_chars: int | None = None
    """Where nothing else is asked for, the length to which results in gold conversations are cut."""


@dataclass(frozen=True, slots=True)
class Request:
    """What the user wants next."""

    user: str
    """The user's words; empty where the turn only announces functions."""
    functions: Sequence[Mapping[str, Any]] = ()
    """Documentation (name, description, parameters) of functions that can be called from here on and could not before;
    in the first request, of all that can be called."""
    policy: str = ""
    """In the first request: rules of the domain, for the system prompt."""


@dataclass(frozen=True, slots=True)
class AskUser:
    """A user who is played by a model has to speak: chat messages for that model, the last one to be answered."""

    messages: Sequence[Mapping[str, str]]
    task_id: str = ""
    """This and the next are filled in by the conversation."""
    heard: int = 0
    """How often this user has spoken before."""
    silence: bool = False
    """Whether the environment knows what to make of a user who says nothing: `hear("")`."""


@dataclass(frozen=True, slots=True)
class GoldMessage:
    """A message of a model that does everything right: calls, or an answer to the user."""

    calls: tuple[Call, ...] = ()
    answer: str = ""


@dataclass(frozen=True, slots=True)
class UserWords:
    """What the user says in a gold conversation where the environment asks for it."""

    text: str


class Environment(Protocol):
    """One attempt at a task: single use.

    One that waits, for a service or a file, has coroutines among its methods, or a class with `WAITS = True`; then its
    plain methods may wait too. What all others do is computed at once, in one thread.

    A conversation calls `begin` first; then for each message of the model `call` for each of its calls, or `answer`.
    Whatever a model does is answered in the results; what is raised is a fault of the environment and ends the episode.
    """

    def begin(self) -> Request | AskUser:
        """The first request."""
        ...

    def call(self, call: Call) -> ToolResult:
        """Runs one call. Whatever is wrong with it is in the result."""
        ...

    def facts(self) -> Facts:
        """What rewards may want to know after a message with calls, such as how close the state is; may be empty."""
        ...

    @property
    def over(self) -> StopReason | None:
        """Why nothing more can be done; read after each message. Calls after that are refused."""
        ...

    def answer(self, text: str) -> Request | AskUser | None:
        """The model spoke to the user, which ends the user's turn: the next request, or None at the end."""
        ...

    def hear(self, words: str) -> Request | AskUser | None:
        """What a user model said to the last `AskUser`.

        Raises:
            UserFault: it cannot be used. The episode is played again, and then dropped: it is never scored.
        """
        ...

    def cut(self, reason: StopReason) -> bool:
        """A limit ended the turn, and with it the episode. Whether the turn was judged as it stands."""
        ...

    def verdicts(self) -> Verdicts:
        """The judgement so far, at any time before `close`; after the end, the judgement."""
        ...

    def close(self) -> None:
        """Frees everything; twice is fine."""
        ...


class EnvironmentBase:
    """What most environments have in common: nothing ends early, the user is scripted, nothing is to be freed."""

    over: StopReason | None = None
    parallel = False
    """Whether calls of one message run beside each other."""

    def call_all(self, calls: Sequence[Call]) -> Sequence[ToolResult]:
        """Runs the calls of one message beside each other; where `parallel`."""
        raise NotImplementedError

    def facts(self) -> Facts:
        """None."""
        return {}

    def beside(self, text: str) -> None:
        """The model's words in a message with calls, before these run. Files of a user's are not told."""

    def hear(self, words: str) -> Request | AskUser | None:
        """Nobody was asked.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(f"{type(self).__name__} never asks for the words of a user")

    def close(self) -> None:
        """Nothing to free."""


class Task(Protocol):
    """Frozen; any number of attempts at it may be open at once."""

    @property
    def environment(self) -> str:
        """The name by which rows name the environment."""
        ...

    @property
    def id(self) -> str:
        """Unique among the environment's tasks."""
        ...

    @property
    def category(self) -> str: ...

    @property
    def cluster(self) -> str:
        """Tasks that resemble each other so much that they never stand on both sides of a split."""
        ...

    @property
    def part(self) -> Part: ...

    def open(self, **options: Any) -> Environment:
        """A fresh attempt; `options` are the fields of the environment's `Options`, if it has any."""
        ...

    def gold(self) -> Iterable[GoldMessage | UserWords]:
        """A conversation that earns the maximum; empty where none is known."""
        ...


class UnknownEnvironment(ValueError):
    """No environment has this name in this process: message, name."""

    @property
    def name(self) -> str:
        return self.args[1]

    def __str__(self) -> str:
        return self.args[0]


@cache
def load_tasks(environment: str = DEFAULT) -> Mapping[str, Task]:
    """All tasks of an environment by id.

    Raises:
        ValueError: there is no such environment, or two of its tasks have one id.
    """
    load = _module(environment).load_tasks
    own = is_own_code(environment)
    tasks = _asked(environment, "load_tasks()", lambda: checked_tasks(environment, load())) if own else list(load())
    by_id = {task.id: task for task in tasks}
    if len(by_id) < len(tasks):
        raise ValueError(f"environment {environment}: {len(tasks) - len(by_id)} tasks have the id of another one")
    return MappingProxyType(by_id)


def task_of(extra_info: Mapping[str, Any]) -> Task:
    """The task that a row of a data set names. Raises ValueError where there is none."""
    name, task_id = task_key_of(extra_info)
    tasks = load_tasks(name)
    if task_id not in tasks:
        raise ValueError(f"environment {name} has no task {task_id!r}")
    return tasks[task_id]


def opened(task: Task, options: Mapping[str, Any], seconds: float = CALL_SECONDS) -> Any:
    """A fresh attempt at a task. Of a user's code, every call has this limit, and raises Exceptions only.

    A task that waits and has a method `attempt(seconds)` limits what it calls itself.
    """
    if not is_own_code(task.environment):
        return task.open(**options)
    waiting = waits(task)
    if waiting and (attempt := getattr(task, "attempt", None)) is not None:
        return attempt(seconds)
    made = Limited(task, seconds, waiting).open(**options)
    if not waiting and waits_by_class(type(made), *ATTEMPT):
        _waiting.add(task.environment)
    return Limited(made, seconds, waits(task))


ATTEMPT = ("begin", "call", "answer", "hear", "cut", "facts", "verdicts", "close")
"""Methods of an attempt."""
_waiting: set[str] = set()
"""Environments of which an attempt has shown that they wait."""


def waits(task: Task) -> bool:
    """Whether attempts at a task wait for something outside; of a class by hand, before the first, if it says so."""
    said = getattr(task, "waits", None)
    return task.environment in _waiting or waits_by_class(type(task), "open") if said is None else bool(said)


def waits_by_class(kind: type, *methods: str) -> bool:
    """Whether a class says that it waits, or one of these methods is a coroutine function."""
    return bool(getattr(kind, "WAITS", False)) or any(
        iscoroutinefunction(getattr(kind, name, None)) for name in methods
    )


def part_of(extra_info: Mapping[str, Any]) -> str:
    """The part that a row gives its task, for splits other than the environment's own; else the task's."""
    return extra_info.get("part") or task_of(extra_info).part


def task_key_of(extra_info: Mapping[str, Any]) -> tuple[str, Any]:
    """Environment and id by which a row, or a line of a file of episodes, names its task; None for an id not given.

    Only together do they tell a task from all others: two environments may have one id.
    """
    return extra_info.get("environment") or DEFAULT, extra_info.get("task_id")


def task_name(environment: str, task_id: str) -> str:
    """The two as one text, for lists in settings and files: `inventory/move_3`; of `DEFAULT` the id alone, as ever."""
    return task_id if environment == DEFAULT else f"{environment}/{task_id}"


def read_options(environment: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of one environment as `Task.open` takes them, all of them present and checked.

    Raises:
        ValueError: there is no such environment, or a setting that it has not or not with this value.
    """
    kind = getattr(_module(environment), "Options", None)
    if kind is None:
        if options:
            raise ValueError(f"environment {environment} has no settings, and {', '.join(options)} was given")
        return {}
    try:
        made = kind(**options)
    except (TypeError, ValueError) as error:
        wrong = wrong_settings(error) if isinstance(error, ValidationError) else error
        settings = ", ".join(kind.__dataclass_fields__)
        raise ValueError(f"environment {environment}: {wrong}; its settings are {settings}") from error
    return {name: getattr(made, name) for name in made.__dataclass_fields__}


def data_sets(environment: str, tiny: bool = False, options: Mapping[str, Any] | None = None) -> dict[str, DataSet]:
    """File -> its tasks: what the environment's own `data_sets` says, else all tasks by part, and their gold.

    Raises:
        ValueError: it has no small files for a demo.
    """
    if (own := getattr(_module(environment), "data_sets", None)) is not None:
        return own(tiny, options or {})
    if tiny:
        raise ValueError(f"environment {environment} has no small data set; leave out --tiny")
    tasks = list(load_tasks(environment).values())
    train = [task for task in tasks if task.part == "train"]
    return {
        f"{environment}_train.parquet": DataSet("train", train),
        f"{environment}_val.parquet": DataSet("val", [task for task in tasks if task.part != "train"]),
        f"{environment}_sft.parquet": DataSet("sft", [task for task in train if _has_gold(task)]),
    }


def _has_gold(task: Task) -> bool:
    """Whether there is any; of gold that raises, those who play it say so."""
    try:
        return any(True for _ in task.gold())
    except Exception:
        return True


def tasks_under(environment: str, options: Mapping[str, Any]) -> list[Task]:
    """The tasks for an evaluation with these settings: what the environment's own `tasks_under` says, else all."""
    own = getattr(_module(environment), "tasks_under", None)
    return list(load_tasks(environment).values()) if own is None else own(options)


def turn_policy(environment: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the turn policy with which an environment's tasks are evaluated, where they are not the defaults."""
    own = getattr(_module(environment), "turn_policy", None)
    return {} if own is None else own(options)


def source_of(environment: str) -> dict[str, Any]:
    """What an environment's tasks were made from, for a manifest: what it says itself, or its file's hash."""
    if (own := getattr(_module(environment), "made_from", None)) is not None:
        return own()
    return {"environment_sha256": sha256(Path(_files[environment]).expanduser().read_bytes()).hexdigest()}


def known_failures(environment: str) -> Mapping[str, str]:
    """What an audit of the environment finds and need not say again: "reward, policy: task" -> reason.

    `AUDIT_KNOWN` of its package, or what its `audit_known()` gives; `*` stands for any reward, or any task.
    """
    module = _module(environment)
    return module.audit_known() if hasattr(module, "audit_known") else getattr(module, "AUDIT_KNOWN", {})


def audit_policies(environment: str) -> Mapping[str, Callable[[Any], Sequence[Call]]]:
    """Its own ways to play without gold (`AUDIT_POLICIES`): name -> task -> calls, one a message; none: not played."""
    return getattr(_module(environment), "AUDIT_POLICIES", {})


def judge_of(environment: str) -> Callable[[Iterable[EpisodeRecord]], Iterator[Any]] | None:
    """The checker of the environment's source (`judge_all` of its package): a verdict for each record; None if none."""
    return getattr(_module(environment), "judge_all", None)


def averages_of(environment: str) -> Callable[..., tuple[Mapping[str, float], Sequence[str]]] | None:
    """How the environment's source combines categories (`leaderboard_averages` of its package); None if it does not.

    It takes category -> (accuracy by the source's rule, tasks), and gives averages by name and what was not played.
    """
    return getattr(_module(environment), "leaderboard_averages", None)


def register(files: Mapping[str, str]) -> None:
    """Make environments of a user's known in this process, by name and file. Nothing is loaded yet.

    Raises:
        ValueError: a name is that of another environment, or would have to be quoted in settings.
    """
    for name, path in files.items():
        if not NAME.fullmatch(name):
            raise ValueError(f"environment {name}: rename {path} so that it has letters, digits, _ and - only")
        taken = ENVIRONMENTS.get(name) or _files.get(name, path)
        if taken != path:
            raise ValueError(f"environment {name} is {taken} already, and {path} was given; choose another name")
    _files.update(files)


def named(environment: str) -> str:
    """The name of an environment that a person gives by name or as a file, which becomes known by its stem.

    `check_tasks` of its package looks once at what takes longer than to load the tasks.

    Raises:
        ValueError: there is no such environment, or something is wrong with it.
    """
    if is_file(environment):
        stem = Path(environment).stem
        register({stem: environment})
        environment = stem
    if (check := getattr(_module(environment), "check_tasks", None)) is not None:
        _asked(environment, "check_tasks()", check)
    load_tasks(environment)
    return environment


def is_file(environment: str) -> bool:
    """Whether an environment is given as a file, and not by name."""
    return Path(environment).suffix in (".py", *READERS)


def known() -> list[str]:
    """The names of all environments that are known in this process."""
    return [*ENVIRONMENTS, *_files]


def is_own_code(environment: str) -> bool:
    """Whether it is a Python file of a user's, of which nothing is known."""
    return environment in _files and Path(_files[environment]).suffix not in READERS


def _asked(environment: str, function: str, work: Callable[[], Any]) -> Any:
    """What code of a user's returns. What it raises says where it comes from."""
    if not is_own_code(environment):
        return work()
    return called(f"environment {environment}: {function}", work, LOAD_SECONDS)


@cache
def _module(environment: str) -> Any:
    if environment in ENVIRONMENTS:
        return import_module(ENVIRONMENTS[environment])
    if environment not in _files:
        names = ", ".join(sorted(known()))
        raise UnknownEnvironment(f"unknown environment {environment!r}; known: {names}", environment)
    path = Path(_files[environment]).expanduser()
    if (reader := READERS.get(path.suffix)) is not None:
        return import_module(reader).environment(environment, path)
    if not path.is_file():
        raise ValueError(f"environment {environment}: there is no file {path}")
    try:
        module = call(load, LOAD_SECONDS, f"{MODULE}{environment}", path)
    except Exception as error:
        raise ValueError(f"environment {environment}: {path} {how(error)}") from error
    if not callable(getattr(module, "load_tasks", None)):
        raise ValueError(f"environment {environment}: {path} has no function load_tasks()")
    return module
