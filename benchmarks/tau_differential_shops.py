"""Compares retail and airline with inspect-evals' own implementation.

    python benchmarks/tau_differential_shops.py --oracle /path/to/venv/bin/python --calls 10000 --seed 0
    python benchmarks/tau_differential_shops.py --oracle ... --pins tests/unit/tau_env/shops_gold.json

The oracle is a Python that has inspect-evals 0.26.0 with its dependencies; it runs `tau_oracle_shops.py`. After every
call its text, the kind of error and every record that differs from the file are compared; at the end of a play, whether
two states are equal. Then the verdicts of inspect-evals' scorers on scripted plays of all tasks. A random call takes
the oracle 30 to 60 ms, a scripted play up to a second: a quarter of an hour for both domains.
"""

import argparse
import hashlib
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.tau_plays_airline import AirlinePlays
from benchmarks.tau_plays_shops import Plays, RetailPlays
from interaction.call import Call
from interaction.outcome import ErrorKind
from tau_env import airline, retail
from tau_env.airline.database import base as airline_base
from tau_env.airline.database import timetable
from tau_env.domain import Task
from tau_env.retail.database import base as retail_base

DOMAINS = {"retail": retail, "airline": airline}
ORACLE = Path(__file__).with_name("tau_oracle_shops.py")
KINDS = {
    None: None,
    "ToolNotFound": ErrorKind.UNKNOWN_FUNCTION,
    "Validation": ErrorKind.BAD_ARGUMENTS,
    "ValidationError": ErrorKind.BAD_ARGUMENTS,
    "ToolError": ErrorKind.RESULT,
}
"""What the oracle's errors are called here; any other is EXECUTION."""
NOT_WORDS = ("ValidationError",)
"""Errors of the oracle whose text is the library's: here there is a sentence instead."""
LENGTH = 12


def plays_of(domain: str, seed: int) -> Plays:
    """Random plays of a domain, over its file."""
    docs = DOMAINS[domain].functions("agent")
    if domain == "retail":
        return RetailPlays(dict(retail_base().tables), docs, seed)
    flights = {
        number: {"origin": flight.origin, "destination": flight.destination}
        for number, flight in timetable().by_number.items()
    }
    return AirlinePlays({**airline_base().tables, "flights": flights}, docs, seed)


class Oracle:
    """The other implementation, in a process of its own."""

    def __init__(self, python: str) -> None:
        self.process = subprocess.Popen([python, str(ORACLE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **request: Any) -> Any:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def as_tau2_writes(text: str) -> str:
    """inspect-evals' JSON with tau2-bench's blanks, escapes and numbers."""
    return json.dumps(json.loads(text)) if text.startswith(("{", "[")) else text


class Comparison:
    """Counts of one domain."""

    def __init__(self, domain: str, oracle: Oracle) -> None:
        self.domain, self.oracle = domain, oracle
        self.counts: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()
        self.shown = 0
        self.states: set[tuple[str, str]] = set()

    def random(self, calls: int, seed: int) -> None:
        """Plays random calls; every tenth play also asks the oracle for its hash of the whole state."""
        plays = plays_of(self.domain, seed)
        module: Any = DOMAINS[self.domain]
        golds = [task.gold for task in module.load_tasks()]
        number = 0
        while self.counts["calls"] < calls:
            play = plays.play(LENGTH)
            if number % 4 == 0:  # begins with a part of some task's gold
                gold = plays.pick.choice(golds)
                play[:0] = [(action.call.name, action.call.arguments) for action in gold[: plays.pick.randint(0, 6)]]
            self.compare(play, whole=number % 10 == 0)
            number += 1

    def compare(self, play: list[tuple[str, dict[str, Any]]], whole: bool = False, **more: Any) -> Any:
        """Plays the same on both sides and counts differences."""
        answer = self.oracle.ask(domain=self.domain, calls=play, hash=whole, **more)
        module: Any = DOMAINS[self.domain]
        attempt = module.open(module.load_tasks()[0])
        before: dict[str, str] = {}
        for (name, arguments), theirs in zip(play, answer["rows"], strict=True):
            writes = len(attempt.written)
            ours = attempt.call(Call(name, arguments), "agent")
            state = {"/".join(place): text for place, text in attempt.changed().items()}
            self.counts["calls"] += 1
            self.seen[f"{name if ours.error is not ErrorKind.UNKNOWN_FUNCTION else '?'} {ours.error or 'ok'}"] += 1
            if ours.error is ErrorKind.LIMIT:
                self.counts["refused by a bound of ours"] += 1
                self.counts["state differs at a bound"] += state != theirs["changed"]
                if state != theirs["changed"]:
                    return answer
                continue
            if theirs["error"] in NOT_WORDS:
                self.counts["text is a library's there, ours here"] += 1
            else:
                self.count("text", name, arguments, ours.text, as_tau2_writes(theirs["text"]))
            self.count("kind", name, arguments, ours.error, KINDS.get(theirs["error"], ErrorKind.EXECUTION))
            self.count("state", name, arguments, state, theirs["changed"])
            self.count("written", name, arguments, len(attempt.written) > writes, before != theirs["changed"])
            before = theirs["changed"]
        if whole:
            self.states.add((answer["hash"], attempt.digest()))
        return {**answer, "attempt": attempt}

    def count(self, what: str, name: str, arguments: Any, ours: Any, theirs: Any) -> None:
        self.counts[f"differences of {what}"] += ours != theirs
        if ours != theirs and self.shown < 20:
            self.shown += 1
            print(
                f"  {what}: {name} {str(arguments)[:300]}\n    ours   {str(ours)[:300]}\n    theirs {str(theirs)[:300]}"
            )

    def scripted(self) -> None:
        """All tasks, with gold, nothing, less, more and reordered; verdicts of the oracle's own scorers."""
        module: Any = DOMAINS[self.domain]
        for task in module.load_tasks():
            expected = module.open(task)
            for action in task.gold:
                expected.call(action.call, "agent")
            for name, calls in scripts(task, module.WRITES).items():
                said = list(task.communicate) if name != "nothing" else []
                answer = self.compare(calls, whole=True, task=task.number, said=said)
                if "attempt" not in answer:
                    continue
                verdict = [answer["attempt"].digest() == expected.digest(), says(task, said)]
                self.counts[f"scripted: {name}"] += 1
                self.counts[f"scripted: {name}, passed"] += answer["reward"] == [True, True]
                self.count("verdict", name, task.number, verdict, answer["reward"])

    def report(self) -> None:
        """Prints the counts."""
        theirs, ours = ({pair[side] for pair in self.states} for side in (0, 1))
        print(
            f"{self.domain}: {len(self.states)} states, {len(theirs)} hashes of the oracle, {len(ours)} digests of ours"
        )
        for name, count in self.counts.items():
            print(f"  {name}: {count}")
        print("  by function and outcome:", json.dumps(dict(sorted(self.seen.items()))))


def says(task: Task, said: list[str]) -> bool:
    """The rule of COMMUNICATE: every text occurs in what was said, cases and commas aside."""
    heard = "\n".join(said).lower().replace(",", "")
    return all(text.lower() in heard for text in task.communicate)


def scripts(task: Task, writes: frozenset[str]) -> dict[str, list[tuple[str, dict[str, Any]]]]:
    """Plays of a task by name."""
    gold = [(action.call.name, action.call.arguments) for action in task.gold]
    last = max((number for number, (name, _) in enumerate(gold) if name in writes), default=None)
    found = {"gold": gold, "nothing": []}
    if last is not None:
        found["gold without its last write"] = gold[:last] + gold[last + 1 :]
        found["its last write twice"] = [*gold, gold[last]]
        found["lists reversed"] = [
            (name, {key: value[::-1] if isinstance(value, list) else value for key, value in arguments.items()})
            for name, arguments in gold
        ]
    more = {
        "retail": ("modify_user_address", {"user_id": "noah_brown_6181", **dict.fromkeys(ADDRESS, "x")}),
        "airline": ("send_certificate", {"user_id": "mia_li_3668", "amount": 1}),
    }
    found["gold and one more write"] = [*gold, more[task.domain]]
    return found


ADDRESS = ("address1", "address2", "city", "state", "country", "zip")


def pin(domain: str, oracle: Oracle) -> dict[str, list[str]]:
    """Of gold played on the oracle: hashes of all texts and of the records that differ at the end, by task."""
    found = {}
    module: Any = DOMAINS[domain]
    for task in module.load_tasks():
        rows = oracle.ask(domain=domain, calls=[(a.call.name, a.call.arguments) for a in task.gold])["rows"]
        parts = [as_tau2_writes(row["text"]) for row in rows], rows[-1]["changed"] if rows else {}
        found[task.number] = [hashlib.sha256(json.dumps(p, sort_keys=True).encode()).hexdigest()[:16] for p in parts]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--domain", choices=sorted(DOMAINS), action="append")
    parser.add_argument("--oracle", required=True, help="Python that has inspect-evals with its dependencies")
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-scripts", action="store_true", help="random calls alone")
    parser.add_argument("--pins", type=Path, help="write hashes of the oracle's gold there, for the tests, and stop")
    options = parser.parse_args()
    oracle = Oracle(options.oracle)
    if options.pins:
        options.pins.write_text(
            json.dumps({domain: pin(domain, oracle) for domain in sorted(DOMAINS)}, indent=0) + "\n"
        )
        return
    for domain in options.domain or sorted(DOMAINS):
        comparison = Comparison(domain, oracle)
        docs = oracle.ask(domain=domain, docs=True)
        comparison.count("documentation", domain, "", list(DOMAINS[domain].functions("agent")), docs)
        comparison.random(options.calls, options.seed)
        if not options.no_scripts:
            comparison.scripted()
        comparison.report()


if __name__ == "__main__":
    main()
