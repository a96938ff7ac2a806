"""What a rule is, what it may look at, and the few words that rules are made with."""

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from bfcl_env.scenarios import Scenario
from bfcl_env.source import function_docs, function_owners
from interaction.call import Call
from interaction.outcome import ErrorKind

MAX_CHARS = 300
"""Characters of a hint."""
MAX_SHOWN = 40
"""Characters shown of one value that a model gave."""
MAX_COMPARED = 500
"""Names that are looked at when the closest are wanted."""

FAULTS: frozenset[ErrorKind | None] = frozenset({ErrorKind.EXECUTION, ErrorKind.RESULT})
"""The function ran with arguments of the right types and failed."""
LIMITS: frozenset[ErrorKind | None] = frozenset({ErrorKind.LIMIT})
SILENT: frozenset[ErrorKind | None] = frozenset({None})
"""Failures that BFCL reports as an ordinary result, such as `{"symbol": "Stock not found"}`."""


@dataclass(frozen=True, slots=True)
class Situation:
    """One executed call with its result, and the state after it. Read-only for rules."""

    scenario: Scenario
    turn: int
    call: Call
    text: str
    error: ErrorKind | None
    instances: dict[str, Any]

    @property
    def visible(self) -> frozenset[str]:
        """Names of the functions that can be called in this turn."""
        return self.scenario.visible(self.turn)

    @property
    def withheld(self) -> tuple[str, ...]:
        """Names that must not occur in any advice."""
        return self.scenario.withheld(self.turn)

    @property
    def instance(self) -> Any:
        """The instance that executed the call."""
        return self.instances[function_owners()[self.call.name]]

    @property
    def schema(self) -> dict[str, Any]:
        """The documented parameters of the called function: `properties` and `required`."""
        return function_docs()[function_owners()[self.call.name]][self.call.name]["parameters"]

    def argument(self, name: str) -> Any:
        """The value given for an argument, or None."""
        return self.call.arguments.get(name)

    def shown(self, name: str) -> str:
        """The same as `short` writes it."""
        return short(self.argument(name))

    def if_visible(self, names: str, text: str, otherwise: str = "") -> str:
        """The text if all these functions (spaces between) can be called now, otherwise the other one."""
        return text if self.visible.issuperset(names.split()) else otherwise


Advice = Callable[[Situation], str | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """Advice for the results that meet all conditions."""

    name: str
    """Unique."""
    owner: str
    """The class whose functions it is for; empty for all."""
    functions: str
    """Names of these functions with spaces between; empty for all of the class."""
    pattern: str
    """A regular expression that BFCL's text contains; empty for any text."""
    advice: Advice
    """Words the hint from call and state, which it only reads. None: the rule does not apply after all."""
    example: tuple[str, ...]
    """Calls in a scenario's first turn, the last of which this rule answers: its test, and its line in the docs."""
    errors: frozenset[ErrorKind | None]
    """Error kinds it is for."""
    scene: str
    """The example's scenario; empty for the first of the base category with this class."""


def rules_of(owner: str, rules: list[Rule]) -> Callable[..., Callable[[Advice], Advice]]:
    """The decorator that adds a rule of a class: functions, pattern, calls of the example.

    A rule has the name of the function that words its hint, or the one given.
    """

    def rule(
        functions: str,
        pattern: str,
        *example: str,
        errors: frozenset[ErrorKind | None] = FAULTS,
        scene: str = "",
        name: str = "",
    ) -> Callable[[Advice], Advice]:
        def add(advice: Advice) -> Advice:
            rules.append(Rule(name or advice.__name__, owner, functions, pattern, advice, example, errors, scene))
            return advice

        return add

    return rule


def says(first: str, *more: tuple[str, ...]) -> Advice:
    """Advice that looks at no state: `sentences`, of which the later ones are given as to `Situation.if_visible`."""
    return lambda situation: sentences(first, *(situation.if_visible(*part) for part in more))


def log_in(function: str) -> Advice:
    """Advice for calls that need somebody to be logged in, by name and password."""
    first = f"First call {function}(username=..., password=...); ask the user for what you do not know."
    return says("Nobody is logged in.", (function, first, "No available function logs in: tell the user so."))


def sentences(first: str, *more: str) -> str:
    """The first text and those of the others that still fit; empty ones are left out."""
    text = first
    for part in more:
        if part and len(text) + 1 + len(part) <= MAX_CHARS:
            text = f"{text} {part}"
    return text


def short(value: object) -> str:
    """One value as Python would write it, cut."""
    text = repr(value[:MAX_SHOWN]) if isinstance(value, str) else repr(value)
    return text if len(text) <= MAX_SHOWN + 2 else f"{text[:MAX_SHOWN]}..."


def listing(values: Iterable[object], near: object = "", room: int = 150) -> str:
    """As many values as fit into `room` characters, and how many there are beyond.

    If not all fit, those most like `near` come first.
    """
    shown = list(values)
    if sum(len(str(value)) + 4 for value in shown) > room and near:
        compared, rest = shown[:MAX_COMPARED], shown[MAX_COMPARED:]
        shown = sorted(compared, key=lambda value: -_likeness(str(value), str(near))) + rest
    parts: list[str] = []
    for value in shown:
        part = repr(value)
        if len(", ".join([*parts, part])) > room:
            break
        parts.append(part)
    left = len(shown) - len(parts)
    return ", ".join(parts) + (f" and {left} more" if left else "")


def _likeness(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one[:MAX_SHOWN].lower(), other[:MAX_SHOWN].lower()).quick_ratio()
