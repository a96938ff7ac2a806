"""Tasks of all domains: gold earns the maximum and is clean, and what a task does not need is seen."""

import json
from collections import Counter
from types import ModuleType
from typing import Any

import pytest

from interaction.call import Call
from tau_env import airline, clean, retail, telecom
from tau_env.domain import Task
from tau_env.telecom.needs import FIXES
from tau_env.verdict import judge

SHOPS = (retail, airline)
IDLE = {
    "retail": "10 12 25 50 57 65 105",
    "airline": "0 1 4 5 6 10 13 26 28 31 34 36 41 43 45 46 47 48 49",
}


def played(domain: Any, task: Task, moves: Any) -> Any:
    database = domain.open(task)
    for side, call in moves:
        database.call(call, side)
    return database


def gold(task: Task) -> list[Any]:
    return [(action.side, action.call) for action in task.gold]


def with_fault(fault: str) -> Task:
    return next(task for task in telecom.load_tasks() if telecom.faults(task) == (fault,))


def test_the_tasks_are_those_of_the_release() -> None:
    tasks = telecom.load_tasks()
    assert telecom.load_tasks() is tasks and len({task.number for task in tasks}) == 2285
    assert Counter(task.category for task in tasks) == {
        "telecom_mms": 1984,
        "telecom_mobile": 254,
        "telecom_service": 47,
    }
    assert Counter(task.basis for task in tasks) == {("ENV_ASSERTION",): 2253, ("ENV_ASSERTION", "ACTION"): 32}
    assert all(task.ticket and task.story.reason and task.setup and task.gold for task in tasks)
    for domain, count in ((retail, 114), (airline, 50)):
        tasks = domain.load_tasks()
        assert domain.load_tasks() is tasks
        assert [task.number for task in tasks] == [str(number) for number in range(count)]
        assert {task.basis for task in tasks} == {("DB", "COMMUNICATE")}
        assert not any(task.setup or task.assertions or task.ticket for task in tasks)
        assert all(task.story.reason and task.story.instructions for task in tasks)


def test_gold_of_telecom_earns_the_maximum_and_is_clean_and_nothing_earns_nothing() -> None:
    failed = []
    for task in telecom.load_tasks():
        idle = judge(telecom, task, telecom.open(task), (), ())
        database = telecom.open(task)
        errors = [result.error for side, call in gold(task) if (result := database.call(call, side)).error]
        wanted = Counter((side, str(call)) for side, call in telecom.needed(task))
        made = Counter((side, str(call)) for side, call in gold(task) if call.name in telecom.WRITES)
        earned = set(judge(telecom, task, database, gold(task), ()).values()) == {1.0}
        clean = telecom.needless(task, database.written) == ()
        # Where nothing can be repaired, gold transfers.
        solved = made == wanted or (not made and "ACTION" in task.basis)
        if errors or 0.0 not in idle.values() or not (earned and clean and solved):
            failed.append((task.number, errors, idle, earned, clean, solved))
    assert not failed


@pytest.mark.parametrize("domain", SHOPS)
def test_gold_of_the_shops_writes_what_is_needed_and_less_leaves_another_state(domain: Any) -> None:
    failed = []
    for task in domain.load_tasks():
        attempt, needed = played(domain, task, gold(task)), list(domain.needed(task))
        found = all(write in needed for write in attempt.written) and bool(attempt.written) == bool(attempt.changed())
        found &= attempt.differences(played(domain, task, gold(task))) == ()
        if attempt.written:
            last = max(number for number, (_, call) in enumerate(gold(task)) if call == attempt.written[-1][1])
            less = played(domain, task, [move for number, move in enumerate(gold(task)) if number != last])
            found &= less.digest() != attempt.digest() and bool(less.differences(attempt))
        digest = attempt.digest()
        reads = [action.call for action in task.gold if action.call.name not in domain.WRITES]
        texts = [[attempt.call(call, "agent").text for call in reads] for _ in range(2)]
        if not found or texts[0] != texts[1] or attempt.digest() != digest:
            failed.append(task.number)
    assert not failed
    assert " ".join(task.number for task in domain.load_tasks() if domain.idle(task)) == IDLE[domain.NAME]


def test_a_write_that_is_needed_once_is_needless_the_second_time() -> None:
    for domain in (retail, airline):
        task, writes = next((task, found) for task in domain.load_tasks() if (found := [*domain.needed(task)]))
        assert clean.needless(domain, task, writes) == ()  # type: ignore[arg-type]
        assert clean.needless(domain, task, [*writes, writes[0]]) == (writes[0],)  # type: ignore[arg-type]


@pytest.mark.parametrize("domain", SHOPS)
def test_tasks_that_write_to_one_record_serve_one_user(domain: Any) -> None:
    owners: dict[tuple[str, str], set[str]] = {}
    for task in domain.load_tasks():
        for place in played(domain, task, gold(task)).changed():
            if place[0] != "days" and not place[1].startswith("HAT"):
                owners.setdefault(place, set()).add(domain.user_of(task))
    assert all(len(users) == 1 for users in owners.values())
    assert len({domain.user_of(task) for task in domain.load_tasks()}) == {"retail": 53, "airline": 34}[domain.NAME]


def test_the_fix_of_a_fault_that_the_task_does_not_have_is_needless() -> None:
    for task in telecom.load_tasks()[::23]:
        needed = [str(call) for _, call in telecom.needed(task)]
        for side, call in [fix for fixes in FIXES.values() for fix in fixes]:
            expected = () if str(call) in needed else ((side, call),)
            assert telecom.needless(task, [(side, call)]) == expected, (task.number, call)


def test_what_is_done_and_undone_is_needless_from_the_second_time() -> None:
    task, toggle = with_fault("data_mode_off"), ("user", Call("toggle_data", {}))
    for times in range(1, 5):
        database = played(telecom, task, [toggle] * times)
        assert len(database.written) == times
        assert telecom.needless(task, database.written) == (toggle,) * (times - 1)
    idle = [("user", Call(name, {})) for name in ("reboot_device", "reseat_sim_card", "disconnect_vpn")]
    assert played(telecom, with_fault("airplane_mode_on"), idle).written == []


def test_data_may_be_refuelled_up_to_the_amount_of_the_assertion() -> None:
    task, line = with_fault("data_usage_exceeded"), {"customer_id": "C1001", "line_id": "L1002"}
    for amounts, needless in {
        (2.0,): 0,
        (1.0, 1.0): 0,
        (0.5,): 0,
        (2.0, 0.5): 1,
        (3.0,): 1,
        (1.5, 1.0, 0.5): 1,
    }.items():
        moves = [("agent", Call("refuel_data", {**line, "gb_amount": amount})) for amount in amounts]
        assert len(telecom.needless(task, played(telecom, task, moves).written)) == needless, amounts
    elsewhere = [("agent", Call("refuel_data", {**line, "line_id": "L1001", "gb_amount": 1.0}))]
    assert len(telecom.needless(task, played(telecom, task, elsewhere).written)) == 1


def test_a_task_that_cannot_be_solved_is_passed_by_a_transfer_of_any_wording_alone() -> None:
    task, transfer = with_fault("lock_sim_card_pin"), Call("transfer_to_human_agents", {"summary": "?"})
    assert telecom.open(task).call(transfer, "agent").text == "Transfer successful"
    for moves, action in (([("agent", transfer)], 1.0), ([], 0.0)):
        assert judge(telecom, task, telecom.open(task), moves, ()) == {"env_assertion": 1.0, "action": action}
    assert telecom.needed(task) == ()


@pytest.mark.parametrize("domain", [telecom, *SHOPS])
def test_documents_are_plain_json_and_name_every_write(domain: ModuleType) -> None:
    docs = [*domain.functions("agent"), *domain.functions("user")]
    assert json.loads(json.dumps(docs)) == docs
    assert len({doc["name"] for doc in docs}) == len(docs)
    assert {doc["name"] for doc in docs} > domain.WRITES
    for doc in docs:
        assert set(doc) == {"name", "description", "parameters"} and doc["description"]
        assert set(doc["parameters"]["required"]) <= set(doc["parameters"]["properties"])
