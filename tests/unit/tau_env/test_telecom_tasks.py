"""All 2,285 tasks: gold earns the maximum and is clean; what a task does not need is seen; documents are complete."""

from collections import Counter

import pytest

from interaction.call import Call
from tau_env import telecom
from tau_env.domain import Domain
from tau_env.telecom.needs import FIXES
from tau_env.verdict import judge

TASKS = telecom.load_tasks()
DOMAIN: Domain = telecom


def played(task, moves):
    database = telecom.open(task)
    for side, call in moves:
        database.call(call, side)
    return database


def gold(task):
    return [(action.side, action.call) for action in task.gold]


def test_the_tasks_are_those_of_the_release():
    assert Counter(task.category for task in TASKS) == {
        "telecom_mms": 1984,
        "telecom_mobile": 254,
        "telecom_service": 47,
    }
    assert len({task.number for task in TASKS}) == 2285
    assert Counter(task.basis for task in TASKS) == {("ENV_ASSERTION",): 2253, ("ENV_ASSERTION", "ACTION"): 32}
    assert len({id(task.story) for task in TASKS}) == 15 and len({task.ticket for task in TASKS}) == 5
    assert all(task.ticket and task.story.reason and task.setup and task.gold for task in TASKS)
    assert telecom.load_tasks() is TASKS


def test_gold_earns_the_maximum_without_an_error_and_nothing_earns_nothing():
    for task in TASKS:
        database = telecom.open(task)
        assert not any(judge(DOMAIN, task, database, (), ()).values()) or "ACTION" in task.basis
        assert 0.0 in judge(DOMAIN, task, database, (), ()).values()
        assert all(database.call(call, side).error is None for side, call in gold(task))
        assert set(judge(DOMAIN, task, database, gold(task), ()).values()) == {1.0}


def test_gold_is_clean_and_each_fault_has_its_fixes_in_every_gold_that_solves_it():
    for task in TASKS:
        database = played(task, gold(task))
        assert telecom.needless(task, database.written) == ()
        wanted = Counter((side, str(call)) for side, call in telecom.needed(task))
        made = Counter((side, str(call)) for side, call in gold(task) if call.name in telecom.WRITES)
        assert made == wanted or (not made and "ACTION" in task.basis)


def test_the_fix_of_a_fault_that_the_task_does_not_have_is_needless():
    for task in TASKS[::23]:
        needed = [str(call) for _, call in telecom.needed(task)]
        for fixes in FIXES.values():
            for side, call in fixes:
                expected = () if str(call) in needed else ((side, call),)
                assert telecom.needless(task, [(side, call)]) == expected


def task_with(fault):
    return next(task for task in TASKS if telecom.faults(task) == (fault,))


def test_what_is_done_and_undone_is_needless_from_the_second_time():
    task = task_with("data_mode_off")
    toggle = ("user", Call("toggle_data", {}))
    for times in range(1, 5):
        database = played(task, [toggle] * times)
        assert len(database.written) == times
        assert telecom.needless(task, database.written) == (toggle,) * (times - 1)


def test_a_write_without_effect_is_neither_noted_nor_needless():
    task = task_with("airplane_mode_on")
    database = played(
        task, [("user", Call(name, {})) for name in ("reboot_device", "reseat_sim_card", "disconnect_vpn")]
    )
    assert database.written == []


@pytest.mark.parametrize(
    ("amounts", "needless"),
    [((2.0,), 0), ((2,), 0), ((1.0, 1.0), 0), ((0.5,), 0), ((2.0, 0.5), 1), ((3.0,), 1), ((1.5, 1.0, 0.5), 1)],
)
def test_data_may_be_refuelled_up_to_the_amount_of_the_assertion(amounts, needless):
    task = task_with("data_usage_exceeded")
    line = {"customer_id": "C1001", "line_id": "L1002"}
    database = played(task, [("agent", Call("refuel_data", {**line, "gb_amount": amount})) for amount in amounts])
    assert len(telecom.needless(task, database.written)) == needless
    elsewhere = played(task, [("agent", Call("refuel_data", {**line, "line_id": "L1001", "gb_amount": 1.0}))])
    assert len(telecom.needless(task, elsewhere.written)) == 1


def test_a_permission_counts_however_it_is_spelled():
    task = task_with("break_app_sms_permission")
    database = played(task, [("user", Call("grant_app_permission", {"app_name": "messaging", "permission": "SMS"}))])
    assert len(database.written) == 1 and telecom.needless(task, database.written) == ()


def test_a_task_that_cannot_be_solved_is_passed_by_a_transfer_of_any_wording_alone():
    task = task_with("lock_sim_card_pin")
    transfer = Call("transfer_to_human_agents", {"summary": "?"})
    result = telecom.open(task).call(transfer, "agent")
    assert (result.text, result.error) == ("Transfer successful", None)
    assert judge(DOMAIN, task, telecom.open(task), [("agent", transfer)], ()) == {"env_assertion": 1.0, "action": 1.0}
    assert judge(DOMAIN, task, telecom.open(task), (), ()) == {"env_assertion": 1.0, "action": 0.0}
    assert telecom.needed(task) == ()


def test_policies_are_upstreams_own():
    assert telecom.policy("none", solo=True) == telecom.policy("none", solo=False) == ""
    texts = {(kind, solo): telecom.policy(kind, solo) for kind in ("full", "workflow") for solo in (True, False)}
    assert len(set(texts.values())) == 4
    for text in texts.values():
        assert text.startswith("<main_policy>\n# Telecom Agent Policy")
        assert text.endswith("\n</tech_support_policy>") and "\n</main_policy>\n<tech_support_policy>\n" in text


def test_documents_are_complete():
    assert [len(telecom.functions(side)) for side in ("agent", "user")] == [13, 30]
    for document in (*telecom.functions("agent"), *telecom.functions("user"), telecom.DONE):
        assert set(document) == {"name", "description", "parameters"} and document["description"]
        parameters = document["parameters"]
        assert parameters["type"] == "object" and set(parameters["required"]) <= set(parameters["properties"])
        assert all(each["description"] for each in parameters["properties"].values())
