"""Attempts share nothing that changes: played in turns, each is as if it were alone."""

import copy
import json
import random
from typing import Any

import pytest

from interaction.call import Call
from tau_env import airline, retail, telecom

DOMAINS = pytest.mark.parametrize("domain", [telecom, retail, airline])


def sample(domain: Any) -> list[Any]:
    return list(domain.load_tasks()[:: 40 if domain is telecom else 2])


def played(domain: Any, task: Any) -> Any:
    database = domain.open(task)
    for action in task.gold:
        database.call(action.call, action.side)
    return database


@DOMAINS
def test_attempts_in_turns_are_as_if_each_were_alone(domain: Any) -> None:
    tasks = sample(domain)
    kept, begun = copy.deepcopy(tasks), [domain.open(task).digest() for task in tasks]
    documents = copy.deepcopy((domain.functions("agent"), domain.functions("user")))
    alone = [played(domain, task).digest() for task in tasks]
    together = [domain.open(task) for task in tasks]
    moves = [(index, action) for index, task in enumerate(tasks) for action in task.gold]
    random.Random(0).shuffle(order := [index for index, _ in moves])
    waiting = [list(task.gold) for task in tasks]
    for index in order:
        action = waiting[index].pop(0)
        together[index].call(action.call, action.side)
    assert [database.digest() for database in together] == alone
    assert tasks == kept and [domain.open(task).digest() for task in tasks] == begun
    assert (domain.functions("agent"), domain.functions("user")) == documents


@DOMAINS
def test_a_caller_who_changes_a_call_afterwards_changes_no_state(domain: Any) -> None:
    for task in sample(domain):
        database = domain.open(task)
        calls = [Call(each.call.name, json.loads(json.dumps(each.call.arguments))) for each in task.gold]
        for call, action in zip(calls, task.gold, strict=True):
            database.call(call, action.side)
        digest, written = database.digest(), [str(call) for _, call in database.written]
        for call in calls:
            for value in call.arguments.values():
                if isinstance(value, list | dict):
                    for item in value if isinstance(value, list) else ():
                        if isinstance(item, dict):
                            item.clear()
                    value.clear()
            call.arguments.clear()
        assert database.digest() == digest and [str(call) for _, call in database.written] == written


def test_a_vpn_that_one_episode_broke_is_whole_in_the_next_but_stays_broken_in_its_own() -> None:
    tasks = telecom.load_tasks()
    broken = telecom.open(next(task for task in tasks if "bad_vpn" in task.number))
    for name in ("disconnect_vpn", "connect_vpn"):
        broken.call(Call(name, {}), "user")
    assert "PerformanceLevel.POOR" in broken.call(Call("check_vpn_status", {}), "user").text
    whole = telecom.open(next(task for task in tasks if "bad_vpn" not in task.number))
    whole.call(Call("connect_vpn", {}), "user")
    assert "PerformanceLevel.EXCELLENT" in whole.call(Call("check_vpn_status", {}), "user").text


def test_two_states_are_equal_where_their_sorted_json_is() -> None:
    """Not the way there, but the order in lists, and 1 is not 1.0."""
    users = list(retail.base().tables["users"].values())[:1]
    address = dict(users[0]["address"])

    def moved(*changes: dict[str, str]) -> str:
        shop = retail.open(retail.load_tasks()[0])
        for change in changes:
            asked = {**address, "user_id": users[0]["user_id"], **change}
            assert shop.call(Call("modify_user_address", asked), "agent").error is None
        return shop.digest()

    assert moved({"city": "Ulm"}, {}) == moved() != moved({"city": "Ulm"})
    assert moved({"zip": "1"}, {"city": "Ulm"}) == moved({"city": "Ulm"})
