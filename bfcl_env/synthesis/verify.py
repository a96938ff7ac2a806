"""Whether a proposed task is well made. A task that fails one of the checks is thrown away, with the reason."""

import json
import re
from collections.abc import Iterator, Sequence
from functools import cache

from bfcl_env.gold import gold_for
from bfcl_env.proof.grounding import leaves, says
from bfcl_env.proof.mutants import play
from bfcl_env.proof.validate import POLICIES, replay_gold
from bfcl_env.scenarios import Scenario, load_scenarios
from bfcl_env.synthesis.propose import Proposal
from interaction.call import Call

RUN = 8
"""Words in a row that no request may share with BFCL's held-out half."""
_WORD = re.compile(r"\w+")


def problem(proposal: Proposal, scenario: Scenario) -> str | None:
    """The first reason to throw the task away, or None."""
    if seen := overlap(scenario):
        return seen
    try:
        results = [turn.texts for turn in gold_for(scenario).turns]
    except RuntimeError:  # a gold call fails
        return "gold does not pass"
    if not all(replay_gold(scenario)):
        return "gold does not pass"
    if any(says(text, value) for at, value in proposal.unsaid.items() for text in _known_before(proposal, results, at)):
        return "what is missing is known"
    if not all(_grounded(proposal, results, at) for at in range(len(proposal.turns))):
        return "an argument is grounded nowhere"
    places = ((at, number) for at, turn in enumerate(scenario.turns) for number in range(len(turn.gold)))
    if not all(_matters(scenario, *place) for place in places):
        return "a call does not matter"
    single = sum(len(turn.gold) for turn in scenario.turns) == 1
    for name, policy in POLICIES.items():
        if name == "gold" or (single and name == "repeat last call"):  # which is then gold itself
            continue
        if all(policy(scenario)):
            return f"passes: {name}"
    bare = tuple(tuple(Call(call.name, {}) for call in turn.gold) for turn in scenario.turns)
    return "no argument matters" if all(play(scenario, bare)) else None  # a guess does `logout()`, and all ask alike


def _matters(scenario: Scenario, at: int, left_out: int) -> bool:
    """Whether this turn or a later one fails without the call."""
    gold = [turn.gold for turn in scenario.turns]
    gold[at] = gold[at][:left_out] + gold[at][left_out + 1 :]
    return not all(play(scenario, tuple(gold))[at:])


def _known_before(proposal: Proposal, results: Sequence[Sequence[str]], at: int) -> Iterator[str]:
    """What can be known when the request that lacks a value is answered."""
    yield from (turn.user for turn in proposal.turns[: at + 1])
    yield from (text for turn in results[:at] for text in turn)
    yield json.dumps(proposal.config)


def _grounded(proposal: Proposal, results: Sequence[Sequence[str]], at: int) -> bool:
    """Whether every argument of a turn is in what was said or returned before, or implied by the wording."""
    turn = proposal.turns[at]
    known = [item.user for item in proposal.turns[: at + 1]] + [text for item in results[:at] for text in item]
    for call, implied, result in zip(turn.gold, turn.implied, results[at], strict=True):
        for key, value in call.arguments.items():
            if key not in implied and not all(any(says(text, leaf) for text in known) for leaf in leaves(value)):
                return False
        known.append(result)
    return True


def overlap(scenario: Scenario) -> str | None:
    """What a task has in common with BFCL's held-out half: the calls of a turn, a class's initial state, or words."""
    gold, states, words = _held_out()
    if gold & _golds(scenario):
        return "gold of the held-out half"
    if states & _states(scenario):
        return "a state of the held-out half"
    if words & _runs(scenario):
        return f"{RUN} words of the held-out half"
    return None


@cache
def _held_out() -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    scenarios = load_scenarios(split="val")
    return tuple(frozenset().union(*map(of, scenarios)) for of in (_golds, _states, _runs))  # type: ignore[return-value]


def _golds(scenario: Scenario) -> set[str]:
    """All calls of the task, and those of each turn with several."""
    turns = [[str(call) for call in turn.gold] for turn in scenario.turns if turn.gold]
    return {"; ".join(calls) for calls in (sum(turns, []), *(calls for calls in turns if len(calls) > 1))}


def _states(scenario: Scenario) -> set[str]:
    return {json.dumps([name, state], sort_keys=True) for name, state in scenario.initial_config.items() if state}


def _runs(scenario: Scenario) -> set[str]:
    found = set()
    for turn in scenario.turns:
        words = _WORD.findall(turn.user.casefold())
        found |= {" ".join(words[at : at + RUN]) for at in range(len(words) - RUN + 1)}
    return found
