"""What inspect-evals answered to random calls, recorded by benchmarks/tau_differential.py: the same is said here, as
tau2-bench writes it."""

import json
import math
from pathlib import Path

import pytest

from benchmarks.tau_differential import as_tau2_writes
from interaction.call import Call
from interaction.outcome import ErrorKind
from tau_env import telecom
from tau_env.verdict import judge

PLAYS = [json.loads(line) for line in Path(__file__).with_name("telecom_recorded.jsonl").read_text().splitlines()]
TASKS = {task.number: task for task in telecom.load_tasks()}
ERRORS = {
    "unknown": [ErrorKind.UNKNOWN_FUNCTION],
    "arguments": [ErrorKind.BAD_ARGUMENTS],
    "exception": [ErrorKind.BAD_ARGUMENTS],
    "refused": [ErrorKind.RESULT],
    "result": [None, ErrorKind.RESULT],
}


@pytest.mark.parametrize("play", PLAYS, ids=range(len(PLAYS)))
def test_texts_states_and_rewards_are_those_of_upstream(play):
    task = TASKS[play["task"]]
    database = telecom.open(task)
    for (side, name, arguments), (kind, text) in zip(play["calls"], play["results"], strict=True):
        result = database.call(Call(name, arguments), side)
        assert result.error in ERRORS[kind]
        if kind != "exception":
            assert result.text == (as_tau2_writes(name, text) if kind == "result" else f"Error: {text}")
    assert database.digest() == play["state"]
    calls = [(side, Call(name, arguments)) for side, name, arguments in play["calls"]]
    assert math.prod(judge(telecom, task, database, calls, ()).values()) == play["score"]
