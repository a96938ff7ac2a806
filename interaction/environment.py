"""What a conversation asks of an environment, and where environments are found by name.

This room imports no environment: an environment imports the vocabulary (`call`, `outcome`) and fulfils what stands
here. A task is frozen data; `open` makes a fresh attempt at it, which is used once and closed.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any, Protocol

from interaction.call import Call
from interaction.outcome import ToolResult

ENVIRONMENTS: dict[str, str] = {"bfcl": "bfcl_env"}
"""Name -> package that has `load_tasks()`. A row of a data set names its environment in `extra_info.environment`."""

DEFAULT = "bfcl"
"""The environment of rows that name none."""


class Turn(Protocol):
    """One request of the user."""

    @property
    def user(self) -> str:
        """Its words; may be empty in a turn that only reveals functions."""
        ...

    @property
    def gold(self) -> Sequence[Call]:
        """Calls that fulfil it; empty where none is needed."""
        ...

    @property
    def revealed(self) -> Sequence[str]:
        """Names of the functions that can be called from this turn on and could not be before."""
        ...


class Verdict(Protocol):
    """The judgement of one turn."""

    @property
    def passed(self) -> bool: ...

    @property
    def passed_official(self) -> bool:
        """By the rule of the environment's source, where that differs."""
        ...

    @property
    def difference(self) -> Sequence[dict[str, str]]:
        """What did not match, in short texts."""
        ...


class Attempt(Protocol):
    """One attempt at a task. Synchronous, without input or output."""

    def execute(self, call: Call) -> ToolResult:
        """Runs one call. Whatever is wrong with it is in the result, never raised."""
        ...

    def credit(self, call: Call, result: ToolResult) -> int | None:
        """Which gold call of this turn it was, from 0, each once; None if none."""
        ...

    def closeness(self) -> float | None:
        """The share of what gold changes in this turn that is as gold leaves it; None where it changes nothing."""
        ...

    def end_turn(self, answered: bool = True) -> Verdict:
        """Judges the turn, and goes on to the next. `answered`: by an answer of the model, not by a limit."""
        ...

    def close(self) -> None:
        """Frees everything; twice is fine."""
        ...


class Task(Protocol):
    """Frozen; any number of attempts at it may be open at once."""

    @property
    def id(self) -> str: ...

    @property
    def category(self) -> str: ...

    @property
    def turns(self) -> Sequence[Turn]: ...

    def functions(self, turn: int) -> list[dict[str, Any]]:
        """Documentation (name, description, parameters) of what can be called in that turn."""
        ...

    def open(self, **options: Any) -> Attempt:
        """A fresh attempt."""
        ...


@cache
def load_tasks(environment: str = DEFAULT) -> Mapping[str, Task]:
    """All tasks of an environment by id.

    Raises:
        ValueError: there is no such environment.
    """
    if environment not in ENVIRONMENTS:
        raise ValueError(f"unknown environment {environment!r}; known: {', '.join(sorted(ENVIRONMENTS))}")
    return {task.id: task for task in import_module(ENVIRONMENTS[environment]).load_tasks()}
