"""Hints: one rule each, with an example; off by default; documented as generated."""

import dataclasses
import inspect
import re
from pathlib import Path

import pytest

from bfcl_env import Episode, ErrorKind, augmentation, load_scenarios, parse_call
from bfcl_env.augmentation import mathematics, trading, travel, vehicle
from bfcl_env.augmentation.__main__ import END, START, example, table
from bfcl_env.augmentation.rule import listing, sentences
from bfcl_env.scenarios import Turn
from bfcl_env.source import function_owners, load_class

RULES = pytest.mark.parametrize("rule", augmentation.RULES, ids=lambda rule: rule.name)


def words(text):
    return set(re.findall(r"\w+", text))


def with_class(class_name):
    return next(item for item in load_scenarios("multi_turn_base") if class_name in item.classes)


def hints(scenario, *texts):
    with Episode(scenario, augment=True) as episode:
        return [episode.execute(parse_call(text, scenario)).hint for text in texts]


@RULES
def test_every_rule_answers_its_example(rule):
    advice = augmentation.advise(example(rule))
    assert advice is not None and advice[0] is rule
    assert advice[1] == augmentation.hint(example(rule)) and len(advice[1]) <= augmentation.MAX_CHARS


@RULES
def test_without_one_of_the_functions_it_names_a_rule_still_has_advice(rule):
    situation = example(rule)
    named = words(augmentation.hint(situation)).intersection(function_owners()).difference({situation.call.name})
    for name in named.intersection(situation.visible):
        turns = (*situation.scenario.turns, Turn("", (), (name,)))
        hidden = dataclasses.replace(situation, scenario=dataclasses.replace(situation.scenario, turns=turns))
        assert name in hidden.withheld
        text = augmentation.hint(hidden)
        assert text and name not in words(text)


def test_rules_have_names_of_their_own_and_are_for_functions_that_exist():
    names = [rule.name for rule in augmentation.RULES]
    assert len(names) == len(set(names))
    for rule in augmentation.RULES:
        assert all(function_owners()[name] == rule.owner for name in rule.functions.split())


def test_every_class_has_rules():
    assert {rule.owner for rule in augmentation.RULES} == {"", *function_owners().values()}


def test_the_documentation_contains_the_generated_table():
    text = Path(__file__).parents[3].joinpath("docs", "environment.md").read_text("utf-8")
    assert text.count(START) == text.count(END) == 1
    shown = text.partition(START)[2].partition(END)[0].strip("\n") + "\n"
    assert shown == table(), "docs/environment.md is not what `python -m bfcl_env.augmentation` prints"


def test_without_augmentation_no_result_has_a_hint():
    scenario = load_scenarios("multi_turn_base")[0]
    with Episode(scenario) as episode:
        assert episode.execute(parse_call("cdd('x')", scenario)).hint is None


def test_a_rule_that_raises_costs_only_the_hint(monkeypatch):
    def broken(situation):
        raise KeyError("unforeseen")

    monkeypatch.setattr(augmentation, "advise", broken)
    scenario = load_scenarios("multi_turn_base")[0]
    with Episode(scenario, augment=True) as episode:
        result = episode.execute(parse_call("cat('x')", scenario))
        assert result.error is ErrorKind.RESULT and result.hint is None


@pytest.mark.parametrize(
    ("class_name", "text", "expected"),
    [
        ("GorillaFileSystem", "cdd('x')", r"The closest available ones: cd\."),
        ("GorillaFileSystem", "GorillaFileSystem.cd('x')", r"plain name: cd\."),
        ("GorillaFileSystem", "cd()", r"Missing: 'folder'.*ask the user.*cd\(folder: string\)"),
        ("GorillaFileSystem", "cd(path='x')", r"Missing: 'folder'"),
        ("GorillaFileSystem", "cd(folder=5)", r"'folder' must be string, not int"),
        ("GorillaFileSystem", "cat('final_report.pdf')", r"'workspace/document'.*first cd\(folder='document'\)"),
        ("GorillaFileSystem", "cat('document/final_report.pdf')", r"plain name.*first cd\(folder='document'\)"),
        ("GorillaFileSystem", "cat('document')", r"is a directory"),
        ("TravelAPI", "get_booking_history()", r"authenticate_travel supplies 'access_token'"),
        (
            "TravelAPI",
            "get_flight_cost('Paris', 'LAX', '2024-01-01', 'economy')",
            r"'Paris' is not an airport code.*RMS",
        ),
        ("TravelAPI", "get_flight_cost('LHR', 'LAX', '2024-01-01', 'economy')", r"From LHR flights go to: CDG\."),
        ("TravelAPI", "compute_exchange_rate('USD', 'XXX', 1.0)", r"'XXX' is not a known currency.*USD, RMB"),
        ("VehicleControlAPI", "estimate_distance('Rivermist', '2')", r"get_zipcode_based_on_city\(city='Rivermist'\)"),
        ("VehicleControlAPI", "estimate_distance('71354', '94016')", r"from 71354 only to 83462"),
        ("VehicleControlAPI", "startEngine('STOP')", r"the engine is stopped now"),
        ("TradingBot", "get_stock_info('aapl')", r"capitals"),
        ("TradingBot", "get_stock_info('Apple')", r"name of a company.*get_symbol_by_name"),
        ("MessageAPI", "get_user_id('Bobby')", r"Users here: 'Alice', 'Bob'"),
    ],
)
def test_an_error_gets_advice_that_can_be_acted_on(class_name, text, expected):
    (hint,) = hints(with_class(class_name), text)
    assert re.search(expected, hint)


def test_a_withheld_function_gets_the_hint_of_an_unknown_one():
    for scenario in load_scenarios("multi_turn_miss_func"):
        for name in scenario.withheld(0):
            call = parse_call(f"{name}()", scenario)
            with Episode(scenario, augment=True) as episode:
                result = episode.execute(call)
                unknown = augmentation.Situation(
                    scenario, 0, call, result.text, ErrorKind.UNKNOWN_FUNCTION, episode._instances
                )
                assert result.error is ErrorKind.WITHHELD_FUNCTION
                assert result.hint and result.hint == augmentation.hint(unknown)


def test_a_tree_that_contains_itself_and_a_long_list_of_names_do_not_make_a_hint_slow_or_long():
    scenario = with_class("GorillaFileSystem")
    with Episode(scenario, augment=True) as episode:
        for number in range(400):
            episode.execute(parse_call(f"touch('{number}{'x' * 60}')", scenario))
        directory = episode._instances["GorillaFileSystem"].root
        directory.contents["loop"] = directory
        hint = episode.execute(parse_call("cat('nowhere')", scenario)).hint
        assert len(hint) <= augmentation.MAX_CHARS and "more" in hint


def test_a_listing_is_cut_with_a_count_and_begins_with_the_closest():
    assert listing(["a", 5]) == "'a', 5"
    names = [f"report_{number:02}.txt" for number in range(50)]
    shown = listing(names, "report_47.txt", room=50)
    assert shown.startswith("'report_47.txt'") and shown.endswith(" and 47 more")
    assert sentences("a.", "", "b" * 300, "c.") == "a. c."


def test_the_tables_that_hints_show_are_those_of_the_classes():
    def source(class_name, function):
        return inspect.getsource(getattr(load_class(class_name), function))

    car = source("VehicleControlAPI", "get_zipcode_based_on_city")
    assert tuple(re.findall(r'city == "([^"]+)"', car)) == vehicle.CITIES
    zips = re.findall(r'"(\d{5})"', source("VehicleControlAPI", "estimate_distance"))
    assert set(zips) == set(vehicle.distances()) and all(vehicle.distances().values())
    stocks = re.findall(r'"([^"]+)": "[A-Z]+"', source("TradingBot", "get_symbol_by_name"))
    assert tuple(stocks) == trading.COMPANIES
    sectors = re.findall(r'"(\w+)": \[', source("TradingBot", "get_available_stocks"))
    assert tuple(sectors) == trading.SECTORS
    units = re.findall(r'"(\w+)_to_(\w+)":', source("MathAPI", "imperial_si_conversion"))
    assert {frozenset(pair) for pair in units} == {frozenset(pair) for pair in mathematics.IMPERIAL_UNITS}
    metres = re.findall(r'"(\w+)": [\d.e-]+', source("MathAPI", "si_unit_conversion"))
    assert tuple(metres) == mathematics.SI_UNITS
    routes = re.findall(r'\("([A-Z]{3})", "([A-Z]{3})"\):', source("TravelAPI", "get_flight_cost"))
    known = {(start, end) for start, ends in travel.destinations().items() for end in ends}
    assert known == {(start, end) for start, end in routes if {start, end} <= set(travel.destinations())}
