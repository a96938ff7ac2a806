"""The process in which BFCL's own checker judges: reads conversations on stdin, writes verdicts on stdout.

BFCL's executor calls `eval` on text, so it runs here and nowhere else of this package, and never in a process that has
anything to lose. Every conversation gets a fork of its own: what BFCL shares between all instances of a process
(credit cards, lists of tweets, precision) starts afresh, and a limit ends one conversation, not the rest. In a fork
memory, CPU time and open files are limited, and nothing can be written to a file; nothing can be started either, unless
the user is root.

Not covered: a fork can read what its user can read. What it evaluates is therefore made by `official.call_text` only,
which writes names of known functions and literals.
"""

import json
import os
import resource
import select
import signal
import time
from typing import Any

from bfcl_env import Scenario, load_scenarios
from bfcl_env.source import function_owners, load_class

WALL_FACTOR = 6
"""Seconds on the clock for each second of CPU time: on a busy machine they pass faster."""


def limit(cpu_seconds: int, memory_bytes: int) -> None:
    """Bound this process. Exceeding the CPU time kills it; the rest fails inside it."""
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


def verdict(scenario: Scenario, turns: list[list[list[str]]]) -> dict[str, Any]:
    """What `multi_turn_checker` says about calls as text, by turn and message."""
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker

    entry = {
        "id": scenario.id,
        "initial_config": scenario.initial_config,
        "involved_classes": list(scenario.classes),
    }
    gold = [[str(call) for call in turn.gold] for turn in scenario.turns]
    # The name becomes part of variable names in the evaluated text. A fork has one conversation, so it is unique.
    found = multi_turn_checker(turns, gold, entry, scenario.category, "model")
    return {"valid": bool(found["valid"]), "reason": found.get("error_type")}


def judge_in_fork(
    scenario: Scenario, turns: list[list[list[str]]], cpu_seconds: int, memory_bytes: int
) -> dict[str, Any]:
    """The verdict, or {"fault": ...} when the fork did not live to give one."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            silent = os.open(os.devnull, os.O_RDWR)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
            limit(cpu_seconds, memory_bytes)
            try:
                said = verdict(scenario, turns)
            except BaseException as error:  # also SystemExit: what BFCL's code raises is part of the answer
                said = {"fault": f"{type(error).__name__}: {error}"[:300]}
            os.write(writing, json.dumps(said).encode())
        finally:
            os._exit(0)
    os.close(writing)
    seconds = cpu_seconds * WALL_FACTOR
    data = _read(reading, seconds)
    os.close(reading)
    if data is None:
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if data:
        return json.loads(data)
    if data is None:
        return {"fault": f"no verdict within {seconds} s"}
    killed = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    return {"fault": f"ended by {signal.Signals(killed).name}" if killed else f"ended with status {status}"}


def _read(descriptor: int, seconds: float) -> bytes | None:
    """What the child writes until it closes the pipe; None if it takes longer."""
    end, data = time.monotonic() + seconds, b""
    while select.select([descriptor], [], [], max(0.0, end - time.monotonic()))[0]:
        piece = os.read(descriptor, 65536)
        if not piece:
            return data
        data += piece
    return None


def main() -> None:
    """Serve until stdin ends: a line {"id", "turns", "cpu_seconds", "memory_bytes"} gives a line with the verdict."""
    from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_checker  # noqa: F401  (once, not in every fork)

    for class_name in set(function_owners().values()):
        load_class(class_name)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever BFCL's code prints must not be taken for an answer
    requests = os.fdopen(os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for line in requests:
        asked = json.loads(line)
        category, index = asked["id"].rsplit("_", 1)
        scenario = load_scenarios(category)[int(index)]
        said = judge_in_fork(scenario, asked["turns"], asked["cpu_seconds"], asked["memory_bytes"])
        answers.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
