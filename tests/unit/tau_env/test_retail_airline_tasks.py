"""Retail and airline: tasks, gold, attempts beside each other, and what is told of a task beforehand.

`shops_gold.json` holds hashes of what inspect-evals' own tools say and leave behind when gold is played on them; it was
written by `benchmarks/tau_differential_shops.py --pins`.
"""

import hashlib
import json
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from interaction.call import Call
from tau_env import airline, retail
from tau_env.attempt import Attempt
from tau_env.domain import Assertion, Task

DOMAINS = (retail, airline)
PINS = json.loads(Path(__file__).with_name("shops_gold.json").read_text())
IDLE = {
    "retail": "10 12 25 50 57 65 105",
    "airline": "0 1 4 5 6 10 13 26 28 31 34 36 41 43 45 46 47 48 49",
}
TASKS = [
    pytest.param(domain, task, id=f"{domain.NAME}-{task.number}") for domain in DOMAINS for task in domain.load_tasks()
]


def hashed(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def played(domain: Any, task: Task, without: int | None = None) -> Attempt:
    attempt: Attempt = domain.open(task)
    for number, action in enumerate(task.gold):
        if number != without:
            attempt.call(action.call, action.side)
    return attempt


@pytest.mark.parametrize(("domain", "count"), [(retail, 114), (airline, 50)])
def test_tasks_are_those_of_the_file(domain: ModuleType, count: int) -> None:
    tasks = domain.load_tasks()
    assert [task.number for task in tasks] == [str(number) for number in range(count)]
    assert domain.load_tasks() is tasks
    for task in tasks:
        assert task.domain == task.category == domain.NAME
        assert task.basis == ("DB", "COMMUNICATE")
        assert task.story.reason and task.story.instructions
        assert not task.setup and not task.assertions and not task.ticket


@pytest.mark.parametrize(("domain", "task"), TASKS)
def test_gold_says_and_leaves_what_upstream_does(domain: ModuleType, task: Task) -> None:
    attempt = domain.open(task)
    texts = [attempt.call(action.call, action.side).text for action in task.gold]
    changed = {"/".join(place): text for place, text in attempt.changed().items()}
    assert [hashed(texts), hashed(changed)] == PINS[domain.NAME][task.number]


@pytest.mark.parametrize(("domain", "task"), TASKS)
def test_gold_writes_what_is_needed_and_less_leaves_another_state(domain: ModuleType, task: Task) -> None:
    attempt, needed = played(domain, task), list(domain.needed(task))
    assert all(write in needed for write in attempt.written)
    assert bool(attempt.written) == bool(attempt.changed())
    if attempt.written:
        last = max(number for number, action in enumerate(task.gold) if action.call == attempt.written[-1][1])
        less = played(domain, task, without=last)
        assert less.digest() != attempt.digest()
        assert less.differences(attempt)
    assert attempt.differences(played(domain, task)) == ()


@pytest.mark.parametrize("domain", DOMAINS)
def test_doing_nothing_passes_where_it_is_known_to(domain: ModuleType) -> None:
    assert " ".join(task.number for task in domain.load_tasks() if domain.idle(task)) == IDLE[domain.NAME]


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_task_serves_a_user_of_the_database(domain: ModuleType) -> None:
    users = domain.base().tables["users"]
    served = Counter(domain.user_of(task) for task in domain.load_tasks())
    assert served.keys() <= users.keys()
    assert len(served) == {"retail": 53, "airline": 34}[domain.NAME]


@pytest.mark.parametrize("domain", DOMAINS)
def test_tasks_that_write_to_one_record_serve_one_user(domain: ModuleType) -> None:
    owners: dict[tuple[str, str], set[str]] = {}
    for task in domain.load_tasks():
        for place in played(domain, task).changed():
            if place[0] != "days" and not place[1].startswith("HAT"):
                owners.setdefault(place, set()).add(domain.user_of(task))
    assert all(len(users) == 1 for users in owners.values())


@pytest.mark.parametrize("domain", DOMAINS)
def test_attempts_beside_each_other_share_nothing(domain: ModuleType) -> None:
    """All tasks at once, a call of each in turn, against one after the other."""
    tasks = domain.load_tasks()
    before = json.dumps(domain.base().tables, sort_keys=True)
    alone = [played(domain, task).digest() for task in tasks]
    together = [domain.open(task) for task in tasks]
    for number in range(max(len(task.gold) for task in tasks)):
        for attempt, task in zip(together, tasks, strict=True):
            if number < len(task.gold):
                attempt.call(task.gold[number].call, "agent")
    assert [attempt.digest() for attempt in together] == alone
    assert json.dumps(domain.base().tables, sort_keys=True) == before


@pytest.mark.parametrize("domain", DOMAINS)
def test_what_the_caller_does_to_its_call_later_changes_nothing(domain: ModuleType) -> None:
    for task in domain.load_tasks():
        attempt = domain.open(task)
        calls = [Call(action.call.name, json.loads(json.dumps(action.call.arguments))) for action in task.gold]
        for call in calls:
            attempt.call(call, "agent")
        digest, written = attempt.digest(), [str(call) for _, call in attempt.written]
        for call in calls:
            for value in call.arguments.values():
                if isinstance(value, list):
                    for item in value:
                        if isinstance(item, dict):
                            item.clear()
                    value.clear()
            call.arguments.clear()
        assert attempt.digest() == digest and [str(call) for _, call in attempt.written] == written


@pytest.mark.parametrize(("domain", "task"), TASKS)
def test_reads_are_pure(domain: ModuleType, task: Task) -> None:
    attempt = played(domain, task)
    digest, writes = attempt.digest(), len(attempt.written)
    reads = [action.call for action in task.gold if action.call.name not in domain.WRITES]
    texts = [[attempt.call(call, "agent").text for call in reads] for _ in range(2)]
    assert texts[0] == texts[1]
    assert attempt.digest() == digest and len(attempt.written) == writes


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_policy_is_one_text_and_needs_a_user(domain: ModuleType) -> None:
    text = domain.policy("full", solo=False)
    assert "2024-05-15" in text if domain is airline else "retail" in text
    assert domain.policy("workflow", solo=False) == text and domain.policy("none", solo=False) == ""
    with pytest.raises(ValueError, match="without a user"):
        domain.policy("full", solo=True)


@pytest.mark.parametrize("domain", DOMAINS)
def test_nothing_is_asserted_in_these_domains(domain: ModuleType) -> None:
    with pytest.raises(ValueError, match="no assertion"):
        domain.open(domain.load_tasks()[0]).holds(Assertion("agent", "x", {}, True))


def test_payments_of_the_file_name_methods_of_their_user() -> None:
    """Retail's cancelling relies on it: upstream would give back a part before it fails."""
    tables = retail.base().tables
    for order in tables["orders"].values():
        methods = tables["users"][order["user_id"]]["payment_methods"]
        assert order["payment_history"]
        assert all(payment["payment_method_id"] in methods for payment in order["payment_history"])
