"""What a call contributes to its turn, as facts for rewards of single steps; no verdict reads them.

Two measures, because neither is enough alone: a state can be reached by other calls than gold's, and a call that only
reads changes no state. Attributes that gold leaves alone do not count: they are right before anything is done.
"""

import inspect
from collections.abc import Collection
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from bfcl_env.execution import new_instances
from bfcl_env.gold import gold_for
from bfcl_env.scenarios import Scenario
from bfcl_env.source import function_owners, load_class
from bfcl_env.state import State, public_attributes
from interaction.call import Call
from interaction.outcome import ToolResult

_MISSING = object()
_Goals = tuple[tuple[str, str, Any], ...]
"""Class, attribute and gold's value of what gold changes in one turn."""
_KNOWN: WeakKeyDictionary[Scenario, tuple[_Goals, ...]] = WeakKeyDictionary()


def closeness(scenario: Scenario, turn: int, instances: dict[str, Any]) -> float | None:
    """The share, of the public attributes that gold changes in this turn, that hold the value gold leaves them with.

    None if gold changes none. Several microseconds; the first call for a scenario executes its gold.
    """
    goals = _goals(scenario)[turn]
    if not goals:
        return None
    reached = sum(vars(instances[owner]).get(name, _MISSING) == value for owner, name, value in goals)
    return reached / len(goals)


def matching_gold(scenario: Scenario, turn: int, call: Call, result: ToolResult, taken: Collection[int]) -> int | None:
    """The index of the first gold call of this turn, not in `taken`, that this call is; None if there is none.

    It is one if function, arguments and result are the same, so not where it came too early or too late to do what it
    does for gold. Arguments left out have their defaults, and lists and tuples are alike.
    """
    if result.error is not None:
        return None
    for number, gold in enumerate(scenario.turns[turn].gold):
        if gold.name == call.name and number not in taken:
            same_result = gold_for(scenario).turns[turn].texts[number] == result.text
            if same_result and _arguments(gold) == _arguments(call):
                return number
    return None


def _goals(scenario: Scenario) -> tuple[_Goals, ...]:
    known = _KNOWN.get(scenario)
    if known is None:
        before: State = {name: public_attributes(item) for name, item in new_instances(scenario).items()}
        turns = []
        for turn in gold_for(scenario).turns:
            after = before if turn.state is None else turn.state
            turns.append(_changes(before, after))
            before = after
        known = _KNOWN[scenario] = tuple(turns)
    return known


def _changes(before: State, after: State) -> _Goals:
    return tuple(
        (owner, name, value)
        for owner, attributes in after.items()
        for name, value in attributes.items()
        if before[owner].get(name, _MISSING) != value
    )


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
