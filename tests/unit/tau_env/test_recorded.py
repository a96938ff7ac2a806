"""Plays say and leave what upstream's code does. They were drawn at random and kept for what they reach.

`telecom_recorded.jsonl` has the answers of inspect-evals, with times and numbers as tau2-bench writes them.
`shops_recorded.jsonl` has ours, of code that agreed with inspect-evals in 10,000 calls a domain; long texts are hashes.
`shops_gold.json` has hashes of what inspect-evals says and leaves when gold is played.
"""

import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from interaction.call import Call
from interaction.outcome import ErrorKind
from tau_env import airline, retail, telecom
from tau_env.verdict import judge

SHOPS: dict[str, Any] = {"retail": retail, "airline": airline}
ERRORS = {
    "unknown": [ErrorKind.UNKNOWN_FUNCTION],
    "arguments": [ErrorKind.BAD_ARGUMENTS],
    "exception": [ErrorKind.BAD_ARGUMENTS],
    "refused": [ErrorKind.RESULT],
    "result": [None, ErrorKind.RESULT],
}


def hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def recorded(name: str) -> Iterator[dict[str, Any]]:
    return map(json.loads, Path(__file__).with_name(f"{name}_recorded.jsonl").read_text().splitlines())


def test_telecom_says_leaves_and_pays_what_upstream_does() -> None:
    tasks, failed = {task.number: task for task in telecom.load_tasks()}, []
    for play in recorded("telecom"):
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


def test_retail_and_airline_say_and_leave_what_was_recorded() -> None:
    failed: list[Any] = []
    for number, play in enumerate(recorded("shops")):
        domain = SHOPS[play["domain"]]
        attempt = domain.open(domain.load_tasks()[0])
        for (name, arguments), (kind, text) in zip(play["calls"], play["results"], strict=True):
            before, result = attempt.digest(), attempt.call(Call(name, arguments), "agent")
            if result.error != kind or text not in (result.text, hashed(result.text)):
                failed.append((number, name, arguments, result, kind, text))
            if result.error not in (None, ErrorKind.EXECUTION) and attempt.digest() != before:
                failed.append((number, name, arguments, "a refused call changed something"))
        if (attempt.digest(), len(attempt.written)) != (play["digest"], play["written"]):
            failed.append((number, "state"))
    assert not failed


def test_gold_of_retail_and_airline_says_and_leaves_what_upstream_does() -> None:
    pins, failed = json.loads(Path(__file__).with_name("shops_gold.json").read_text()), []
    for domain in SHOPS.values():
        for task in domain.load_tasks():
            attempt = domain.open(task)
            texts = [attempt.call(action.call, action.side).text for action in task.gold]
            changed = {"/".join(place): text for place, text in attempt.changed().items()}
            if [hashed(json.dumps(part, sort_keys=True)) for part in (texts, changed)] != pins[domain.NAME][
                task.number
            ]:
                failed.append((domain.NAME, task.number))
    assert not failed
