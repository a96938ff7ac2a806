"""Proves the environment against its own gold, without any model.

Replaying gold must pass every turn of all 800 scenarios, by our rule and by BFCL's, with no error result. A policy
that only answers must pass no scenario that asks for calls: its progress is what a reward has to discount.
"""

import time
from collections.abc import Callable

from bfcl_env.episode import Episode
from bfcl_env.scenarios import CATEGORIES, Scenario, load_scenarios


def replay_gold(scenario: Scenario) -> list[bool]:
    """Whether each turn passes when gold is played through the model's entrance."""
    verdicts = []
    with Episode(scenario) as episode:
        for turn in scenario.turns:
            clean = all([episode.execute(call).error is None for call in turn.gold])
            verdict = episode.end_turn()
            verdicts.append(clean and verdict.passed and verdict.passed_official)
    return verdicts


def always_answer(scenario: Scenario) -> list[bool]:
    """Whether each turn passes when every request is answered without a call."""
    with Episode(scenario) as episode:
        return [episode.end_turn().passed for _ in scenario.turns]


def main() -> int:
    """Prints one table row per category and policy; returns 0 if gold passes everywhere, otherwise 1."""
    policies: tuple[tuple[str, Callable[[Scenario], list[bool]]], ...] = (
        ("gold", replay_gold),
        ("always answer", always_answer),
    )
    gold_passed = True
    print(f"{'policy':<14} {'category':<24} {'passed':>11} {'turns':>11} {'progress':>9} {'seconds':>8}")
    for policy, play in policies:
        for category in CATEGORIES:
            scenarios = load_scenarios(category)
            began = time.perf_counter()
            verdicts = [play(scenario) for scenario in scenarios]
            seconds = time.perf_counter() - began
            passed = sum(all(turns) for turns in verdicts)
            turns_passed, turns_total = sum(map(sum, verdicts)), sum(map(len, verdicts))
            progress = sum(sum(turns) / len(turns) for turns in verdicts) / len(verdicts)
            print(
                f"{policy:<14} {category:<24} {f'{passed}/{len(scenarios)}':>11} "
                f"{f'{turns_passed}/{turns_total}':>11} {progress:>9.3f} {seconds:>8.2f}"
            )
            if policy == "gold" and passed < len(scenarios):
                gold_passed = False
                failed = [item.id for item, turns in zip(scenarios, verdicts, strict=True) if not all(turns)]
                print(f"  gold fails in: {', '.join(failed[:10])}")
    return 0 if gold_passed else 1
