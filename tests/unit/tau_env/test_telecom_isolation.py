"""Episodes share nothing that changes: interleaved, each is as if it were alone."""

import copy
import gc
import random
import tracemalloc

from interaction.call import Call
from tau_env import telecom

TASKS = telecom.load_tasks()
VALUES = {
    "customer_id": ["C1001", "C1002", "C1003"],
    "line_id": ["L1001", "L1002", "L1003", "L1004", "L1009"],
    "bill_id": ["B1001", "B1002", "B1003", "B1005", "B1234321"],
    "id": ["C1001", "C1002", "L1002", "B1003", "D1001", "P1002"],
    "phone_number": ["555-123-2002", "555-123-2004"],
    "full_name": ["John Smith"],
    "dob": ["1985-06-15"],
    "reason": ["lost"],
    "limit": [1, 12],
    "summary": [""],
    "gb_amount": [1.0, 2.0, 0.5],
    "mode": ["2g_only", "4g_5g_preferred", "3g_only"],
    "apn_settings": [{}, {"apn_name": "broken"}, {"mmsc_url": None}, {"reset_at_reboot": True}],
    "app_name": ["messaging", "browser"],
    "permission": ["sms", "storage", "network"],
}


def random_moves(rng, count):
    moves = []
    for _ in range(count):
        side = rng.choice(["agent", "user"])
        document = rng.choice(telecom.functions(side))
        arguments = {key: rng.choice(VALUES[key]) for key in document["parameters"]["properties"]}
        moves.append((Call(document["name"], arguments), side))
    return moves


def played(task, moves):
    database = telecom.open(task)
    return [database.call(*move) for move in moves], database.digest()


def test_interleaved_episodes_are_as_if_each_were_alone():
    rng = random.Random(0)
    for _ in range(60):
        tasks = rng.choices(TASKS, k=3)
        moves = [random_moves(rng, 25) for _ in tasks]
        databases = [telecom.open(task) for task in tasks]
        results = [[] for _ in tasks]
        order = [index for index in range(3) for _ in range(25)]
        rng.shuffle(order)
        for index in order:
            results[index].append(databases[index].call(*moves[index][len(results[index])]))
        for task, own, seen, database in zip(tasks, moves, results, databases, strict=True):
            assert (seen, database.digest()) == played(task, own)


def test_playing_changes_neither_tasks_nor_what_later_episodes_begin_with():
    rng = random.Random(1)
    tasks = rng.choices(TASKS, k=20)
    kept, digests = copy.deepcopy(tasks), [telecom.open(task).digest() for task in tasks]
    documents = copy.deepcopy((telecom.functions("agent"), telecom.functions("user")))
    for task in tasks:
        played(task, [*random_moves(rng, 60), *((action.call, action.side) for action in task.gold)])
    assert tasks == kept and [telecom.open(task).digest() for task in tasks] == digests
    assert (telecom.functions("agent"), telecom.functions("user")) == documents


def test_a_caller_who_changes_a_call_afterwards_changes_no_state():
    database = telecom.open(TASKS[0])
    settings = {"apn_name": "broken"}
    call = Call("set_apn_settings", {"apn_settings": settings})
    database.call(call, "user")
    before = database.digest()
    settings["apn_name"] = "internet"
    call.arguments.clear()
    assert database.digest() == before
    assert database.written[0][1].name == "set_apn_settings" and database.written[0][1].arguments


def test_a_vpn_that_one_episode_broke_is_whole_in_the_next_but_stays_broken_in_its_own():
    broken = telecom.open(next(task for task in TASKS if "bad_vpn" in task.number))
    for name in ("disconnect_vpn", "connect_vpn"):
        broken.call(Call(name, {}), "user")
    assert "PerformanceLevel.POOR" in broken.call(Call("check_vpn_status", {}), "user").text
    whole = telecom.open(next(task for task in TASKS if "bad_vpn" not in task.number))
    whole.call(Call("connect_vpn", {}), "user")
    assert "PerformanceLevel.EXCELLENT" in whole.call(Call("check_vpn_status", {}), "user").text


def test_finished_episodes_leave_nothing_behind():
    def play(count):
        for task in TASKS[:count]:
            database = telecom.open(task)
            for action in task.gold:
                database.call(action.call, action.side)

    play(50)
    gc.collect()
    tracemalloc.start()
    play(500)
    gc.collect()
    left, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert left < 50_000
