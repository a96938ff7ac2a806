"""What a domain of tau (telecom, retail, airline) gives: tasks, a database with tools, a policy."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from interaction.call import Call
from interaction.outcome import ToolResult

Side = Literal["agent", "user"]
"""Whose tools: the agent's, or those of the user's own device."""

Write = tuple[Side, Call]
"""A call that changed something."""

PolicyKind = Literal["full", "workflow", "none"]
Split = Literal["faults", "size", "official"]


@dataclass(frozen=True, slots=True)
class Action:
    """A call that belongs to a task: part of gold, or of what happened before the conversation."""

    side: Side
    call: Call
    compare: tuple[str, ...] | None = None
    """The arguments that count where the call is looked for in an episode; None for all of them."""


@dataclass(frozen=True, slots=True)
class Assertion:
    """A check of the state at the end."""

    side: Side
    name: str
    arguments: Mapping[str, Any]
    expected: bool


@dataclass(frozen=True, slots=True)
class Story:
    """What the user knows and wants, for whoever plays the user."""

    reason: str
    known: str = ""
    unknown: str = ""
    instructions: str = ""
    persona: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """A task as tau2-bench's files have it."""

    domain: str
    number: str
    """Its id in the files."""
    category: str
    story: Story
    setup: tuple[Action, ...]
    """What happened before the conversation."""
    gold: tuple[Action, ...]
    assertions: tuple[Assertion, ...]
    communicate: tuple[str, ...]
    """What the agent must have said."""
    basis: tuple[str, ...]
    """Which parts the reward is the product of: DB, COMMUNICATE, ENV_ASSERTION, ACTION, NL_ASSERTION."""
    ticket: str = ""
    """What the agent is told where there is no user."""


class Database(Protocol):
    """The state of one attempt. Shares with all others what it does not change; nothing of it is global."""

    written: list[Write]
    """In order."""

    def call(self, call: Call, side: Side) -> ToolResult:
        """Run one call; whatever is wrong is in the result. What a function returns or refuses is tau2-bench's text.

        Unknown names and ill-typed arguments are refused as inspect-evals does, before anything runs.

        Never raises for what the call holds: an unknown name, missing, surplus or ill-typed arguments, hostile values.
        """
        ...

    def holds(self, assertion: Assertion) -> bool:
        """Whether a task's assertion about the state holds."""
        ...

    def digest(self) -> str:
        """Equal for two states if tau2-bench calls them equal: the order inside lists counts, that of keys does not."""
        ...

    def differences(self, other: "Database") -> tuple[Mapping[str, str], ...]:
        """Where two states differ, for people: at most ten of {"where", "expected", "found"}; `other` is expected."""
        ...


class Domain(Protocol):
    """One domain; a module of the package that has these names."""

    NAME: str
    WRITES: frozenset[str]
    """Names of the functions, of both sides, that can change something."""

    def load_tasks(self) -> Sequence[Task]:
        """All tasks, read and frozen once; an iterable of them costs nothing the second time."""
        ...

    def functions(self, side: Side) -> tuple[Mapping[str, Any], ...]:
        """Documentation (name, description, parameters as a JSON schema) of the functions of one side."""
        ...

    def policy(self, kind: PolicyKind, solo: bool) -> str:
        """The rules of the domain, as the agent reads them."""
        ...

    def open(self, task: Task) -> Database:
        """The state in which the task begins, in far less than a millisecond."""
        ...

    def needed(self, task: Task) -> Iterable[Write]:
        """The writes that this task's faults (telecom) or gold (retail, airline) need, in any order."""
        ...
