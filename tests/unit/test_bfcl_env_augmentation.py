"""Hints: useful, off by default, never a spoiler, never a change of state."""

import re

import pytest

from bfcl_env import Episode, load_scenarios, parse_call
from bfcl_env.state import matches, snapshot


def with_class(class_name):
    return next(item for item in load_scenarios("multi_turn_base") if class_name in item.classes)


def hints(scenario, *texts):
    with Episode(scenario, augment=True) as episode:
        return [episode.execute(parse_call(text, scenario)).hint for text in texts]


def test_without_augmentation_no_result_has_a_hint():
    scenario = load_scenarios("multi_turn_base")[0]
    with Episode(scenario) as episode:
        assert episode.execute(parse_call("cdd('x')", scenario)).hint is None


@pytest.mark.parametrize(
    ("class_name", "text", "expected"),
    [
        ("GorillaFileSystem", "cdd('x')", r"Did you mean: cd\?"),
        ("GorillaFileSystem", "cd()", r"missing argument 'folder'.*cd\(folder: string\)"),
        ("GorillaFileSystem", "cd(path='x')", r"Signature: cd\(folder: string\)"),
        ("GorillaFileSystem", "cd(folder=5)", r"'folder' must be string, not int"),
        ("GorillaFileSystem", "ls(True, True)", r"too many positional arguments.*ls\(a: boolean \(optional\)\)"),
        ("GorillaFileSystem", "cat('nowhere.txt')", r"The current directory '.*' contains: '"),
        ("GorillaFileSystem", "cat('a/b.txt')", r"plain name.*with cd\."),
        ("TravelAPI", "get_flight_cost('Paris', 'LAX', '2024-01-01', 'economy')", r"Not an airport code: 'Paris'"),
        ("TravelAPI", "get_flight_cost('LAX', 'LAX', '2024-01-01', 'economy')", r"no route from LAX to LAX"),
        ("TravelAPI", "compute_exchange_rate('USD', 'XXX', 1.0)", r"'target_currency' must be one of: USD"),
        ("TravelAPI", "get_booking_history('wrong')", r"authenticate_travel"),
        ("VehicleControlAPI", "estimate_distance('1', '2')", r"get_zipcode_based_on_city"),
        ("VehicleControlAPI", "setHeadlights('dim')", r"'mode' must be one of"),
    ],
)
def test_an_error_gets_advice_that_can_be_acted_on(class_name, text, expected):
    (hint,) = hints(with_class(class_name), text)
    assert re.search(expected, hint)


@pytest.mark.parametrize(
    ("class_name", "text", "login"),
    [
        ("TradingBot", "get_watchlist()", "trading_login"),
        ("TicketAPI", "get_user_tickets()", "ticket_login"),
        ("TwitterAPI", "post_tweet('x')", "authenticate_twitter"),
        ("MessageAPI", "view_messages_sent()", "message_login"),
    ],
)
def test_who_is_not_logged_in_is_told_which_function_logs_in(class_name, text, login):
    scenario = with_class(class_name)
    out = {"TradingBot": ["trading_logout()"], "TicketAPI": ["logout()"]}.get(class_name, [])
    assert login in hints(scenario, *out, text)[-1]


def test_augmentation_changes_neither_texts_nor_errors_nor_verdicts_of_gold():
    for scenario in load_scenarios("multi_turn_miss_func")[:60]:
        with Episode(scenario) as plain, Episode(scenario, augment=True) as augmented:
            for turn in scenario.turns:
                for call in turn.gold:
                    one, two = plain.execute(call), augmented.execute(call)
                    assert (one.text, one.error, two.hint) == (two.text, two.error, None)
                assert plain.end_turn() == augmented.end_turn()


def bad_calls(scenario):
    """Every function of the scenario, visible or not, called without arguments and with nonsense."""
    for name in sorted(scenario.visible(len(scenario.turns) - 1)):
        yield f"{name}()"
        yield f"{name}('nonsense/x')"
        yield f"{name}x(1)"


def test_no_hint_names_a_withheld_function_in_any_scenario():
    for scenario in load_scenarios("multi_turn_miss_func"):
        withheld = set(scenario.withheld(0))
        for hint in hints(scenario, *bad_calls(scenario)):
            assert hint is None or withheld.isdisjoint(re.findall(r"\w+", hint)), (scenario.id, hint)


def test_giving_a_hint_changes_no_state():
    from bfcl_env import augmentation

    for scenario in load_scenarios("multi_turn_base")[::10]:
        with Episode(scenario, augment=True) as episode:
            for text in bad_calls(scenario):
                call = parse_call(text, scenario)
                result = episode.execute(call)
                before = snapshot(episode._instances)
                situation = augmentation.Situation(scenario, 0, call, result.text, result.error, episode._instances)
                augmentation.hint(situation)
                assert matches(before, episode._instances)
