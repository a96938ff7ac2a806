"""Episodes: verdicts of turns without gold, withheld functions, facts of an attempt, and what is shown of states."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from bfcl_env import Call, Episode, ErrorKind, load_scenarios, parse_call
from bfcl_env.execution import schema_problem, unknown_function_text
from bfcl_env.gold import gold_for
from bfcl_env.scenarios import Turn
from bfcl_env.state import differences, matches, snapshot
from interaction.record import StopReason

WITHHELD = load_scenarios("multi_turn_miss_func")


def test_a_turn_without_gold_passes_only_for_an_answer_that_leaves_the_state_alone():
    scenario = WITHHELD[0]
    number = next(n for n, turn in enumerate(scenario.turns) if not turn.gold)

    def verdict(*texts, answered=True):
        with Episode(scenario) as episode:
            for turn in scenario.turns[:number]:
                for call in turn.gold:
                    episode.execute(call)
                episode.end_turn()
            for text in texts:
                episode.execute(parse_call(text, scenario))
            return episode.end_turn(answered=answered)

    assert verdict().passed and verdict("ls()").passed and not verdict(answered=False).passed
    for junk in ("no_such_function()", "sort('final_report.pdf')", "mean([1])"):
        assert not verdict("ls()", junk, "pwd()").passed
    changed = verdict("ls()", "touch('new.txt')", "ls()")
    assert not changed.passed and not changed.state_matches and changed.passed_official
    assert changed.difference[0]["attribute"].endswith("/new.txt")
    late = next(item for item in WITHHELD if item.turns[-1].revealed)
    attempt = late.open()
    for turn in late.turns[:-1]:
        for call in turn.gold:
            attempt.call(call)
        attempt.answer(f"I say {late.turns[-1].revealed[0]}(a='b') then.")
    passed = [turn.passed for turn in attempt.verdicts().turns]
    assert passed == [True] * (len(passed) - 2) + [False, False], "a call as text is no refusal"


def test_every_withheld_function_is_unknown_until_its_turn_and_changes_nothing():
    refused = 0
    for scenario in WITHHELD:
        gold = {call.name: call for turn in scenario.turns for call in turn.gold}
        with Episode(scenario) as episode, Episode(scenario, withheld="official") as official:
            for number, turn in enumerate(scenario.turns):
                before = snapshot(episode._instances)
                for name in scenario.withheld(number):
                    result = episode.execute(gold.get(name, Call(name, {})))
                    assert result.error is ErrorKind.WITHHELD_FUNCTION
                    assert result.text == f"Error during execution: name '{name}' is not defined"
                    assert official.execute(Call(name, {})).text != result.text
                    refused += 1
                assert matches(before, episode._instances)
                assert all([episode.execute(call).error is None for call in turn.gold])
                episode.end_turn()
            with pytest.raises(RuntimeError, match="have ended"):
                episode.end_turn()
    assert refused > 200
    with pytest.raises(RuntimeError, match="is closed"):
        official.closeness()
    with pytest.raises(ValueError, match="withheld must be"):
        Episode(scenario, withheld="no")


def test_a_result_that_gold_has_twice_is_needed_twice_and_counts_from_all_turns_so_far_if_anything_is_called():
    look, verdicts = Call("pwd", {}), []
    turns = tuple(Turn("", (look,) * count, ()) for count in (1, 2, 3, 1))
    with Episode(replace(WITHHELD[0], turns=turns)) as episode:
        for made in (1, 1, 0, 0):
            for _ in range(made):
                episode.execute(look)
            verdicts.append(episode.end_turn())
    assert [one.responses_match for one in verdicts] == [True, True, False, True]
    assert [one.passed for one in verdicts] == [True, True, False, False]


def test_an_attempt_says_how_near_each_turn_is_to_gold_and_is_cut_as_its_options_say():
    for options, reason, left, judged in (
        ({}, StopReason.max_steps, 1, True),
        ({"at_step_limit": "official"}, StopReason.max_steps, 1, False),
        ({"at_step_limit": "official"}, StopReason.max_steps, 0, True),
        ({"at_step_limit": "official"}, StopReason.max_tokens, 1, True),
    ):
        for scenario in WITHHELD[::25]:
            attempt, expected, last = scenario.open(**options), [], len(scenario.turns) - 1 - left
            attempt.begin()
            for number, (turn, gold) in enumerate(zip(scenario.turns, gold_for(scenario).turns, strict=True)):
                near, names = 0.0 if gold.changes else None, [call.name for call in turn.gold]
                facts = {"has_gold": bool(names), "gold_calls": len(names), "gold_functions": names}
                arguments = [{key: [value] for key, value in call.arguments.items()} for call in turn.gold]
                facts["gold_arguments"] = arguments
                if number > last:
                    expected.append({**facts, "closeness": None, "passed_official": False})
                    continue
                assert attempt.facts() == {"closeness": near}
                assert [attempt.call(call).facts["gold"] for call in turn.gold] == [*range(len(names))]
                expected.append({**facts, "closeness": near, "passed_official": judged or number < last})
                if number < last:
                    request, later = attempt.answer("I cannot do that."), scenario.turns[number + 1]
                    shown = tuple(function["name"] for function in request.functions)
                    assert (request.user, shown) == (later.user, later.revealed)
            assert attempt.cut(reason) is judged
            turns = attempt.verdicts().turns
            assert [dict(turn.facts) for turn in turns] == expected
            passed = [True] * last + [judged and bool(scenario.turns[last].gold)] + [False] * left
            assert [turn.passed for turn in turns] == passed and attempt.verdicts().passed is all(passed)
            for closed in (attempt, scenario.open()):
                closed.close()
                closed.close()
                with pytest.raises(RuntimeError, match="is closed"):
                    closed.facts()
    assert scenario.open().call(Call("no", {})).hint is None


PROBLEMS = [
    (Call("cd", {}), "missing argument 'folder'"),
    (Call("cd", {"folder": None}), "argument 'folder' must be string, not NoneType"),
    (Call("cd", {"folder": "a"}, ("b",)), "too many positional arguments, or one given twice"),
    *((Call("ls", {"a": value}), None) for value in (None, True)),
    (Call("ls", {"a": 1}), "argument 'a' must be boolean, not int"),
    *((Call("mean", {"numbers": value}), None) for value in ([1, 2.5], (1,), [])),
    *((Call("mean", {"numbers": [1, bad]}), "every item of argument 'numbers' must be float") for bad in ("a", True)),
    (Call("post_tweet", {"content": "a", "tags": None, "mentions": 5}), "argument 'mentions' must be array, not int"),
    (Call("absolute_value", {"number": True}), "argument 'number' must be float, not bool"),
]
UNKNOWN = {
    **{"nope": "name 'nope' is not defined", "a.b.c": "name 'a' is not defined", " x y": "name 'x' is not defined"},
    **{"exit": "Function call exit is not allowed.", "a.kill": "Function call kill is not allowed."},
    **{"1x": "name '1x' is not defined", "é\ud800": "name 'é' is not defined"},
    **{letter * 300: f"name '{letter * 200}' is not defined" for letter in "n1"},
}


def test_what_is_wrong_with_a_call_is_said_by_the_documentation():
    assert [(call, schema_problem(call)) for call, _ in PROBLEMS] == PROBLEMS
    assert {name: unknown_function_text(name) for name in UNKNOWN} == {
        name: f"Error during execution: {text}" for name, text in UNKNOWN.items()
    }


LONG = "a" * 198
DIFFERENT = [
    *((1, 2, "", "1", "2"), ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, "/a/c", "2", "3")),
    *(({"a": 1}, {}, "/a", "1", "absent"), ({}, {"a": 1}, "/a", "absent", "1"), ([1, 2], [1], "/1", "2", "absent")),
    *(([1], {0: 2}, "", "[1]", "{0: 2}"), ([[1], [2, 3]], [[1], [2, 4]], "/1/1", "3", "4")),
    *((LONG, 5, "", repr(LONG), "5"), (1, 10**5_000, "", "1", "int")),
    (f"{LONG}b", f"{LONG}c", "", f"'{LONG}b... (201 characters)", f"'{LONG}c... (201 characters)"),
    (f"{LONG}ab", f"{LONG}ac", "", f"from character 179: '{LONG[:20]}b'", f"from character 179: '{LONG[:20]}c'"),
    (LONG[:20] + "b" * 200, LONG[:20], "", f"'{LONG[:20]}{'b' * 179}... (222 characters)", f"'{LONG[:20]}'"),
    (LONG[:21] + "b" * 200, LONG[:21], "", f"from character 1: '{LONG[:20]}{'b' * 179}... (222 characters)", None),
]
"""Two values, and what is shown of them: where, and what each has there."""


def test_what_differs_is_narrowed_down_to_the_first_place_and_long_texts_to_where_they_part():
    for expected, actual, place, one, other in DIFFERENT:
        now = {"A": SimpleNamespace(x=actual, same=1)}
        found = {"class": "A", "attribute": f"x{place}", "expected": one}
        found["actual"] = f"from character 1: '{LONG[:20]}'" if other is None else other
        assert differences({"A": {"same": 1, "x": expected}}, now) == (found,)
        assert not matches({"A": {"x": expected}}, now)
    absent = {"class": "A", "attribute": "x", "expected": "1", "actual": "absent"}
    assert differences({"A": {"x": 1}}, {"A": SimpleNamespace()}) == (absent,)
