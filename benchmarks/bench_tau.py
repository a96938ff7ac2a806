"""Times telecom: a call, opening a state, an episode of gold with its verdict; and its memory over 10,000 episodes.

    python benchmarks/bench_tau.py    # about a minute

Calls are those of `tau_plays` (random ones of both sides) on states that earlier calls have changed. The median is of
elapsed time, the slowest hundredth of processor time, which other load on the machine moves less. Memory is the
process's resident size, after a first thousand episodes that fill what is kept once (tasks, tables).
"""

import argparse
import contextlib
import gc
import itertools
import random
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.tau_plays import gold, play, random_move
from tau_env import telecom
from tau_env.domain import Task
from tau_env.verdict import judge


class Clock:
    """Seconds of each piece of work: elapsed, and of the processor (whose clock itself takes some)."""

    def __init__(self) -> None:
        self.elapsed: list[float] = []
        self.processor: list[float] = []

    @contextlib.contextmanager
    def piece(self) -> Iterator[None]:
        """Times what happens inside."""
        processor, elapsed = time.thread_time(), time.perf_counter()
        yield
        self.elapsed.append(time.perf_counter() - elapsed)
        self.processor.append(time.thread_time() - processor)

    def show(self, what: str) -> None:
        """The median and the slowest hundredth, in microseconds."""
        slow = sorted(self.processor)[int(len(self.processor) * 0.99)] * 1e6
        print(f"{what:40} median {statistics.median(self.elapsed) * 1e6:7.1f} us   p99 {slow:7.1f} us", flush=True)


def random_calls(tasks: tuple[Task, ...], rng: random.Random, count: int) -> Clock:
    """Single calls, twenty to a play."""
    clock = Clock()
    while len(clock.elapsed) < count:
        database = telecom.open(rng.choice(tasks))
        for side, call in [random_move(rng) for _ in range(20)]:
            with clock.piece():
                database.call(call, side)
    return clock


def gold_calls(tasks: tuple[Task, ...]) -> Clock:
    """Gold's calls, most of which are writes."""
    clock = Clock()
    for task in tasks:
        database = telecom.open(task)
        for side, call in gold(task):
            with clock.piece():
                database.call(call, side)
    return clock


def openings(tasks: tuple[Task, ...]) -> Clock:
    """Opening each task."""
    clock = Clock()
    for task in tasks:
        with clock.piece():
            telecom.open(task)
    return clock


def episodes(tasks: tuple[Task, ...], count: int) -> Clock:
    """Opening, playing gold, and judging."""
    clock = Clock()
    for task in itertools.islice(itertools.cycle(tasks), count):
        with clock.piece():
            database = telecom.open(task)
            moves = [move for move, _ in play(task, database, "gold")]
            assert all(judge(telecom, task, database, moves, ()).values())
    return clock


def resident() -> float:
    """Megabytes of this process."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--episodes", type=int, default=10_000)
    options = parser.parse_args()
    began, before = time.thread_time(), resident()
    tasks = telecom.load_tasks()
    print(f"{len(tasks)} tasks in {time.thread_time() - began:.2f} s, {resident() - before:.1f} MB resident more")
    random_calls(tasks, random.Random(0), options.calls).show("a random call")
    gold_calls(tasks).show("a call of gold")
    openings(tasks).show("opening a state")
    episodes(tasks, 1_000)
    before = resident()
    timed = episodes(tasks, options.episodes)
    grown = resident() - before
    timed.show("opening, gold's calls, verdict")
    print(
        f"{grown:.2f} MB more after {options.episodes} episodes, {len(timed.elapsed) * 64 / 2**20:.1f} of them timings"
    )


if __name__ == "__main__":
    main()
