"""Random calls say and leave what inspect-evals' telecom does, with times and numbers as tau2-bench writes them."""

import json
import math
from pathlib import Path

from interaction.call import Call
from interaction.outcome import ErrorKind
from tau_env import telecom
from tau_env.verdict import judge

ERRORS = {
    "unknown": [ErrorKind.UNKNOWN_FUNCTION],
    "arguments": [ErrorKind.BAD_ARGUMENTS],
    "exception": [ErrorKind.BAD_ARGUMENTS],
    "refused": [ErrorKind.RESULT],
    "result": [None, ErrorKind.RESULT],
}


def test_texts_states_and_rewards_are_those_of_upstream():
    tasks, failed = {task.number: task for task in telecom.load_tasks()}, []
    for line in Path(__file__).with_name("telecom_recorded.jsonl").read_text().splitlines():
        play = json.loads(line)
        task = tasks[play["task"]]
        database = telecom.open(task)
        for (side, name, arguments), (kind, text) in zip(play["calls"], play["results"], strict=True):
            result = database.call(Call(name, arguments), side)
            if result.error not in ERRORS[kind] or (kind != "exception" and result.text != text):
                failed.append((play["task"], name, arguments, result, text))
        calls = [(side, Call(name, arguments)) for side, name, arguments in play["calls"]]
        score = math.prod(judge(telecom, task, database, calls, ()).values())
        if (database.digest(), score) != (play["state"], play["score"]):
            failed.append((play["task"], "state or score"))
    assert not failed
