"""`difference` in a verdict: which attribute of which class differs, where inside it, expected and actual, in short."""

import json

import pytest

from bfcl_env import Episode, load_scenarios, make_call, parse_call
from bfcl_env.mutants import mutants
from bfcl_env.state import MAX_SHOWN, differences, snapshot


def find(scenario_id):
    category, index = scenario_id.rsplit("_", 1)
    return load_scenarios(category)[int(index)]


def difference(scenario, *texts):
    """After gold of the first turn and these calls."""
    with Episode(scenario) as episode:
        for call in scenario.turns[0].gold:
            episode.execute(call)
        for text in texts:
            assert episode.execute(parse_call(text, scenario)).error is None
        return episode.end_turn().difference


def test_there_is_none_when_the_turn_passes():
    assert difference(find("multi_turn_base_0")) == ()


def test_a_file_that_should_not_be_is_named_by_its_path():
    (item,) = difference(find("multi_turn_base_0"), "touch('extra.txt')")
    assert item["class"] == "GorillaFileSystem"
    assert item["attribute"] == "root/document/extra.txt"
    assert (item["expected"], item["actual"]) == ("absent", "''")


def test_changed_content_is_shown_on_both_sides():
    scenario = find("multi_turn_base_0")
    (item,) = difference(scenario, "echo('new words', 'previous_report.pdf')")
    assert item["attribute"] == "root/document/previous_report.pdf"
    assert item["actual"] == "'new words'" and item["expected"] != item["actual"]


def test_an_amount_in_a_nested_record_is_shown_with_its_path():
    scenario = next(item for item in load_scenarios("multi_turn_base") if item.turns[0].gold[0].name == "place_order")
    gold = scenario.turns[0].gold[0]
    with Episode(scenario) as episode:
        episode.execute(make_call(gold.name, {**gold.arguments, "amount": gold.arguments["amount"] + 7}))
        verdict = episode.end_turn()
    orders = [item for item in verdict.difference if item["attribute"].startswith("orders/")]
    assert orders and orders[0]["class"] == "TradingBot" and orders[0]["attribute"].endswith("/amount")
    assert int(orders[0]["actual"]) - int(orders[0]["expected"]) == 7


def test_missing_results_are_named_as_results_of_no_class():
    scenario = find("multi_turn_base_0")
    with Episode(scenario) as episode:
        missing = [item for item in episode.end_turn().difference if item["attribute"] == "results"]
    assert missing and all(item["class"] == "" and item["actual"] == "absent" for item in missing)


class Plain:
    """An instance with any attributes."""

    def __init__(self, **attributes):
        vars(self).update(attributes)


def between(expected, actual):
    found = differences({"Plain": {"a": expected}}, {"Plain": Plain(a=actual)})
    return [(item["attribute"], item["expected"], item["actual"]) for item in found]


@pytest.mark.parametrize(
    ("expected", "actual", "found"),
    [
        (1, 1, []),
        (1, 2, [("a", "1", "2")]),
        ({"b": {"c": [1, 2]}}, {"b": {"c": [1, 3]}}, [("a/b/c/1", "2", "3")]),
        ([1, 2], [1, 2, 3], [("a/2", "absent", "3")]),
        ([1, 2], [], [("a/0", "1", "absent")]),
        ([{"id": 1}], [{"id": 1, "x": None}], [("a/0/x", "absent", "None")]),
        ({"b": 1}, [1], [("a", "{'b': 1}", "[1]")]),
        ([1], (1,), [("a", "[1]", "(1,)")]),
        ({1: "x"}, {2: "x"}, [("a/1", "'x'", "absent")]),
    ],
)
def test_it_goes_down_to_the_first_place_that_differs(expected, actual, found):
    assert between(expected, actual) == found


def test_an_absent_attribute_is_absent():
    (item,) = differences({"Plain": {"a": 1}}, {"Plain": Plain()})
    assert (item["expected"], item["actual"]) == ("1", "absent")


def test_long_texts_are_shown_from_shortly_before_they_differ():
    same = "x" * 5_000
    ((_, expected, actual),) = between(f"{same}one", f"{same}two")
    assert expected == f"from character 4980: '{'x' * 20}one'"
    assert actual == f"from character 4980: '{'x' * 20}two'"


def test_every_difference_of_mutants_is_short_text_that_tells_the_two_sides_apart():
    seen = 0
    for mutant in mutants(11, 1_100):
        with Episode(mutant.scenario) as episode:
            for calls in mutant.turns:
                for call in calls:
                    episode.execute(call)
                for item in episode.end_turn().difference:
                    seen += 1
                    assert set(item) == {"class", "attribute", "expected", "actual"}
                    assert item["class"] in ("", *mutant.scenario.classes)
                    assert item["expected"] != item["actual"]
                    assert len(json.dumps(item)) < 4 * MAX_SHOWN
    assert seen > 500


def test_a_verdict_names_something_exactly_if_something_did_not_match():
    for mutant in mutants(12, 1_100):
        with Episode(mutant.scenario) as episode:
            for calls in mutant.turns:
                for call in calls:
                    episode.execute(call)
                verdict = episode.end_turn()
                assert bool(verdict.difference) != (verdict.state_matches and verdict.responses_match)


def test_differences_change_nothing():
    scenario = find("multi_turn_base_0")
    with Episode(scenario) as episode:
        before = snapshot(episode._instances)
        episode.execute(make_call("touch", {"file_name": "x"}))
        assert differences(before, episode._instances) == differences(before, episode._instances)
