"""Tasks of all domains: plays say and leave what upstream's do, gold earns the maximum and is clean, and what a task
does not need is seen. Of the verdict also what had to be said, and which action was asked for.

`telecom_recorded.jsonl` has the answers of inspect-evals, with times and numbers as tau2-bench writes them.
`shops_recorded.jsonl` has ours, of code that agreed with inspect-evals in 10,000 calls a domain; long texts are hashes.
GOLD has hashes of what inspect-evals says and leaves when gold is played.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from interaction.call import Call
from interaction.outcome import ErrorKind
from tau_env import telecom, verdict
from tau_env.domain import Action, Assertion, Story, Task
from tau_env.tasks import DOMAINS
from tau_env.telecom.needs import FIXES
from tau_env.telecom.phone import Phone, Surroundings, Vpn
from tau_env.verdict import is_heard, judge

SHOPS: list[Any] = [DOMAINS["retail"], DOMAINS["airline"]]
GOLD = {"retail": "da5c35918de49e78", "airline": "86d28dc2c3fa1b3a"}
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


def played(domain: Any, task: Task, moves: Any) -> Any:
    database = domain.open(task)
    for side, call in moves:
        database.call(call, side)
    return database


def gold(task: Task) -> list[Any]:
    return [(action.side, action.call) for action in task.gold]


def with_fault(fault: str) -> Task:
    return next(task for task in telecom.load_tasks() if telecom.faults(task) == (fault,))


def test_telecom_says_leaves_and_pays_what_upstream_does() -> None:
    tasks, failed = {task.number: task for task in telecom.load_tasks()}, []
    for play in recorded("telecom"):
        task = tasks[play["task"]]
        database = telecom.open(task)
        calls = [(side, Call(name, arguments)) for side, name, arguments in play["calls"]]
        for (side, call), (kind, text) in zip(calls, play["results"], strict=True):
            result = database.call(call, side)
            if result.error not in ERRORS[kind] or (kind != "exception" and result.text != text):
                failed.append((play["task"], call, result, text))
        score = math.prod(judge(telecom, task, database, calls, ()).values())
        if (database.digest(), score) != (play["state"], play["score"]):
            failed.append((play["task"], "state or score"))
    assert not failed


def test_retail_and_airline_say_and_leave_what_was_recorded() -> None:
    failed: list[Any] = []
    for number, play in enumerate(recorded("shops")):
        domain: Any = DOMAINS[play["domain"]]
        attempt = domain.open(domain.load_tasks()[0])
        for (name, arguments), (kind, text) in zip(play["calls"], play["results"], strict=True):
            result = attempt.call(Call(name, arguments), "agent")
            if result.error != kind or text not in (result.text, hashed(result.text)):
                failed.append((number, name, arguments, result, kind, text))
        if (attempt.digest(), len(attempt.written)) != (play["digest"], play["written"]):
            failed.append((number, "state"))
    assert not failed


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


def test_gold_of_the_shops_says_and_leaves_what_upstreams_does_which_is_needed_once() -> None:
    for domain in SHOPS:
        tasks = []
        for task in domain.load_tasks():
            attempt, needed = domain.open(task), list(domain.needed(task))
            texts = [attempt.call(call, side).text for side, call in gold(task)]
            changed = {"/".join(place): text for place, text in attempt.changed().items()}
            tasks.append(hashed("".join(hashed(json.dumps(part, sort_keys=True)) for part in (texts, changed))))
            assert all(write in needed for write in attempt.written)
            assert verdict.needless(domain, task, [*needed, *needed[:1]]) == tuple(needed[:1]), task.number
            assert attempt.differences(played(domain, task, gold(task))) == (), task.number
        assert hashed("".join(tasks)) == GOLD[domain.NAME]


def test_data_may_be_refuelled_up_to_the_amount_of_the_assertion() -> None:
    task, line = with_fault("data_usage_exceeded"), {"customer_id": "C1001", "line_id": "L1002"}
    cases: dict[tuple[float, ...], int] = {(2.0,): 0, (1.0, 1.0): 0, (1.1, 0.9): 0, (2.0, 0.5): 1, (3.0,): 1}
    for amounts, needless in cases.items():
        moves = [("agent", Call("refuel_data", {**line, "gb_amount": amount})) for amount in amounts]
        assert len(telecom.needless(task, played(telecom, task, moves).written)) == needless, amounts
    for amount in (2, 2.0):  # in the model's own form, as tau2-bench writes it
        said = telecom.open(task).call(Call("refuel_data", {**line, "gb_amount": amount}), "agent").text
        assert f"added {amount} GB" in said, said
    elsewhere = [("agent", Call("refuel_data", {**line, "line_id": "L1001", "gb_amount": 1.0}))]
    assert len(telecom.needless(task, played(telecom, task, elsewhere).written)) == 1


def test_a_speed_is_asked_for_by_its_number_and_by_its_name() -> None:
    task, toggle = with_fault("data_mode_off"), ("user", Call("toggle_data", {}))
    for moves, speed, name, holds in (
        *(([toggle], 200, {}, True), ([toggle], 200, {"expected_desc": "EXCELLENT"}, True)),
        *(([toggle], 200, {"expected_desc": "good"}, False), ([], 0.5, {}, False), ([], 0, {}, True)),
    ):
        asked = Assertion("user", "assert_internet_speed", {"expected_speed": speed, **name}, True)
        state = played(telecom, task, moves)
        found = state.holds(asked), state.holds(replace(asked, expected=False))
        assert found == (holds, not holds), (moves, speed, name)


SPEEDS = {
    **{("2G", "excellent"): (0.25, "Very Poor"), ("3G", "excellent"): (3.0, "Poor"), ("3G", "fair"): (1.5, "Poor")},
    **{("4G", "poor"): (11.0, "Fair"), ("4G", "good"): (44.0, "Good"), ("5G", "fair"): (137.5, "Excellent")},
    **{("5G", "excellent", "saver"): (55.0, "Good"), ("5G", "excellent", "poor"): (27.5, "Good")},
    **{("5G", "excellent", "saver", "poor"): (5.5, "Fair"), ("5G", "excellent", "excellent"): (275.0, "Excellent")},
    **{("none", "excellent"): (0.0, "Very Poor"), ("5G", "none"): None},
}
"""Of network and signal, with data saver and with such a VPN, by upstream's formula."""


def test_speeds_are_those_of_network_signal_and_settings() -> None:
    for (network, signal, *more), speed in SPEEDS.items():
        vpn = next((Vpn(server_performance=word) for word in more if word != "saver"), None)
        how = {"network_technology_connected": network, "network_signal_strength": signal, "vpn_details": vpn}
        phone = Phone(**how, data_saver_mode="saver" in more, vpn_connected=vpn is not None)
        assert phone.speed(Surroundings()) == speed, (network, signal, more)


def test_what_a_task_does_not_need_is_needless_and_so_is_what_is_done_twice() -> None:
    for task in telecom.load_tasks()[::23]:
        needed = [str(call) for _, call in telecom.needed(task)]
        for side, call in [fix for fixes in FIXES.values() for fix in fixes]:
            expected = () if str(call) in needed else ((side, call),)
            assert telecom.needless(task, [(side, call)]) == expected, (task.number, call)
    task, toggle = with_fault("data_mode_off"), ("user", Call("toggle_data", {}))
    for times in range(1, 5):
        database = played(telecom, task, [toggle] * times)
        assert len(database.written) == times
        assert telecom.needless(task, database.written) == (toggle,) * (times - 1)
    idle = [("user", Call(name, {})) for name in ("reboot_device", "reseat_sim_card", "disconnect_vpn")]
    assert played(telecom, with_fault("airplane_mode_on"), idle).written == []


WANTED = {"n": 2, "why": "a"}


def judged(part: str, calls: Any = (), said: Any = (), compare: Any = None, communicate: Any = ()) -> float:
    gold, nothing = (Action("agent", Call("add", WANTED), compare),), cast(Any, None)
    task = Task("sums", "1", "x", Story(""), (), gold, (), communicate, (part,))
    (score,) = judge(nothing, task, nothing, calls, said).values()
    return score


def test_what_had_to_be_said_is_looked_for_in_single_messages() -> None:
    for wanted, said, found in (
        (("1200",), ("You owe 1,200 dollars",), 1.0),
        (("1,200",), ("You owe 1,200 dollars",), 0.0),
        (("Gate B",), ("it is GATE b",), 1.0),
        (("one", "two"), ("one",), 0.0),
        (("one two",), ("one ", "two"), 0.0),
        ((), (), 1.0),
    ):
        assert judged("COMMUNICATE", said=said, communicate=wanted) == found, (wanted, said)


HEARD = {
    "10": "There are 10.|**10** options|(10)|$10/night|10, 5|total:10.00|+10|_10_|#10|10-|10..|USD10|10USD|10$|$+10",
    **{"0.5": ".5|0.50|+.5|$0.500 USD", "1000": "1,000|1000.0|1,000.00", "-5": "\u20135|--5", "a,b": "ab|A,B"},
    **{"1234.5": "$1,234.50|USD 1234.5|1,234.50\u20ac", "$1,200": "1200 dollars", "-10": "-$10.00|\u221210"},
    **{"IL": "Chicago, IL 60621", "20 hours": "Up to 20 hours."},
}
NOT_HEARD = {
    "10": "#W4104000|10.5|1,010|-10|$-10|10%|10th|T10|2024-05-10|10:30|5-10|v2.10|010|ten|-+10|10/2|1/10|10,000",
    **{"0.5": "5|-.5|1.05|0.5.1|00.5", "1000": "1,000,0", "-5": "5|+5"},
    **{"1234.5": "1234.55|11,234.50|1234", "IL": "You will pay|ILx|_IL", "20 hours": "120 hours"},
}


def test_a_user_has_heard_a_number_or_words_that_stand_for_themselves() -> None:
    for table, heard in ((HEARD, True), (NOT_HEARD, False)):
        found = [(text, said) for text, all_said in table.items() for said in all_said.split("|")]
        assert [(text, said) for text, said in found if is_heard(text, [said]) is not heard] == []


def test_an_action_is_found_by_the_arguments_that_count() -> None:
    for compare, arguments, matches in (
        (None, WANTED, True),
        (None, {"n": 2}, False),
        (("n",), {"n": 2, "why": "b"}, True),
        (("n",), {"n": 3, "why": "a"}, False),
        ((), {"n": 9}, True),
    ):
        calls = [("agent", Call("other", WANTED)), ("agent", Call("add", arguments))]
        assert judged("ACTION", calls, compare=compare) == matches, (compare, arguments)
        assert judged("ACTION", calls[:1], compare=compare) == 0.0
