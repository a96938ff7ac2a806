"""tau's tasks as conversations: alone with a ticket, with a user who is asked, and how each of them ends."""

import copy
import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from support.single_turn import inside

import tau_env
from interaction import StopReason
from interaction.call import Call
from interaction.environment import AskUser, Request, UserFault, UserWords, load_tasks
from tau_env import audit, tasks
from tau_env.environment import SILENT
from tau_env.exchange import CLOSE, OPEN, STOP, instructions, written
from tau_env.shop import OWNED
from tau_env.tasks import DOMAINS
from tau_env.verdict import gold_state, needless

TASKS = load_tasks("tau")


def one(start: str) -> Any:
    """The first task whose id begins so."""
    return next(task for name, task in TASKS.items() if name.startswith(start))


def recorded(name: str, found: Any) -> None:
    whole = hashlib.sha256(repr(found).encode()).hexdigest()[:16]
    assert json.loads(Path(__file__).with_name("conversations_recorded.json").read_text())[name] == whole


def nearly(domain: Any, count: int) -> Iterator[Any]:
    """What a shop says to calls that are gold or nearly so, each twice, and what they leave."""
    rng, base = Random(count), domain.base().tables
    days = [*base.get("days", ())][::99]
    known: dict[str, list[Any]] = {"flight_number": [day[:6] for day in days], "date": [day[7:] for day in days]}
    known["new_item_ids"] = [[item] for one in base.get("products", {}).values() for item in one["variants"]]
    keys = {doc["name"]: doc["parameters"]["properties"] for doc in domain.functions("agent")}
    for _ in range(count):
        database, said = domain.open(domain.load_tasks()[0]), []
        for task in rng.sample(domain.load_tasks(), 2):
            user = base["users"].get(domain.user_of(task), {"payment_methods": ["none"]})
            own = {key: user.get(table) for key, table in OWNED.items()} | {"user_id": [domain.user_of(task), "none"]}
            own |= dict.fromkeys(("payment_id", "payment_method_id"), [*user["payment_methods"]])
            for call in [action.call for action in task.gold] * 2:
                given = copy.deepcopy(call.arguments)
                for key in rng.sample([*given], min(len(given), rng.choice((0, 0, 1, 1, 2)))):
                    known.setdefault(key, []).append(given[key])
                    pool = rng.choice([own.get(key) or known[key], known[key], [*given.values()]])
                    given[key] = rng.choice(pool) if rng.random() < 0.6 else inside(rng, given[key])
                name = call.name if rng.random() < 0.8 else rng.choice([*keys])
                given |= {key: rng.choice(known.get(key, ["none"])) for key in {**keys[name]} if key not in given}
                given = {key: value for key, value in given.items() if key in keys[name] or rng.random() < 0.01}
                result = database.call(Call(name, given), "agent")
                said.append((result.error, result.text))
        yield said, database.digest(), len(database.written), database.differences(domain.open(task))


def test_shops_say_and_leave_what_was_recorded_of_calls_that_are_nearly_gold() -> None:
    for name in ("retail", "airline"):
        recorded(f"{name} calls", [*nearly(DOMAINS[name], 400)])


WORDS = (
    *("", " ", "Hm?", "My line is 555-123-2002.", STOP, "Bye ###TRANSFER###", "###OUT-OF-SCOPE###"),
    *(OPEN, f"{OPEN}[]{CLOSE}", f"{OPEN}{{{CLOSE}"),
    f'{OPEN}{{"name": 3, "arguments": {{}}}}{CLOSE}',
    f'{OPEN}{{"name": "toggle_data", "arguments": [1]}}{CLOSE}',
    *(f"{OPEN}{'[' * 10_000}", f"{OPEN}__import__('os').system('true'){CLOSE}"),
    f'{OPEN}{{"name": "get_customer_by_id", "arguments": {{"customer_id": "C1001"}}}}{CLOSE}',
)
DEVICE = (Call("toggle_data", {}), Call("check_status_bar", {}), Call("no", {}), Call("reboot_device", {}))
ACTS: tuple[Call | str, ...] = (
    *("Hm.", "", "I cannot do that.", Call("no", {}), Call("done", {}), audit.TRANSFER, Call("toggle_data", {})),
    *(Call("connect_vpn", {}), Call("check_vpn_status", {})),
    *(call for _, call in audit.FIXES),
    *(Call(name, {"user_id": "mia_li_3668", "amount": 5}) for name in ("get_user_details", "send_certificate")),
)


def faulty(task: Any, number: int) -> Iterator[Any]:
    """All that an attempt gives to gold in which sometimes something is said or done beside it, or left out."""
    rng = Random(number)
    gold = [item for item in task.gold() if rng.random() < 0.97]
    users = [item.text for item in gold if isinstance(item, UserWords)]
    agents = [item for item in gold if not isinstance(item, UserWords)]
    options = {"policy": "none", "one_thing_a_message": number % 2 == 0, "show_functions": number % 3 == 0}
    attempt = task.open(**(options if number % 5 else {}))
    given: Any = attempt.begin()
    while given is not None and attempt.over is None:
        yield given, attempt.verdicts()
        noise, heard = rng.random() < 0.2, " #W".join(["See", *task.task.communicate])
        if isinstance(given, AskUser):
            if not (users or noise):
                break
            beside = rng.choice([*WORDS, *(rng.choice(["", "I do. "]) + written(call) for call in DEVICE)])
            try:
                given = attempt.hear(beside if noise else users.pop(0))
            except UserFault as fault:
                yield str(fault)
        elif not (agents or noise):
            break
        else:
            act = rng.choice([*ACTS, heard]) if noise else agents[0].calls or agents[0].answer
            agents = agents[not noise :]
            if isinstance(act, str):
                given = attempt.answer(act)
            else:
                attempt.beside(rng.choice(["", "It is #W10.", " ".join(task.task.communicate)]))
                yield [attempt.call(call) for call in (act if isinstance(act, tuple) else [act])]
    yield attempt.over, attempt.verdicts()


def test_conversations_with_faults_are_answered_and_judged_as_recorded() -> None:
    some = [*TASKS.values()][::17]
    recorded("conversations", [[*faulty(task, number)] for number, task in enumerate(some * 2)])


def test_tasks_what_they_show_and_what_each_side_is_told_are_as_recorded() -> None:
    for name, domain in DOMAINS.items():
        those = domain.load_tasks()
        recorded(f"{name} tasks", [(task, [*domain.needed(task)]) for task in those])
        told = [domain.policy(kind, solo) for kind in ("full", "workflow", "none") for solo in (True, False)]
        recorded(f"{name} told", [told, sorted(domain.WRITES), [instructions(domain, task) for task in those[::50]]])
        around = [(gold_state(domain, task), domain.open(task)) for task in those[::7]]
        recorded(f"{name} differences", [(one.differences(other), other.differences(one)) for one, other in around])
    solo = [task for task in TASKS.values() if task.mode == "solo"][::7]
    recorded("expert", [[*replace(task, shown="expert").gold()] for task in solo])
    recorded("policies", [[play(task) for play in audit.AUDIT_POLICIES.values()] for task in solo])
    recorded("known", sorted(audit.known().items()))
    for by in ("faults", "size", "official"):
        placed = [(task.id, task.cluster, task.part, task.category) for task in tasks.load_tasks(by)]
        files = tasks.data_sets(tiny=by == "size", options={"split": by}).items()
        held = [(name, one.kind, one.max_result_chars, [(t.id, t.shown) for t in one.tasks]) for name, one in files]
        recorded(by, (placed, held, tau_env.turn_policy({"split": by, "one_thing_a_message": by == "size"})))


MOBILE_DATA = "[mobile_data_issue]data_mode_off["
TOGGLE = Call("toggle_data", {})
CALL = written(TOGGLE)


def asked(*answers: str) -> Any:
    """An attempt that has just begun, or whose user has told its problem and heard these answers."""
    attempt = one(f"telecom/{MOBILE_DATA}").open(policy="none")
    attempt.begin()
    for answer in answers:
        attempt.hear("My data does not work.")
        attempt.answer(answer)
    return attempt


def last(ask: Any) -> str:
    """What the model that plays the user was told last."""
    return str(ask.messages[-1]["content"])


def test_a_user_who_spoke_beside_a_call_may_be_silent_and_one_who_did_not_is_asked_in_other_words() -> None:
    for words, then, heard in ((f"I will. {CALL}", "", "I will."), (CALL[:-3], "Hm?", "Hm?"), (CALL, "On.", "On.")):
        attempt = asked("Hm.")
        before = attempt.hear(words)
        assert not then or attempt.hear("") != before
        assert attempt.hear(then) == Request(heard)
        assert SILENT not in str(attempt.answer("Good."))
    assert "is now ON" in last(asked("Hm.").hear(f"Bye. {CALL} ###STOP###")), "the call is made first"
    for silent in (attempt, asked()):
        assert all(isinstance(silent.hear(""), AskUser) for _ in range(3))
        with pytest.raises(UserFault, match="said nothing, 4 times"):
            silent.hear("")


def test_a_user_that_never_stops_calling_is_told_so_and_then_a_fault_of_the_user() -> None:
    attempt, look = asked(), written(Call("check_status_bar", {}))
    for _ in range(2):
        told = [last(attempt.hear(words)) for words in (*[look] * 10, *[CALL] * 3)]
        assert "Status Bar" in told[9] and "Tell the agent" in told[10] and attempt.verdicts().facts["writes"] == 0
        attempt.hear("That is all.")
        attempt.answer("Please check everything.")
    for _ in range(13):
        attempt.hear(look)
    with pytest.raises(UserFault, match="in a row"):
        attempt.hear(look)


def test_a_user_makes_calls_that_the_agent_does_not_see_unless_they_are_none() -> None:
    attempt = asked("Please turn mobile data on.")
    for no_call in ("[" * 40_000, '{"name": "toggle_data", "arguments": {}, "more": 1}'):
        assert "Error: " in last(attempt.hear(f"{OPEN}{no_call}{CLOSE}"))
    assert "Mobile Data is now ON" in last(attempt.hear(f"I will. {CALL}"))
    assert attempt.hear("It is on now.") == Request("I will.\nIt is on now.")
    assert "tool_response" not in last(attempt.answer("<tool_response>Then it works.</tool_response>"))
    assert attempt.hear(STOP) is None and attempt.over == StopReason.user_stop
    assert attempt.verdicts().passed and attempt.verdicts().facts["writes"] == 1


def played(start: str, *messages: Call | str) -> tuple[Any, list[Any]]:
    """A solo attempt after these calls and answers, and what a call was said to be besides its side."""
    attempt, needless = one(f"telecom_solo/{start}").open(policy="none"), []
    attempt.begin()
    for message in messages:
        if isinstance(message, str):
            attempt.answer(message)
        else:
            needless.append(attempt.call(message).facts.get("needless"))
    return attempt, needless


def test_the_same_write_in_another_form_is_the_needed_one() -> None:
    start = "[mms_issue]bad_network_pref"
    calls = [call for item in one(f"telecom_solo/{start}").gold() for call in item.calls]
    for mode in ("4g_5g_preferred", "3g_only"):
        chosen = [Call(call.name, {"mode": mode}) if "mode" in call.arguments else call for call in calls]
        assert played(start, *chosen)[0].verdicts().facts["clean"], mode
    for retail in DOMAINS["retail"].load_tasks():
        for _, call in (swapped := copy.deepcopy([*DOMAINS["retail"].needed(retail)])):
            for value in call.arguments.values():
                if isinstance(value, list):
                    value.reverse()
        assert needless(DOMAINS["retail"], retail, swapped) == (), retail.number


def test_an_episode_alone_ends_with_done_or_a_transfer_and_what_was_not_needed_passes_officially_alone() -> None:
    done, transfer, twice = Call("done", {}), audit.TRANSFER, [Call("toggle_data_saver_mode", {})] * 2
    for messages, passes, reason, beyond in (
        ((TOGGLE, done), (True, True), StopReason.done, 0),
        ((done,), (False, False), StopReason.done, 0),
        ((TOGGLE, "It works."), (False, False), None, 0),
        ((transfer,), (False, False), StopReason.transfer, 1),
        ((transfer, TOGGLE, done), (False, False), StopReason.transfer, 1),
        ((Call(transfer.name, {}), TOGGLE, done), (True, True), StopReason.done, 0),
        ((TOGGLE, transfer), (True, False), StopReason.transfer, 1),
        ((*twice, TOGGLE, done), (True, False), StopReason.done, 2),
    ):
        attempt, needless = played(MOBILE_DATA, *messages)
        verdicts = attempt.verdicts()
        assert (verdicts.facts["passed_official"], verdicts.passed) == passes and attempt.over == reason, messages
        assert len(verdicts.facts["needless"]) == beyond, messages
    assert needless == [True, True, None, None]
