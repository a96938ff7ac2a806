"""Each departure of our verdict from BFCL's, with both sides shown on one message."""

from typing import Any, NamedTuple

import pytest
from support.single_turn import Task, gold, official, tasks

from bfcl_env.single_turn.checker import check_calls
from bfcl_env.single_turn.differences import DIFFERENCES
from interaction.call import Call


class Case(NamedTuple):
    name: str
    type: str
    accepted: list[Any]
    written: Any
    officially: bool
    ours: bool
    language: str = "simple_python"
    items: str = "string"


CASES = [
    Case("quoted_elements", "Array", [["a", "b"]], 'new String[]{"a", "b"}', False, True, "simple_java", "String"),
    Case("quoted_elements", "Array", [["a, b"]], 'new String[]{"a, b"}', False, True, "simple_java", "String"),
    Case("quoted_elements", "array", [["a, b"]], '["a, b"]', False, True, "simple_javascript", "String"),
    Case(
        "quoted_elements",
        "ArrayList",
        [["b"]],
        "new ArrayList<>(Arrays.asList(abc))",
        True,
        False,
        "simple_java",
        "String",
    ),
    Case(
        "untyped_elements", "Array", [["a", 1, True]], 'new Object[]{"a", 1, true}', False, True, "simple_java", "any"
    ),
    Case("untyped_elements", "array", [["a", 1, True]], '["a", 1, true]', False, True, "simple_javascript", "any"),
    Case("nested_literals", "dict", [{"a": [{"b": 1}]}], '{"a": {"b": 1}}', False, True, "simple_javascript"),
    Case("nested_literals", "dict", [{"a": ["5"]}], '{"a": "5"}', False, True, "simple_javascript"),
    Case("nested_literals", "dict", [{"a": [5]}], '{"a": "5"}', True, False, "simple_javascript"),
    Case(
        "nested_literals",
        "HashMap",
        [{"a": ["x)"]}],
        'new HashMap<>() {{ put("a", "x)"); }}',
        False,
        True,
        "simple_java",
    ),
    Case("whole_literal", "array", [[1, 2]], "[1, 2].concat(more)", True, False, "simple_javascript", "integer"),
    Case("whole_literal", "dict", [{"a": [1]}], '{"a": 1}; drop()', True, False, "simple_javascript"),
    Case("whole_literal", "Array", [[1]], "f(new int[]{1})", True, False, "simple_java", "integer"),
    Case(
        "whole_literal",
        "ArrayList",
        [[]],
        "new ArrayList<>(other)+new ArrayList<>()",
        True,
        False,
        "simple_java",
        "any",
    ),
    Case("whole_literal", "HashMap", [{}], "new HashMap<>(other) // new HashMap<>()", True, False, "simple_java"),
    Case("bare_values", "dict", [{"a": "text"}], {"a": "text"}, False, True),
    Case("bare_values", "dict", [{"a": 5}], {"a": 5}, False, True),
    Case("bare_values", "dict", [{"a": "text"}], {"a": "t"}, True, False),
    Case("bare_values", "dict", [{"a": "text"}], {}, True, False),
    Case("whole_numbers_in_lists", "array", [[1.0, 2.5]], [1, 2.5], False, True, items="float"),
    Case("whole_numbers_in_lists", "tuple", [[1.0, 2.5]], (1, 2.5), False, True, items="float"),
    Case("truth_values", "dict", [{"a": [1]}], {"a": True}, True, False),
    Case("truth_values", "dict", [{"a": [[{"b": 0}]]}], {"a": [{"b": False}]}, True, False),
    Case("truth_values", "array", [[1], ""], [True], True, False, items="integer"),
    Case("punctuation", "string", ["km", ""], "-", True, False),
    Case("punctuation", "string", [","], "/", True, False),
    Case("punctuation", "array", [["km", "."]], ["km", "*"], True, False),
    Case("punctuation", "dict", [{"a": ["km", ""]}], {"a": "^"}, True, False),
    Case("number_texts", "string", ["5.5"], "55", True, False),
    Case("number_texts", "string", ["5"], "-5", True, False),
    Case("raises", "float", [5.0], 10**400, False, False),
    Case("raises", "array", [[{"a": [1]}], ""], ["a"], False, False, items="dict"),
    Case("raises", "Bigint", [12], "12n\n", False, False, "simple_javascript"),
    Case("limits", "string", ["km"], "km" + " " * 60_000, True, False),
]
APART = {"pairing", "positional"}
"""Those with a test of their own, below."""


def task_of(case: Case) -> Task:
    properties = {"a": {"type": case.type, "items": {"type": case.items}}}
    document = {"name": "f", "parameters": {"type": "dict", "properties": properties, "required": ["a"]}}
    return Task(case.name, case.language, [document], [{"f": {"a": case.accepted}}])


def test_every_difference_is_shown():
    names = [difference.name for difference in DIFFERENCES]
    assert len(set(names)) == len(names)
    assert {case.name for case in CASES} | APART == set(names)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}: {str(case.written)[:40]}")
def test_both_verdicts(case):
    task, calls = task_of(case), [Call("f", {"a": case.written})]
    checked = check_calls(calls, task.functions, task.accepted, task.language)
    assert official(task, calls)[0] == case.officially
    assert checked.passed == case.ours
    assert checked.passed_official == (case.officially and case.name != "limits")


@pytest.mark.parametrize(
    ("type_", "accepted", "written"),
    [
        ("string", ["km", ""], ""),
        ("string", [" "], " "),
        ("string", ["1,000"], "1000"),
        ("string", ["5.0"], "5.0"),
        ("string", ["April 1, 2024"], "april 1 2024"),
        ("string", ["v1.2"], "V1.2"),
        ("dict", [{"a": [1]}], {"a": 1.0}),
        ("dict", [{"a": [True]}], {"a": True}),
        ("float", [5.0], 5),
        ("tuple", [["a"]], ("a",)),
    ],
)
def test_what_the_departures_leave_alone(type_, accepted, written):
    task, calls = task_of(Case("", type_, accepted, written, True, True)), [Call("f", {"a": written})]
    checked = check_calls(calls, task.functions, task.accepted)
    assert official(task, calls)[0] and checked.passed_official and checked.passed


@pytest.mark.parametrize(
    ("type_", "items", "accepted", "written"),
    [
        ("Array", "integer", [1, 2], "new int[]{1, 2};"),
        ("ArrayList", "integer", [1, 2], "new ArrayList<>(Arrays.asList(1, 2));"),
        ("ArrayList", "integer", [], "new ArrayList<>() ;"),
        ("ArrayList", "long", [101], "new ArrayList<>() {{ add(\u00a0101L ); }};"),
        ("ArrayList", "String", ["x"], 'new ArrayList<>() {{ add( "x" ); }}'),
        ("HashMap", "", {"a": [1]}, 'new HashMap<>() {{ put("a", 1); }};'),
        ("array", "integer", [1, 2], "[1, 2];"),
        ("array", "array", [[1], [2]], "new Array([1], [2]) ;"),
        ("dict", "", {"a": [1]}, "{a: 1};"),
    ],
)
def test_a_statement_s_end_and_any_space_do_not_spoil_a_literal(type_, items, accepted, written):
    language = "simple_javascript" if type_ in ("array", "dict") else "simple_java"
    task = task_of(Case("", type_, [accepted], written, True, True, language, items))
    checked = check_calls([Call("f", {"a": written})], task.functions, task.accepted, task.language)
    assert official(task, [Call("f", {"a": written})])[0] and checked.passed_official and checked.passed


def test_pairing_does_not_hang_on_the_order_of_calls():
    task = next(task for task in tasks("parallel") if task.id == "parallel_178")
    calls = gold(task)[0]
    checked = [check_calls(order, task.functions, task.accepted, parallel=True) for order in (calls, calls[::-1])]
    assert [item.passed for item in checked] == [True, True]
    assert [item.passed_official for item in checked] == [True, False]
    assert not official(task, calls[::-1])[0]


def test_a_positional_argument_without_a_name_is_unexpected():
    task = task_of(Case("", "string", ["km"], "km", True, True))
    checked = check_calls([Call("f", {"a": "km"}, ("more",))], task.functions, task.accepted)
    assert checked.passed_official and [item.kind for item in checked.mismatches] == ["unexpected_param"]
