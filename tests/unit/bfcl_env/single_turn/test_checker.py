"""The single-turn checker beside BFCL's own: every accepted value, faulty messages, and what a mismatch says."""

import json
import random
from collections import Counter, defaultdict
from functools import cache
from importlib.resources import files

import pytest
from support.single_turn import CATEGORIES, Task, gold, official, tasks
from support.single_turn_mutants import FAULTS, mutants

from bfcl_env.single_turn.checker import MAX_SHOWN, Checked, check_calls, check_relevance
from interaction.call import Call

MUTANTS = 4_000
SEED = 20260323


def check(task: Task, calls) -> Checked:
    return check_calls(calls, task.functions, task.accepted, task.language, parallel=task.parallel)


@cache
def checked_gold(category):
    """Every message of accepted values, and what the checker says."""
    return [(task, calls, check(task, calls)) for task in tasks(category) for calls in gold(task)]


@pytest.mark.parametrize("category", CATEGORIES)
def test_every_accepted_value_is_judged_as_bfcl_does(category):
    checks = checked_gold(category)
    assert len(checks) > len(tasks(category))
    assert not [
        (task.id, calls, checked)
        for task, calls, checked in checks
        if official(task, calls)[0] != checked.passed_official
    ]


def test_tasks_whose_gold_fails_are_those_that_are_listed():
    listed = json.loads((files("bfcl_env.single_turn") / "failing_gold.json").read_text())["tasks"]
    of_task = defaultdict(list)
    for category in CATEGORIES:
        for task, _, checked in checked_gold(category):
            of_task[task.id].append(checked)
    found = {}
    for name, checks in of_task.items():
        if not (checks[0].passed and checks[0].passed_official):
            sides = {"official": [item.passed_official for item in checks], "ours": [item.passed for item in checks]}
            found[name] = {
                side: "first" if all_[0] else "other" if any(all_) else "never" for side, all_ in sides.items()
            }
    assert found == {name: {side: item[side] for side in ("official", "ours")} for name, item in listed.items()}
    assert all(item["reason"] for item in listed.values())


@pytest.mark.parametrize("count", [MUTANTS, pytest.param(20_000, marks=pytest.mark.slow)])
def test_faulty_messages_are_judged_as_bfcl_does_and_ours_departs_for_named_reasons(count):
    everything = [task for category in CATEGORIES for task in tasks(category)]
    wrong, unknown, seen, reasons = [], [], Counter(), Counter()
    for fault, task, calls in mutants(everything, count, SEED):
        checked = check(task, calls)
        passed, kind = official(task, calls)
        seen[task.category, fault] += 1
        if checked.passed_official != passed:
            wrong.append((fault, task.id, calls, kind, checked))
        elif checked.passed != passed:
            reason = why_ours_departs(task, calls, kind, checked)
            reasons[reason] += 1
            unknown += [(task.id, calls, kind, checked)] if reason == "unknown" else []
        elif task.language == "python" and not (passed or kind.startswith("raised")):
            reasons["another kind of mismatch"] += checked.mismatches[0].kind != kind
        assert checked.passed == (not checked.mismatches)
    assert not wrong
    assert len(seen) == len(CATEGORIES) * len(FAULTS)
    assert not unknown
    assert reasons["another kind of mismatch"] < count / 1000, "only where one of the departures changes it"
    assert reasons.keys() >= {"quoted_elements", "untyped_elements", "whole_literal", "bare_values", "punctuation"}
    print(count, dict(reasons))


def why_ours_departs(task, calls, kind, checked) -> str:
    """The name of the difference, from what BFCL's checker found wrong, or ours."""
    if checked.passed:
        if kind == "cannot_find_match":
            rng, orders = random.Random(0), [calls[::-1]]
            orders += [tuple(rng.sample(calls, len(calls))) for _ in range(200)]
            if any(official(task, order)[0] for order in orders):
                return "pairing"
        if task.language == "java" and kind == "value_error:list/tuple":
            return "untyped_elements" if task.id in ("simple_java_36", "simple_java_65") else "quoted_elements"
        if task.id == "simple_java_64":
            return "bare_values"
        if kind in ("type_error:nested", "cannot_find_match"):
            return "whole_numbers_in_lists"
        return {"value_error:dict_value": "nested_literals"}.get(kind, "unknown")
    mismatch = checked.mismatches[-1]
    document = next(item for item in task.functions if item["name"] == mismatch.function)["parameters"]["properties"]
    if document[mismatch.argument]["type"] in ("Array", "ArrayList", "HashMap", "array", "dict"):
        if mismatch.kind == "type_error:simple" and task.language != "python":
            return "whole_literal"
        if "True" in mismatch.found or "False" in mismatch.found:
            return "truth_values"
        if task.language != "python":
            return "nested_literals" if "dict" in mismatch.kind else "quoted_elements"
    if mismatch.kind.startswith("value_error"):
        text = mismatch.found
        return "number_texts" if any(sign.isdigit() for sign in text) else "punctuation"
    return "unknown"


def test_relevance_asks_for_a_call_and_irrelevance_for_none():
    call = Call("f", {})
    assert check_relevance([call], wanted=True).passed and check_relevance([], wanted=False).passed
    for checked in (check_relevance([], wanted=True), check_relevance([call], wanted=False)):
        assert not checked.passed and not checked.passed_official
        (mismatch,) = checked.mismatches
        assert mismatch.expected != mismatch.found


def of_one_function(properties, accepted, required=()):
    document = {"name": "f", "parameters": {"type": "dict", "properties": properties, "required": list(required)}}
    return [document], [{"f": accepted}]


INTEGER = of_one_function({"n": {"type": "integer"}, "unit": {"type": "string"}}, {"n": [5], "unit": ["", "km"]}, ["n"])


@pytest.mark.parametrize(
    ("calls", "kind", "argument"),
    [
        ([], "wrong_count", ""),
        ([Call("f", {"n": 5}), Call("f", {"n": 5})], "wrong_count", ""),
        ([Call("g", {"n": 5})], "wrong_func_name", ""),
        ([Call("f", {})], "missing_required", "n"),
        ([Call("f", {"n": 5, "m": 1})], "unexpected_param", "m"),
        ([Call("f", {"n": "5"})], "type_error:simple", "n"),
        ([Call("f", {"n": True})], "type_error:simple", "n"),
        ([Call("f", {"n": 6})], "value_error:others", "n"),
        ([Call("f", {"n": 5, "unit": "miles"})], "value_error:string", "unit"),
        ([Call("f", {"n": 10**5000})], "limit", ""),
    ],
)
def test_a_mismatch_says_which_argument_and_what_was_expected(calls, kind, argument):
    checked = check_calls(calls, *INTEGER)
    (mismatch,) = checked.mismatches
    assert (mismatch.kind, mismatch.argument) == (kind, argument)
    assert not checked.passed and not checked.passed_official
    assert mismatch.expected and mismatch.expected != mismatch.found


def test_parallel_calls_are_told_which_accepted_one_is_left_and_what_is_wrong_with_the_call_next_to_it():
    functions, accepted = of_one_function({"n": {"type": "integer"}}, {"n": [5]})
    accepted = [*accepted, {"f": {"n": [6]}}]
    assert check_calls([Call("f", {"n": 6}), Call("f", {"n": 5})], functions, accepted, parallel=True).passed
    checked = check_calls([Call("f", {"n": 7}), Call("f", {"n": 5})], functions, accepted, parallel=True)
    left, near = checked.mismatches
    assert (left.kind, left.expected) == ("cannot_find_match", "{'n': [6]}")
    assert (near.kind, near.expected, near.found) == ("value_error:others", "[6]", "7")


def test_texts_in_mismatches_are_short():
    for value in ("x" * 40_000, list(range(4_000))):
        (mismatch,) = check_calls([Call("f" * 5_000, {"n": value})], *INTEGER).mismatches
        assert len(mismatch.found) <= MAX_SHOWN
        (mismatch,) = check_calls([Call("f", {"n": value})], *INTEGER).mismatches
        assert len(mismatch.found) <= MAX_SHOWN


@pytest.mark.parametrize(
    ("language", "document"),
    [
        ("python", {"type": "number"}),
        ("python", {}),
        ("python", {"type": "array"}),
        ("python", {"type": "array", "items": {"type": "object"}}),
        ("java", {"type": "Queue"}),
        ("javascript", {"type": "string"}),
    ],
)
def test_a_document_with_an_unknown_type_is_named(language, document):
    functions, accepted = of_one_function({"n": document}, {"n": ["5"]})
    (mismatch,) = check_calls([Call("f", {"n": "5"})], functions, accepted, language).mismatches
    assert mismatch.kind == "unknown_type" and mismatch.argument == "n"


def test_an_answer_for_a_function_without_a_document_is_named():
    checked = check_calls([Call("g", {})], INTEGER[0], [{"g": {}}])
    assert [mismatch.kind for mismatch in checked.mismatches] == ["unknown_function"]
