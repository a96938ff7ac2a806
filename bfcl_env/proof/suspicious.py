"""Entries of BFCL whose judgement is worth less than it looks, found by playing them.

None of this is an error of the environment, and nothing is left out because of it; whoever reads scores should know.
A wrong or ambiguous gold answer cannot be found this way: gold is compared with itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from bfcl_env.gold import gold_for
from bfcl_env.proof.grounding import leaves, says
from bfcl_env.proof.mutants import play
from bfcl_env.scenarios import EARLY_GOLD, Scenario
from interaction.call import Call

_JUNK = Call("no_such_function", {})


@dataclass(frozen=True, slots=True)
class Suspicion:
    """One finding."""

    turn: int
    reason: str
    detail: str = ""


def suspicions(scenario: Scenario) -> Iterator[Suspicion]:
    """All findings on one scenario, by kind."""
    for number, turn in enumerate(scenario.turns):
        if not turn.gold and not turn.user:
            yield Suspicion(number, "neither a request nor gold calls")
        if not turn.gold and scenario.category in ("multi_turn_base", "multi_turn_long_context"):
            yield Suspicion(number, "no gold calls, in a category where every request can be fulfilled")
    if not scenario.turns[0].gold:
        yield Suspicion(0, "the first turn has no gold calls")
    for name, number in EARLY_GOLD.get(scenario.id, {}).items():
        yield Suspicion(number, "gold calls a function before it is published", name)
    called = {call.name for turn in scenario.turns for call in turn.gold}
    for number, turn in enumerate(scenario.turns):
        for name in turn.revealed:
            if name not in called:
                yield Suspicion(number, "a withheld function that gold never calls", name)
    yield from _weak_turns(scenario)
    yield from _unsaid(scenario)


def _weak_turns(scenario: Scenario) -> Iterator[Suspicion]:
    gold = tuple(turn.gold for turn in scenario.turns)
    asking = [number for number, calls in enumerate(gold) if calls]
    for number in asking:
        before, calls, later = gold[:number], gold[number], gold[number + 1 :]
        if play(scenario, (*before, (_JUNK,)))[number]:
            yield Suspicion(number, "passes with a call of a function that does not exist, after gold")
            continue
        if number != asking[0] and play(scenario, (*(() for _ in before), calls))[number]:
            yield Suspicion(number, "does not depend on earlier turns: passes when they are all skipped")
        for at, call in enumerate(calls if len(calls) > 1 else ()):
            if all(play(scenario, (*before, calls[:at] + calls[at + 1 :], *later))[number:]):
                yield Suspicion(number, "a gold call can be left out: this and later turns pass", str(call))


def _unsaid(scenario: Scenario) -> Iterator[Suspicion]:
    """Texts that gold has to have exactly, though no user, result, state or documentation says them."""
    known, before = [text for _, text in scenario.config_json], tuple[tuple[Call, ...], ...]()
    for number, (turn, done) in enumerate(zip(scenario.turns, gold_for(scenario).turns, strict=True)):
        known.append(turn.user)
        for at, call in enumerate(turn.gold):
            for key, value in call.arguments.items():
                texts = [leaf for leaf in leaves(value) if isinstance(leaf, str) and " " in leaf]
                if all(any(says(text, leaf) for text in known) for leaf in texts):
                    continue
                other = Call(call.name, call.arguments | {key: "other words"})
                if not play(scenario, (*before, (*turn.gold[:at], other, *turn.gold[at + 1 :])))[number]:
                    yield Suspicion(number, "a text that nobody said has to be exact", f"{call.name}({key}={value!r})")
            known.append(done.texts[at])
        before = (*before, turn.gold)
