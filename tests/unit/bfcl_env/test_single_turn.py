"""BFCL's single-turn tasks: one message, how it is judged by our rule and by BFCL's, and that it can do no harm."""

import random
import time
from dataclasses import replace
from functools import reduce

import pytest
from support.single_turn import check, task_of

from bfcl_env.single_turn import java, javascript
from bfcl_env.single_turn.checker import check_calls, unmatched, unmatched_greedily
from bfcl_env.single_turn.literals import read_value
from bfcl_env.single_turn.tasks import failing_gold
from interaction import get_protocol
from interaction.call import MAX_CHARS, Call
from interaction.environment import load_tasks
from interaction.gold import play_gold, unwritable
from interaction.protocol import PROTOCOLS
from rewards import all_or_nothing, dense, outcome, progress, step
from rewards import format as format_reward

TASKS = load_tasks("bfcl_single")
REWARDS = (progress, dense, all_or_nothing, outcome, step, format_reward)
WITHOUT_GOLD = {"live_simple_106-63-0", "live_simple_112-68-0", "live_multiple_862-181-3", "live_multiple_964-207-0"}
"""Their data accepts what their functions do not take; beside them, those of live_relevance have none."""


def paid(record):
    """The share of the most that each reward pays."""
    row = {"episode": record.to_dict()}
    most = {step: 3.0, format_reward: 2.0}
    return [reward.compute_score("", "", "", row)["score"] / most.get(reward, 1.0) for reward in REWARDS]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_gold_passes_and_earns_the_most_of_every_reward_where_a_protocol_can_write_it(protocol):
    format_, cannot, without, failed, failing = get_protocol(protocol), set(), set(), [], set()
    for number, task in enumerate(TASKS.values()):
        if not [*task.gold()]:
            without.add(task.id)
        elif unwritable(task, format_) is not None:
            cannot.add(task.id)
            continue
        elif protocol != "think_xml" and number % 5:
            continue
        _, record = play_gold(task, format_)
        if task.id not in without and not (record.outcome.passed and paid(record) == [1.0] * len(REWARDS)):
            failed.append(task.id)
        if task.kind.wanted == "accepted" and not record.turns[0].facts["passed_official"]:
            failing.add(task.id)
    assert not failed
    assert {name for name in without if TASKS[name].category != "live_relevance"} == WITHOUT_GOLD
    assert cannot == ({"simple_java_62", "simple_java_63"} if protocol == "python_calls" else set())
    if protocol == "think_xml":  # BFCL's own checker fails them; they are listed, and not trained on
        assert failing == failing_gold().keys() and len(failing) == 15
        assert not [name for name in failing if TASKS[name].part == "train"]


# The checker: messages of any size are judged in a second of CPU time.


def documented(type_="string", items="string"):
    properties = {"a": {"type": type_, "items": {"type": items}}}
    return {"name": "f", "parameters": {"type": "dict", "properties": properties, "required": ["a"]}}


def judged(calls, type_="string", language="python", accepted=("km", ""), items="string"):
    document = documented(type_, items)
    answers = [{"f": {"a": list(accepted)}}] * max(1, len(calls))
    began = time.process_time()
    checked = check_calls(calls, [document], answers, language, parallel=len(calls) > 1)
    assert time.process_time() - began < 1, (str(calls)[:80], type_)
    return checked


def test_ten_megabytes_of_anything_and_bfcls_exponential_and_quadratic_patterns_take_no_time():
    size = 10_000_000
    arguments = [
        *({"a": value} for value in ("a" * size, " ," * (size // 2), [0] * (size // 2), 1 << 8 * size)),
        {"a": reduce(lambda value, _: [value], range(size // 100), 1)},
        {"a": {str(number): number for number in range(size // 20)}},
        {"a" * size: "km"},
        {str(number): "km" for number in range(size // 20)},
    ]
    messages = [[Call("f", given)] for given in arguments]
    messages += [[Call("f" * size, {"a": "km"})], [Call("f", {"a": "km"}, tuple(range(size // 10)))]]
    messages += [[Call("f", {"a": "km"})] * count for count in (5_000, 32)]
    messages += [[Call("f", {"a": "- " * (MAX_CHARS // 70) + "x"})] * 32]
    for calls in messages:
        for type_ in ("string", "array", "dict"):
            judged(calls, type_)
    few, many = ([Call("f", {"a": "km"})] * count for count in (32, 33))
    assert judged(few).passed and [mismatch.kind for mismatch in judged(many).mismatches] == ["limit"]
    judged([Call("f", {"a": "[[]" + ",[]" * 12_000})], "array", "javascript")
    for piece in ("new HashMap<", "new HashMap<>() {{ ", 'put("', 'put("",', "> ()"):
        judged([Call("f", {"a": ("new HashMap<" + piece * 48_000)[:48_000]})], "HashMap", "java")


def test_numbers_are_read_up_to_a_length_literals_up_to_a_depth_and_mismatches_are_cut():
    for digits, read in ((1_000, int), (1_001, str)):
        text = "9" * digits
        found = [java.convert(text, "integer", official=True), javascript.convert(text, "integer", official=True)]
        assert [type(one) for one in (*found, read_value(text))] == [read] * 3
        for suffix, kind in (("L", int), ("f", float)):
            (value,) = java.convert(f"new Object[]{{{text[1:]}{suffix}}}", "Array", "any", official=False)
            assert type(value) is (kind if read is int else str)
    for depth, inner in ((21, (1, 1)), (22, ("[1]", "{a: 1}"))):
        for kind, begin, end, left in (("array", "[", "]", inner[0]), ("dict", "{a: ", "}", inner[1])):
            value, levels = javascript.convert(begin * depth + "1" + end * depth, kind, official=False), 0
            while isinstance(value, list | dict):
                value, levels = next(iter(value.values() if isinstance(value, dict) else value)), levels + 1
            assert (value, levels) == (left, 21)
    for length, shown in ((198, 0), (199, 3)):
        (mismatch,) = judged([Call("f", {"a": "x" * length})]).mismatches
        assert len(mismatch.found) == 200 and mismatch.found.count(".") == shown
    for value, sign in ((10**400, 1), (-(10**400), -1)):
        assert judged([Call("f", {"a": value})], "float", accepted=[sign * float("inf")]).passed
        assert not judged([Call("f", {"a": value})], "float", accepted=[-sign * float("inf")]).passed


def test_a_matching_is_found_whenever_there_is_one():
    def possible(fits, at, free):
        return at == len(fits) or any(fits[at][call] and possible(fits, at + 1, free - {call}) for call in free)

    rng, size = random.Random(0), 32
    for number in range(300):
        fits = [[rng.random() < 0.4 for _ in range(1 + number % 6)] for _ in range(1 + number % 6)]
        lonely, left = unmatched(len(fits), lambda index, call, fits=fits: fits[index][call])
        assert (not lonely) == possible(fits, 0, frozenset(range(len(fits)))) and len(lonely) == len(left)

    def fit(index, call):
        return call == 0 if index == size - 1 else call in (index, index + 1)

    assert unmatched(size, fit) == ([], []) and unmatched_greedily(size, fit) == size - 1


def test_of_two_equal_gold_calls_each_counts_once_and_a_task_that_asks_for_one_takes_no_two():
    single = task_of("python", documented(), [{"f": {"a": ["km"]}}] * 2)
    attempt = replace(single, category="parallel").open()
    assert [attempt.call(Call("f", {"a": text})).facts["gold"] for text in ("no", "km", "km")] == [None, 1, 0]
    checked = check(single, [Call("f", {"a": "km"})] * 2)
    assert [mismatch.kind for mismatch in checked.mismatches] == ["wrong_count"], "of a task that asks for one"
    any_call = replace(single, category="live_relevance").open()
    assert [any_call.call(Call("f", {"a": "km"})).facts["gold"] for _ in range(2)] == [0, None]
