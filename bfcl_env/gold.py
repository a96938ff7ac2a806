"""Gold results and end states, computed once per scenario and kept, and which gold call a call is.

Gold runs outside the per-turn allow-list, through the same executor as the model's calls and in the same process:
a few floating-point texts differ between Python releases, so they must never be stored on disk.

Rewards of single steps take two measures from here, because neither is enough alone: a state can be reached by other
calls than gold's, and a call that only reads changes no state. No verdict reads them.
"""

import inspect
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from bfcl_env.execution import new_instances, run_call, schema_problem
from bfcl_env.scenarios import Scenario
from bfcl_env.source import function_owners, load_class
from bfcl_env.state import State, snapshot
from interaction.call import Call, copy_call
from interaction.outcome import ToolResult

_MISSING = object()


@dataclass(frozen=True, slots=True)
class GoldTurn:
    """What gold leaves behind at the end of one turn. Shared by all episodes, which only read it."""

    calls: tuple[Call, ...]
    texts: tuple[str, ...]
    needed: Counter[str]
    state: State | None
    """None for a turn without gold calls, which is judged against its own start."""
    changes: tuple[tuple[str, str, Any], ...]
    """Class, attribute and gold's value of each public attribute that gold changes in the turn."""

    def closeness(self, instances: dict[str, Any]) -> float | None:
        """The share of `changes` that hold the value gold leaves them with; None if gold changes none.

        Attributes that gold leaves alone do not count: they are right before anything is done.
        """
        if not self.changes:
            return None
        reached = sum(vars(instances[owner]).get(name, _MISSING) == value for owner, name, value in self.changes)
        return reached / len(self.changes)

    def matching(self, call: Call, result: ToolResult, taken: Collection[int]) -> int | None:
        """The index of the first gold call, not in `taken`, that this call is; None if there is none.

        It is one if function, arguments and result are the same, so not where it came too early or too late to do what
        it does for gold. Arguments left out have their defaults, and lists and tuples are alike.
        """
        for number, gold in enumerate(self.calls if result.error is None else ()):
            if gold.name == call.name and number not in taken:
                if self.texts[number] == result.text and _arguments(gold) == _arguments(call):
                    return number
        return None


@dataclass(frozen=True, slots=True)
class Gold:
    """All turns of one scenario."""

    turns: tuple[GoldTurn, ...]
    texts: frozenset[str]
    """Every result text of gold, so that an episode needs to remember no other."""


_KNOWN: WeakKeyDictionary[Scenario, Gold] = WeakKeyDictionary()


def gold_for(scenario: Scenario) -> Gold:
    """The gold of a scenario; the first call executes it, at about a millisecond.

    Raises:
        RuntimeError: a gold call failed, so the installed classes do not fit the data.
    """
    gold = _KNOWN.get(scenario)
    if gold is None:
        gold = _KNOWN[scenario] = _run_gold(scenario)
    return gold


def _run_gold(scenario: Scenario) -> Gold:
    instances = new_instances(scenario)
    turns: list[GoldTurn] = []
    state = snapshot(instances) or {}
    for number, turn in enumerate(scenario.turns):
        texts = []
        for call in turn.gold:
            text, error = run_call(copy_call(call), instances)
            if error is not None:
                where = f"{scenario.id}, turn {number} (the first is 0)"
                why = schema_problem(call)
                raise RuntimeError(f"{where}: gold call {call} failed: {text[:300]}" + (f" ({why})" if why else ""))
            texts.append(text)
        before = state
        called = {function_owners()[call.name] for call in turn.gold}
        state = {**state, **(snapshot({name: instances[name] for name in called}, state) or {})}
        changes = tuple(
            (owner, name, value)
            for owner in called
            for name, value in state[owner].items()
            if before[owner].get(name, _MISSING) != value
        )
        turns.append(GoldTurn(turn.gold, tuple(texts), Counter(texts), state if turn.gold else None, changes))
    return Gold(tuple(turns), frozenset(text for turn in turns for text in turn.texts))


def _arguments(call: Call) -> dict[str, Any]:
    return {**_defaults(call.name), **{name: _plain(value) for name, value in call.arguments.items()}}


@cache
def _defaults(name: str) -> dict[str, Any]:
    parameters = inspect.signature(getattr(load_class(function_owners()[name]), name)).parameters.values()
    return {item.name: _plain(item.default) for item in parameters if item.default is not inspect.Parameter.empty}


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
