"""Times `bfcl_env` beside bfcl-eval's own executor and checker in one process, and measures memory growth.

    python benchmarks/bench_env.py               # about half a minute
    python benchmarks/bench_env.py --rounds 0    # the soak alone

The two sides take turns, and the fastest round of each counts: other load on the machine only adds to a time. One call:
every gold call, with arguments as JSON would give them; bfcl-eval gets the same calls as text, made beforehand. One
episode: gold played as a model would, with a verdict after every turn; bfcl-eval runs `multi_turn_checker`.
"First pass" has no gold results yet, so that gold is executed too, as bfcl-eval does every time.
"""

import argparse
import dataclasses
import gc
import random
import resource
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker

from bfcl_env import CATEGORIES, Episode, Scenario, load_scenarios, make_call
from bfcl_env.proof.mutants import random_call
from bfcl_env.proof.official import OfficialEpisode


def our_calls(scenarios: tuple[Scenario, ...]) -> list[float]:
    """Seconds of each gold call, without making and judging the episodes."""
    seconds = []
    for scenario in scenarios:
        with Episode(scenario) as episode:
            for turn in scenario.turns:
                for call in turn.gold:
                    began = time.perf_counter()
                    episode.execute(make_call(call.name, call.arguments))
                    seconds.append(time.perf_counter() - began)
                episode.end_turn()
    return seconds


def official_calls(scenarios: tuple[Scenario, ...]) -> list[float]:
    """The same calls, each as one step of bfcl-eval's executor."""
    seconds = []
    for scenario in scenarios:
        with OfficialEpisode(scenario, share=True) as episode:
            for turn in scenario.turns:
                for text in [str(call) for call in turn.gold]:
                    began = time.perf_counter()
                    episode.execute(text)
                    seconds.append(time.perf_counter() - began)
    return seconds


def our_episodes(scenarios: tuple[Scenario, ...]) -> float:
    """Seconds for gold played with verdicts."""
    began = time.perf_counter()
    for scenario in scenarios:
        with Episode(scenario) as episode:
            for turn in scenario.turns:
                for call in turn.gold:
                    episode.execute(call)
                assert episode.end_turn().passed_official
    return time.perf_counter() - began


def our_first_episodes(scenarios: tuple[Scenario, ...]) -> float:
    """The same with gold executed as well: gold results belong to a scenario object, and these are new ones."""
    return our_episodes(tuple(dataclasses.replace(scenario) for scenario in scenarios))


def official_episodes(scenarios: tuple[Scenario, ...]) -> float:
    """Seconds for `multi_turn_checker` alone; its instances are removed between the episodes, untimed."""
    seconds = 0.0
    for scenario in scenarios:
        state = {"initial_config": scenario.initial_config, "involved_classes": list(scenario.classes)}
        entry = {"id": scenario.id, **state}
        gold = [[str(call) for call in turn.gold] for turn in scenario.turns]
        model = [[[text] for text in texts] for texts in gold]
        began = time.perf_counter()
        valid = multi_turn_checker(model, gold, entry, scenario.category, "bench")["valid"]
        seconds += time.perf_counter() - began
        assert valid
        for name in [name for name in vars(multi_turn_utils) if name.startswith("bench_")]:
            delattr(multi_turn_utils, name)
    return seconds


def resident_bytes() -> int:
    """Resident memory of this process now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def soak(episodes: int) -> tuple[float, float]:
    """Plays gold mixed with drawn calls; returns seconds and growth of resident memory in MB.

    All scenarios are played once before the first measurement: gold results are kept for each, and stay.
    """
    rng = random.Random(0)
    scenarios = load_scenarios()

    def play(scenario: Scenario) -> None:
        with Episode(scenario, augment=rng.random() < 0.5) as episode:
            for turn in scenario.turns:
                for call in turn.gold:
                    if rng.random() < 0.2:
                        episode.execute(random_call(scenario, rng))
                    episode.execute(call)
                episode.end_turn()

    for scenario in scenarios * 2:
        play(scenario)
    gc.collect()
    before, began = resident_bytes(), time.perf_counter()
    for number in range(episodes):
        play(scenarios[number % len(scenarios)])
    seconds = time.perf_counter() - began
    gc.collect()
    return seconds, (resident_bytes() - before) / 1e6


def compare(rounds: int, *sides: Callable[[], Any], key: Callable[[Any], float] = float) -> list[Any]:
    """What each side gives in its fastest round; the sides take turns."""
    taken = [[side() for side in sides] for _ in range(rounds + 1)][1:]  # The first round warms up.
    return [min(column, key=key) for column in zip(*taken, strict=True)]


def row(name: str, ours: float, official: float, goal: str = "") -> None:
    """Prints one line from seconds of one call or episode."""
    print(f"{name:<34} {ours * 1e6:>9.1f} {official * 1e6:>9.1f} {official / ours:>7.1f}x  {goal}")


def compare_all(rounds: int) -> None:
    """Prints the table of times."""
    print(f"{'microseconds':<34} {'bfcl_env':>9} {'bfcl-eval':>9} {'ratio':>8}  goal")
    all_ours, all_official = [], []
    for category in CATEGORIES:
        scenarios = load_scenarios(category)
        ours, official = compare(rounds, *(partial(side, scenarios) for side in (our_calls, official_calls)), key=sum)
        row(f"call, {category}", statistics.mean(ours), statistics.mean(official))
        all_ours += ours
        all_official += official
    row("call, mean of all", statistics.mean(all_ours), statistics.mean(all_official), "6x")
    row("call, median of all", statistics.median(all_ours), statistics.median(all_official), "6x")
    scenarios = load_scenarios()
    count, sides = len(scenarios), (our_episodes, our_first_episodes, official_episodes)
    ours, first, official = compare(rounds, *(partial(side, scenarios) for side in sides))
    row("episode with verdicts", ours / count, official / count, "3x")
    row("episode with verdicts, first pass", first / count, official / count, "3x")


def main() -> None:
    """Prints the table and the soak."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds, 0 for the soak alone (default: 5)")
    parser.add_argument("--episodes", type=int, default=10_000, help="episodes of the soak (default: 10,000)")
    options = parser.parse_args()
    if options.rounds:
        compare_all(options.rounds)
    seconds, growth = soak(options.episodes)
    print(f"soak: {options.episodes} episodes in {seconds:.1f} s, memory grew by {growth:.2f} MB (goal: < 1 MB)")


if __name__ == "__main__":
    main()
