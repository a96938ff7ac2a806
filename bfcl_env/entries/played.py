"""The process that plays the gold of a file's entries: a state or a call may run for ever in it.

    python -m bfcl_env.entries.played NAME FILE SECONDS

writes a line for each entry before it is played, its number as a JSON list, and one for what is wrong with it then: its
number, the field, what was found and what was expected. An entry that takes more CPU time than
those seconds ends the process.
"""

import json
import logging
import signal
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bfcl_env.entries.tasks import OwnTask, load
from bfcl_env.execution import new_instances
from bfcl_env.scenarios import Scenario
from bfcl_env.single_turn.checker import check_calls
from bfcl_env.single_turn.gold import gold_calls
from bfcl_env.single_turn.tasks import SingleTurnTask
from interaction import get_protocol
from interaction.environment import register
from interaction.gold import play_gold
from interaction.record import StopReason

LONGEST = 300
"""Characters of what was found."""


def wrong(task: OwnTask) -> tuple[str, str, str] | None:
    """What is wrong with an entry when it is played: field, found, expected; None if nothing."""
    if isinstance(task.played, Scenario):
        for name, config in task.played.config_json:
            try:
                new_instances(replace(task.played, config_json=((name, config),)))
            except Exception as error:
                return f"initial_config.{name}", _line(error), "a state that the class takes"
    try:
        _, record = play_gold(task, get_protocol("think_xml", docs="signature"), max_steps_per_turn=1000)
    except Exception as error:
        return "", f"{_line(error)} when it was played", "an entry that can be played"
    if record.stop_reason == StopReason.environment_error and record.fault is not None:
        return "ground_truth", record.fault[:LONGEST], "calls that succeed"
    if isinstance(task.played, SingleTurnTask) and task.played.kind.wanted == "accepted" and not any(task.gold()):
        return "ground_truth", f"calls that it does not accept itself: {_mismatches(task.played)}", "calls that pass"
    if any(task.gold()) and not (record.outcome and record.outcome.passed):
        turn = next((number for number, turn in enumerate(record.turns) if not turn.passed), 0)
        why = record.turns[turn].difference
        return (
            "ground_truth",
            f"calls that do not pass in turn {turn} (the first is 0): {_short(why)}",
            "calls that pass when they are made",
        )
    return None


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:LONGEST]


def _mismatches(task: SingleTurnTask) -> str:
    """Why the calls of the first accepted values do not pass, for which a task then has no gold."""
    calls = gold_calls(task.accepted, task.functions, task.kind.language)
    checked = check_calls(calls, task.functions, task.accepted, task.kind.language, parallel=task.kind.parallel)
    return _short([asdict(item) for item in checked.mismatches])


def _short(why: Any) -> str:
    return json.dumps([dict(item) for item in why])[:LONGEST]


def main() -> None:
    """Entry point of the process."""
    name, path, seconds = sys.argv[1:]
    logging.disable(logging.CRITICAL)  # an episode that fails is told of here, and not with a traceback
    register({name: path})
    tasks, _ = load(name, Path(path))
    for number, task in enumerate(tasks):
        print(json.dumps([number]), flush=True)
        signal.setitimer(signal.ITIMER_VIRTUAL, float(seconds))  # its signal ends the process, whatever that is doing
        found = wrong(task)
        if found is not None:
            print(json.dumps([number, *found]), flush=True)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)


if __name__ == "__main__":
    main()
