"""Faulty variants of gold conversations, to test the environment on what models really get wrong.

Gold alone exercises half of the functions and no error path. A mutant is one gold conversation with one fault of a
named kind; the calls after the fault stay as they were, so they often fail too. Drawn from a seed: the same seed
gives the same mutants, and a shorter list is the beginning of a longer one.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from bfcl_env.episode import Episode
from bfcl_env.scenarios import Scenario, load_scenarios
from bfcl_env.source import function_docs, function_owners
from interaction.call import Call

Turns = tuple[tuple[Call, ...], ...]
"""The calls of each user turn."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A conversation that differs from its scenario's gold in one place."""

    scenario: Scenario
    kind: str
    """One of `FAULTS`."""
    turns: Turns


def play(scenario: Scenario, turns: Turns) -> list[bool]:
    """Whether each turn passes when these calls are made and every turn is answered."""
    with Episode(scenario) as episode:
        verdicts = []
        for calls in turns:
            for call in calls:
                episode.execute(call)
            verdicts.append(episode.end_turn().passed)
        return verdicts


READ_ONLY = frozenset(
    "cat diff du find grep ls pwd sort tail wc "
    "absolute_value add divide imperial_si_conversion max_value mean min_value multiply percentage power round_number "
    "si_unit_conversion standard_deviation subtract sum_values "
    "get_message_stats get_user_id list_users message_get_login_status search_messages view_messages_sent "
    "get_tweet get_tweet_comments get_user_stats get_user_tweets list_all_following posting_get_login_status "
    "search_tweets "
    "get_ticket get_user_tickets ticket_get_login_status "
    "filter_stocks_by_price get_account_info get_available_stocks get_current_time get_order_details "
    "get_order_history get_stock_info get_symbol_by_name get_transaction_history get_watchlist notify_price_change "
    "trading_get_login_status "
    "compute_exchange_rate get_all_credit_cards get_booking_history get_budget_fiscal_year get_credit_card_balance "
    "get_flight_cost get_nearest_airport_by_city list_all_airports retrieve_invoice travel_get_login_status "
    "verify_traveler_information "
    "check_tire_pressure displayCarStatus estimate_distance estimate_drive_feasibility_by_mileage "
    "find_nearest_tire_shop gallon_to_liter get_current_speed get_outside_temperature_from_google "
    "get_outside_temperature_from_weather_com get_zipcode_based_on_city liter_to_gallon".split()
)
"""Functions that leave every public attribute as it is (`logarithm` and `square_root` set a precision)."""


def mutants(seed: int, count: int) -> Iterator[Mutant]:
    """Draws mutants of the 800 scenarios, the kinds in turn.

    Args:
        seed: any integer.
        count: how many; not negative.
    """
    rng = random.Random(seed)
    scenarios = load_scenarios()
    kinds = tuple(FAULTS)
    for number in range(count):
        kind = kinds[number % len(kinds)]
        while True:  # Until a scenario is drawn that has room for this fault.
            scenario = rng.choice(scenarios)
            gold = tuple(turn.gold for turn in scenario.turns)
            turns = FAULTS[kind](scenario, gold, rng)
            if turns is not None and _text(turns) != _text(gold):
                break
        yield Mutant(scenario, kind, turns)


def random_call(scenario: Scenario, rng: random.Random, names: frozenset[str] | None = None) -> Call:
    """A call of a documented function with every required argument and some of the others.

    Values have the documented types: half of them occur in gold somewhere, the rest are invented.

    Args:
        scenario: whose classes the function is drawn from, unless `names` says otherwise.
        rng: the source of randomness.
        names: the functions to choose from.
    """
    if names is None:
        names = frozenset(name for class_name in scenario.classes for name in function_docs()[class_name])
    name = rng.choice(sorted(names))
    parameters = function_docs()[function_owners()[name]][name]["parameters"]
    arguments = {}
    for key, schema in parameters["properties"].items():
        if key in parameters["required"] or rng.random() < 0.3:
            known = _gold_values().get((name, key))
            arguments[key] = rng.choice(known if known and rng.random() < 0.5 else _INVENTED[schema["type"]])
    return Call(name, arguments)


def _text(turns: Turns) -> list[list[str]]:
    return [[str(call) for call in turn] for turn in turns]  # Unlike ==, tells 1 from 1.0 and from True.


@cache
def _gold_values() -> dict[tuple[str, str], tuple[Any, ...]]:
    """The different values that gold has for an argument of a function."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for scenario in load_scenarios():
        for turn in scenario.turns:
            for call in turn.gold:
                for key, value in call.arguments.items():
                    found.setdefault((call.name, key), {})[repr(value)] = value
    return {key: tuple(values.values()) for key, values in found.items()}


_INVENTED: dict[str, tuple[Any, ...]] = {
    "string": tuple('|x|workspace|..|a/b|user1|AAPL|New York|SFO|2024-01-01|é😀|it\'s "so"'.split("|")),
    "integer": (0, 1, -1, 7, 2024, 12345678901),
    "float": (0.0, 1, -2.5, 0.1, 100.0, 3.0e10),
    "boolean": (True, False),
    "array": ([], [1, 2.5, -3], ["AAPL", "GOOG"], ["x"], [[1], [2]], [None]),
    "dict": ({}, {"status": "Open"}, {"priority": 9, "nested": {"a": [1]}}),
}


Fault = Callable[[Scenario, Turns, random.Random], Turns | None]
FAULTS: dict[str, Fault] = {}
"""Name -> makes a variant of gold calls; None where the conversation has no room for it. Drawn in this order."""


def _fault(function: Fault) -> Fault:
    FAULTS[function.__name__] = function
    return function


Place = tuple[int, int]
Change = Callable[[Scenario, Turns, Place, Call, random.Random], Turns | None]


def _fault_of_a_call(arguments: bool = False) -> Callable[[Change], Change]:
    """A fault of one drawn call; `arguments`: of one that has some."""

    def add(change: Change) -> Change:
        def fault(scenario: Scenario, gold: Turns, rng: random.Random) -> Turns | None:
            calls = ((turn, at, call) for turn, calls in enumerate(gold) for at, call in enumerate(calls))
            places = [(turn, at) for turn, at, call in calls if call.arguments or not arguments]
            if not places:
                return None
            turn, at = rng.choice(places)
            return change(scenario, gold, (turn, at), gold[turn][at], rng)

        FAULTS[change.__name__] = fault
        return change

    return add


def _replace(gold: Turns, turn: int, calls: tuple[Call, ...]) -> Turns:
    return (*gold[:turn], calls, *gold[turn + 1 :])


def _edit(gold: Turns, place: Place, *calls: Call) -> Turns:
    """Puts any number of calls in the place of one."""
    turn, at = place
    return _replace(gold, turn, (*gold[turn][:at], *calls, *gold[turn][at + 1 :]))


def _insert(gold: Turns, turn: int, call: Call, rng: random.Random) -> Turns:
    at = rng.randint(0, len(gold[turn]))
    return _replace(gold, turn, (*gold[turn][:at], call, *gold[turn][at:]))


@_fault_of_a_call()
def dropped(scenario: Scenario, gold: Turns, place: Place, call: Call, rng: random.Random) -> Turns:
    return _edit(gold, place)


@_fault_of_a_call()
def doubled(scenario: Scenario, gold: Turns, place: Place, call: Call, rng: random.Random) -> Turns:
    return _edit(gold, place, call, call)


@_fault
def reordered(scenario: Scenario, gold: Turns, rng: random.Random) -> Turns:
    """The calls of one turn in another order."""
    turn = rng.randrange(len(gold))
    return _replace(gold, turn, tuple(rng.sample(gold[turn], len(gold[turn]))))


@_fault_of_a_call(arguments=True)
def changed_argument(scenario: Scenario, gold: Turns, place: Place, call: Call, rng: random.Random) -> Turns:
    """Another value of the right type: from another scenario, or slightly different."""
    key = rng.choice(sorted(call.arguments))
    old = call.arguments[key]
    known = _gold_values()[call.name, key]
    if rng.random() < 0.5:
        new = rng.choice(known)
    elif type(old) is bool:
        new = not old
    elif type(old) in (int, float):
        new = rng.choice((old + 1, -old, old * 1000, old / 2))
    elif type(old) is str:
        new = rng.choice((old + "x", old[:-1], old.upper(), f"./{old}", f"{old} "))
    elif type(old) is list:
        new = rng.choice((old[1:], old + old, old[::-1]))
    else:
        new = {}
    return _edit(gold, place, Call(call.name, {**call.arguments, key: new}))


@_fault_of_a_call()
def moved(scenario: Scenario, gold: Turns, place: Place, call: Call, rng: random.Random) -> Turns | None:
    """One call made in another turn."""
    if len(gold) < 2:
        return None
    target = rng.choice([turn for turn in range(len(gold)) if turn != place[0]])
    return _insert(_edit(gold, place), target, call, rng)


@_fault
def extra_read(scenario: Scenario, gold: Turns, rng: random.Random) -> Turns:
    """One more call, of a function that changes no state; its arguments may be nonsense."""
    names = READ_ONLY.intersection(name for class_name in scenario.classes for name in function_docs()[class_name])
    return _insert(gold, rng.randrange(len(gold)), random_call(scenario, rng, names), rng)


@_fault
def extra_call(scenario: Scenario, gold: Turns, rng: random.Random) -> Turns:
    """One more call of any documented function, with arguments of the documented types."""
    return _insert(gold, rng.randrange(len(gold)), random_call(scenario, rng), rng)


@_fault_of_a_call(arguments=True)
def wrong_type(scenario: Scenario, gold: Turns, place: Place, call: Call, rng: random.Random) -> Turns:
    key = rng.choice(sorted(call.arguments))
    kind = type(call.arguments[key])
    wrong = [value for value in (None, "7", "text", 5, 2.5, True, [], ["a"], {}, {"a": 1}) if type(value) is not kind]
    return _edit(gold, place, Call(call.name, {**call.arguments, key: rng.choice(wrong)}))


@_fault_of_a_call()
def unknown_function(scenario: Scenario, gold: Turns, place: Place, call: Call, rng: random.Random) -> Turns:
    """A misspelt or qualified name, or a function of a class that is not involved."""
    owner = function_owners()[call.name]
    foreign = [name for name, other in function_owners().items() if other not in scenario.classes]
    name = rng.choice(
        (f"{call.name}x", f"do_{call.name}", f"{owner}.{call.name}", f"self.{call.name}", rng.choice(foreign))
    )
    return _edit(gold, place, Call(name, call.arguments))


@_fault_of_a_call(arguments=True)
def missing_argument(scenario: Scenario, gold: Turns, place: Place, call: Call, rng: random.Random) -> Turns:
    gone = rng.choice(sorted(call.arguments))
    return _edit(gold, place, Call(call.name, {key: value for key, value in call.arguments.items() if key != gone}))


@_fault_of_a_call()
def surplus_argument(scenario: Scenario, gold: Turns, place: Place, call: Call, rng: random.Random) -> Turns:
    """One argument too many, by keyword or by position."""
    value = rng.choice(("x", 1, None, True, [1]))
    if rng.random() < 0.3:
        return _edit(gold, place, Call(call.name, call.arguments, (value,)))
    key = rng.choice([key for key in ("verbose", "path", "user", "path_2", "self") if key not in call.arguments])
    return _edit(gold, place, Call(call.name, {**call.arguments, key: value}))
