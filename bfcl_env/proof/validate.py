"""Plays gold and policies that solve nothing on all 800 scenarios, and lists the entries whose judgement is weak.

Gold must pass every turn, by our rule and by BFCL's, with no error result. What other policies still earn is what a
reward has to discount.
"""

import json
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from bfcl_env.calls import parse_call
from bfcl_env.episode import Episode
from bfcl_env.proof.mutants import play, random_call
from bfcl_env.proof.suspicious import suspicions
from bfcl_env.scenarios import CATEGORIES, Scenario, load_scenarios
from interaction.call import Call, CallError

SHOWN = 3


def replay_gold(scenario: Scenario) -> list[bool]:
    """Plays gold as a model would; a turn counts if it passes by both rules and no call fails."""
    verdicts = []
    with Episode(scenario) as episode:
        for turn in scenario.turns:
            clean = all([episode.execute(call).error is None for call in turn.gold])
            verdict = episode.end_turn()
            verdicts.append(clean and verdict.passed and verdict.passed_official)
    return verdicts


def always_answer(scenario: Scenario) -> list[bool]:
    """Answers every request without a call."""
    return play(scenario, tuple(() for _ in scenario.turns))


def echo(scenario: Scenario) -> list[bool]:
    """Sends the user's words back: executed if they are a call, otherwise an answer."""

    def calls(words: str) -> tuple[Call, ...]:
        try:
            return (parse_call(words, scenario),)
        except CallError:
            return ()

    return play(scenario, tuple(calls(turn.user) for turn in scenario.turns))


def random_calls(scenario: Scenario) -> list[bool]:
    """Makes three drawn calls of published functions in every turn."""
    rng = random.Random(scenario.id)
    visible = [scenario.visible(number) for number in range(len(scenario.turns))]
    return play(scenario, tuple(tuple(random_call(scenario, rng, names) for _ in range(3)) for names in visible))


def repeat_last_call(scenario: Scenario) -> list[bool]:
    """Makes the first gold call, and the same call once again in every later turn."""
    first = next(number for number, turn in enumerate(scenario.turns) if turn.gold)
    call = scenario.turns[first].gold[:1]
    return play(scenario, tuple(call if number >= first else () for number in range(len(scenario.turns))))


def skip_a_turn(scenario: Scenario) -> list[bool]:
    """Plays gold, but only answers in the first turn that asks for calls."""
    gold = [turn.gold for turn in scenario.turns]
    gold[next(number for number, calls in enumerate(gold) if calls)] = ()
    return play(scenario, tuple(gold))


POLICIES: dict[str, Callable[[Scenario], list[bool]]] = {
    "gold": replay_gold,
    "always answer": always_answer,
    "echo": echo,
    "random calls": random_calls,
    "repeat last call": repeat_last_call,
    "skip a turn": skip_a_turn,
}


class Score(NamedTuple):
    """What a policy gets in one category."""

    passed: int
    """Scenarios with every turn passed."""
    scenarios: int
    turns_passed: int
    turns: int
    progress: float
    """Mean over the scenarios of turns passed / turns, but 0 where no turn with gold calls passed."""
    progress_raw: float
    """The same without that condition."""


def score(policy: str, category: str) -> Score:
    """Plays one policy on one category."""
    passed = turns_passed = turns = 0
    progress = progress_raw = 0.0
    scenarios = load_scenarios(category)
    for scenario in scenarios:
        verdicts = POLICIES[policy](scenario)
        passed += all(verdicts)
        turns_passed += sum(verdicts)
        turns += len(verdicts)
        progress_raw += sum(verdicts) / len(verdicts)
        if any(ok and turn.gold for ok, turn in zip(verdicts, scenario.turns, strict=True)):
            progress += sum(verdicts) / len(verdicts)
    count = len(scenarios)
    return Score(passed, count, turns_passed, turns, progress / count, progress_raw / count)


def main(listed: Path | None = None) -> int:
    """Prints the table and what is suspicious; returns 0 if gold passes everywhere, otherwise 1.

    Args:
        listed: JSON to write: task -> all that is suspicious in it, with turn (the first is 0), reason and detail.
    """
    gold_passed = True
    print(f"{'policy':<17} {'category':<24} {'passed':>8} {'turns':>10} {'progress':>9} {'raw':>6} {'seconds':>8}")
    for policy in POLICIES:
        for category in CATEGORIES:
            began = time.perf_counter()
            got = score(policy, category)
            seconds = time.perf_counter() - began
            print(
                f"{policy:<17} {category:<24} {f'{got.passed}/{got.scenarios}':>8} "
                f"{f'{got.turns_passed}/{got.turns}':>10} {got.progress:>9.3f} {got.progress_raw:>6.3f} {seconds:>8.2f}"
            )
            gold_passed &= policy != "gold" or got.passed == got.scenarios
    found = {scenario.id: [*suspicions(scenario)] for scenario in load_scenarios()}
    reasons = Counter(one.reason for those in found.values() for one in those)
    print("\nSuspicious entries, and how many there are")
    for reason, count in sorted(reasons.items()):
        first = [f"{name}:{one.turn}" for name, those in found.items() for one in those if one.reason == reason][:SHOWN]
        print(f"{count:5}  {reason}: {', '.join(first)}{', ...' * (count > SHOWN)}")
    if listed is not None:
        entries = {name: [asdict(one) for one in those] for name, those in found.items() if those}
        listed.write_text(json.dumps(entries, indent=1) + "\n")
    return 0 if gold_passed else 1
