"""Times telecom: a call, opening a state, an episode of gold with its verdict; and its memory over 10,000 episodes.

    python benchmarks/bench_tau.py    # about a minute

Calls are those of `tau_plays` (random ones of both sides) on states that earlier calls have changed. Times are of this
process alone; other load on the machine only adds to them. Memory is the process's resident size, after a first
thousand episodes that fill what is kept once (tasks, tables, gold's digests).
"""

import argparse
import gc
import random
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.tau_plays import gold, play, random_move
from tau_env import telecom
from tau_env.domain import Task
from tau_env.verdict import gold_digest, judge


def show(what: str, seconds: list[float]) -> None:
    """The median and the slowest hundredth, in microseconds."""
    ordered = sorted(seconds)
    slow = ordered[int(len(ordered) * 0.99)]
    print(f"{what:40} median {statistics.median(ordered) * 1e6:7.1f} us   p99 {slow * 1e6:7.1f} us", flush=True)


def call_times(tasks: tuple[Task, ...], rng: random.Random, count: int) -> list[float]:
    """Seconds of single calls, twenty to a play."""
    seconds: list[float] = []
    while len(seconds) < count:
        database = telecom.open(rng.choice(tasks))
        for side, call in [random_move(rng) for _ in range(20)]:
            began = time.perf_counter()
            database.call(call, side)
            seconds.append(time.perf_counter() - began)
    return seconds


def gold_call_times(tasks: tuple[Task, ...]) -> list[float]:
    """Seconds of gold's calls, most of which are writes."""
    seconds = []
    for task in tasks:
        database = telecom.open(task)
        for side, call in gold(task):
            began = time.perf_counter()
            database.call(call, side)
            seconds.append(time.perf_counter() - began)
    return seconds


def open_times(tasks: tuple[Task, ...]) -> list[float]:
    """Seconds of opening each task."""
    seconds = []
    for task in tasks:
        began = time.perf_counter()
        telecom.open(task)
        seconds.append(time.perf_counter() - began)
    return seconds


def episode_times(tasks: tuple[Task, ...], count: int) -> list[float]:
    """Seconds of opening, playing gold, and judging."""
    seconds = []
    for index in range(count):
        task = tasks[index % len(tasks)]
        began = time.perf_counter()
        database = telecom.open(task)
        moves = [move for move, _ in play(task, database, "gold")]
        assert all(judge(telecom, task, database, moves, ()).values())
        seconds.append(time.perf_counter() - began)
    return seconds


def resident() -> float:
    """Megabytes of this process."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--episodes", type=int, default=10_000)
    options = parser.parse_args()
    began, before = time.perf_counter(), resident()
    tasks = telecom.load_tasks()
    print(f"{len(tasks)} tasks in {time.perf_counter() - began:.2f} s, {resident() - before:.1f} MB resident more")
    show("a random call", call_times(tasks, random.Random(0), options.calls))
    show("a call of gold", gold_call_times(tasks))
    show("opening a state", open_times(tasks))
    episode_times(tasks, 1_000)
    gold_digest(telecom, tasks[0])
    before = resident()
    show("opening, gold's calls, verdict", episode_times(tasks, options.episodes))
    print(f"{resident() - before:.2f} MB more after {options.episodes} episodes")


if __name__ == "__main__":
    main()
