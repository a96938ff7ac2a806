"""Gold results and end states, computed once per scenario and kept.

Gold runs outside the per-turn allow-list, through the same executor as the model's calls and in the same process:
a few floating-point texts differ between Python releases, so they must never be stored on disk.
"""

from collections import Counter
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from bfcl_env.execution import new_instances, run_call, schema_problem
from bfcl_env.scenarios import Scenario
from bfcl_env.source import function_owners
from bfcl_env.state import State, snapshot
from interaction.call import copy_call


@dataclass(frozen=True, slots=True)
class GoldTurn:
    """What gold leaves behind at the end of one turn. Shared by all episodes, which only read it."""

    texts: tuple[str, ...]
    needed: Counter[str]
    state: State | None
    """None for a turn without gold calls, which is judged against its own start."""


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
    state: State | None = None
    for number, turn in enumerate(scenario.turns):
        texts = []
        for call in turn.gold:
            text, error = run_call(copy_call(call), instances)
            if error is not None:
                where = f"{scenario.id}, turn {number} (the first is 0)"
                why = schema_problem(call)
                raise RuntimeError(f"{where}: gold call {call} failed: {text[:300]}" + (f" ({why})" if why else ""))
            texts.append(text)
        if turn.gold:
            called = {function_owners()[call.name] for call in turn.gold}
            touched = {name: item for name, item in instances.items() if state is None or name in called}
            state = {**(state or {}), **(snapshot(touched, state) or {})}
        turns.append(GoldTurn(tuple(texts), Counter(texts), state if turn.gold else None))
    return Gold(tuple(turns), frozenset(text for turn in turns for text in turn.texts))
