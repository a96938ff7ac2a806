"""Plays telecom here and in inspect-evals' own code, call by call, and counts where the two differ.

    python benchmarks/tau_differential.py --oracle PYTHON --calls 10000 --seed 0     # random calls
    python benchmarks/tau_differential.py --oracle PYTHON --calls 0 --rewards 2285   # five ways to play, all tasks
    python benchmarks/tau_differential.py --oracle PYTHON --calls 250 --record FILE  # upstream's answers, for the tests

PYTHON is one that has inspect-evals with its dependencies. Compared are: the functions' documentation; after each call
the text, whether it is an error, and both databases; after each play the reward of the official scorer. Where upstream
fails with an exception of its libraries, only that both refuse the call, and that nothing changed, is compared.
Not drawn at random: whole numbers of gigabytes (2 is "2 GB" to tau2-bench and here), numbers that are not finite, and
texts that are no UTF-8 or longer than a result may be.
"""

import argparse
import collections
import json
import math
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.tau_plays import STRATEGIES, Move, play, random_move
from interaction.outcome import ErrorKind, ToolResult
from tau_env import telecom
from tau_env.domain import Task
from tau_env.verdict import judge

_SAYS_NO = ("Failed to set network mode", "Cannot change Wi-Fi", "Error. ", "App '")
"""Texts that upstream returns like any other, and that count as errors here."""


class Oracle:
    """inspect-evals in a process of its own."""

    def __init__(self, python: str, record: Path | None) -> None:
        self._record = record.open("w", encoding="utf-8") if record else None
        command = [python, str(Path(__file__).with_name("tau_oracle.py"))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.documents = json.loads(self._line())

    def play(self, task: Task, moves: list[Move], states: bool) -> dict[str, Any]:
        """Texts, states and score of the same calls."""
        calls = [[side, call.name, call.arguments] for side, call in moves]
        assert self._process.stdin is not None
        print(
            json.dumps({"task": task.number, "calls": calls, "states": states or bool(self._record)}),
            file=self._process.stdin,
            flush=True,
        )
        answer: dict[str, Any] = json.loads(self._line())
        if self._record:
            results = [[kind, text if kind != "exception" else ""] for kind, text in answer["results"]]
            kept = {"task": task.number, "calls": calls, "results": results, "score": answer["score"]}
            print(json.dumps({**kept, "state": answer["states"][-1]}), file=self._record)
        return answer

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()
        if self._record:
            self._record.close()


class Tally:
    """Counts, and the first few differences in full."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self._shown = 0

    def compare(self, what: str, ours: object, theirs: object, where: object) -> None:
        """Counts a comparison, and a difference if there is one."""
        self.counts[what] += 1
        if ours != theirs:
            self.counts[f"{what} DIFFERENT"] += 1
            self._shown += 1
            if self._shown <= 10:
                print(f"{what} differs at {where}\n  ours   {ours!r}\n  theirs {theirs!r}", flush=True)

    def add(self, what: str) -> None:
        """Counts something that is not compared."""
        self.counts[what] += 1


def as_tau2_writes(name: str, text: str) -> str:
    """inspect-evals' JSON in tau2-bench's form: no T in times, and in an answer that is no record numbers as texts."""
    if not text.startswith(("{", "[")):
        return text
    found = json.loads(text)
    if name in ("get_data_usage", "refuel_data"):
        found = {key: str(value) for key, value in found.items()}
    return re.sub(r"(-\d\d)T(\d\d:)", r"\1 \2", json.dumps(found))


def compare_result(tally: Tally, name: str, ours: ToolResult, theirs: list[str], where: object) -> None:
    """One call's text and kind of error."""
    kind, text = theirs
    expected = {
        "unknown": ErrorKind.UNKNOWN_FUNCTION,
        "arguments": ErrorKind.BAD_ARGUMENTS,
        "exception": ErrorKind.BAD_ARGUMENTS,
        "refused": ErrorKind.RESULT,
        "result": ErrorKind.RESULT if text.startswith(_SAYS_NO) and "currently" not in text else None,
    }[kind]
    if kind == "result" and text.startswith("App '") and "not found" not in text:
        expected = None
    tally.compare("error kinds", ours.error, expected, where)
    if kind == "exception":
        tally.add("calls refused in our own words")
    else:
        tally.compare("texts", ours.text, as_tau2_writes(name, text) if kind == "result" else f"Error: {text}", where)


def reward(task: Task, database: telecom.TelecomDatabase, moves: list[Move]) -> float:
    """The product of the official components."""
    return math.prod(judge(telecom, task, database, moves, ()).values())


def random_plays(oracle: Oracle, tally: Tally, calls: int, longest: int, rng: random.Random) -> None:
    """Plays of 1 to `longest` random calls from all tasks in turn, until enough calls were made."""
    tasks = list(telecom.load_tasks())
    seen = set()
    for task in _forever(tasks, rng):
        if calls <= 0:
            break
        moves = [random_move(rng) for _ in range(min(calls, rng.randint(1, longest)))]
        calls -= len(moves)
        seen.add(task.number)
        theirs = oracle.play(task, moves, states=True)
        database = telecom.open(task)
        tally.compare("states", database.digest(), theirs["states"][0], task.number)
        for index, (side, call) in enumerate(moves):
            where = (task.number, side, str(call)[:300])
            compare_result(tally, call.name, database.call(call, side), theirs["results"][index], where)
            tally.compare("states", database.digest(), theirs["states"][index + 1], where)
        tally.compare("rewards of random plays", reward(task, database, moves), theirs["score"], task.number)
    tally.counts["tasks begun at random"] = len(seen)


def _forever(tasks: list[Task], rng: random.Random) -> Iterator[Task]:
    while True:
        rng.shuffle(tasks)
        yield from tasks


def rewards(oracle: Oracle, tally: Tally, tasks: list[Task]) -> None:
    """Every strategy on every task."""
    for task in tasks:
        for name in STRATEGIES:
            database = telecom.open(task)
            played = play(task, database, name)
            moves = [move for move, _ in played]
            theirs = oracle.play(task, moves, states=False)
            for (move, ours), text in zip(played, theirs["results"], strict=True):
                compare_result(tally, move[1].name, ours, text, (task.number, name, str(move[1])))
            earned = reward(task, database, moves)
            tally.compare(f"rewards of {name}", earned, theirs["score"], task.number)
            tally.counts[f"earned by {name}"] += int(earned)
            tally.counts[f"clean by {name}"] += int(earned and not telecom.needless(task, database.written))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--domain", choices=["telecom"], default="telecom")
    parser.add_argument("--oracle", required=True, metavar="PYTHON")
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--longest", type=int, default=8, help="calls of a play")
    parser.add_argument("--rewards", type=int, default=0, metavar="TASKS", help="on how many tasks, drawn at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", type=Path, help="where to write what upstream answers to the random calls")
    options = parser.parse_args()
    began, rng, tally = time.monotonic(), random.Random(options.seed), Tally()
    oracle = Oracle(options.oracle, options.record)
    for side in ("agent", "user"):
        tally.compare("documentation", list(telecom.functions(side)), oracle.documents[side], side)
    random_plays(oracle, tally, options.calls, options.longest, rng)
    tasks = list(telecom.load_tasks())
    rewards(oracle, tally, rng.sample(tasks, min(options.rewards, len(tasks))))
    oracle.close()
    for what, count in sorted(tally.counts.items()):
        print(f"{count:8,}  {what}")
    differences = sum(count for what, count in tally.counts.items() if what.endswith("DIFFERENT"))
    print(f"{differences} differences, {time.monotonic() - began:.0f} s")
    return int(differences > 0)


if __name__ == "__main__":
    sys.exit(main())
