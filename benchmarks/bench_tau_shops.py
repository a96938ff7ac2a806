"""Times retail and airline, and measures memory growth.

    python benchmarks/bench_tau_shops.py                 # about a minute
    python benchmarks/bench_tau_shops.py --episodes 0    # times alone

Times are CPU microseconds of the calling thread, so that other load counts little. Random calls are those of
`tau_differential_shops.py`: most reach the code behind the checks. An episode of the soak is gold and three of them.
"""

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.tau_differential_shops import DOMAINS, LENGTH, plays_of
from interaction.call import Call


def timed(attempt: Any, calls: list[Call]) -> Iterator[float]:
    """Seconds of each call."""
    for call in calls:
        began = time.thread_time()
        attempt.call(call, "agent")
        yield time.thread_time() - began


def speed(domain: str, seed: int) -> None:
    """Prints microseconds of calls and of whole episodes."""
    module: Any = DOMAINS[domain]
    tasks = module.load_tasks() * 5
    module.open(tasks[0])
    whole = []
    for task in tasks:
        began = time.thread_time()
        attempt = module.open(task)
        for action in task.gold:
            attempt.call(action.call, "agent")
        attempt.digest()
        whole.append(time.thread_time() - began)
    plays = plays_of(domain, seed)
    random_plays = [[Call(*pair) for pair in plays.play(LENGTH)] for _ in range(800)]
    rows = {
        "open": [_opening(module, task) for task in tasks],
        "gold call": [t for task in tasks for t in timed(module.open(task), [a.call for a in task.gold])],
        "random call": [t for play in random_plays for t in timed(module.open(tasks[0]), play)],
        "open, gold and digest": whole,
    }
    for what, times in rows.items():
        times.sort()
        median, p99 = statistics.median(times), times[int(len(times) * 0.99)]
        print(f"{domain}: {what}: median {median * 1e6:.0f} us, p99 {p99 * 1e6:.0f} us ({len(times)} timed)")


def _opening(module: Any, task: Any) -> float:
    began = time.thread_time()
    module.open(task)
    return time.thread_time() - began


def soak(domain: str, seed: int, episodes: int) -> None:
    """Plays many episodes; prints by how much the process and its count of objects grew, and whether the base held."""
    module: Any = DOMAINS[domain]
    tasks, plays = module.load_tasks(), plays_of(domain, seed)
    before = fingerprint(module)
    marks = []
    for number in range(episodes + 200):
        if number in (200, episodes + 199):
            gc.collect()
            marks.append((_resident(), len(gc.get_objects())))
        task = tasks[number % len(tasks)]
        attempt = module.open(task)
        for call in [*(action.call for action in task.gold), *(Call(*pair) for pair in plays.play(3))]:
            attempt.call(call, "agent")
        attempt.digest()
    (size, objects), (later, more) = marks
    print(f"{domain}: {episodes} episodes: {(later - size) / 1024:+.2f} MB resident, {more - objects:+d} objects")
    print(f"{domain}: the database is {'as before' if fingerprint(module) == before else 'CHANGED'}")


def fingerprint(module: Any) -> int:
    """Of all records that attempts share."""
    return hash(json.dumps(module.base().tables, sort_keys=True))


def _resident() -> int:
    """Kilobytes."""
    rows = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(rows["VmRSS"].split()[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=10_000)
    options = parser.parse_args()
    for domain in sorted(DOMAINS):
        speed(domain, options.seed)
        if options.episodes:
            soak(domain, options.seed, options.episodes)


if __name__ == "__main__":
    main()
