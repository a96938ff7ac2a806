"""Hints on faulty conversations: they change nothing, give nothing away, and are there when they are needed.

Every conversation is played twice side by side, with and without hints. In the play with hints, calls of every visible
function without and with nonsense arguments can come first in each turn, before the model could have seen anything.
"""

import copy
import random
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from itertools import chain

import pytest

from bfcl_env import Call, Episode, augmentation, load_scenarios
from bfcl_env.augmentation import mathematics, trading, travel, vehicle
from bfcl_env.mutants import mutants
from bfcl_env.source import CLASS_MODULES, function_docs, function_owners

SEED = 20260701
MUTANTS = 2_500
MUTANTS_OF_WITHHELD = 600
NONSENSE = {
    "string": "nonsense",
    "integer": 987654321,
    "float": 987654321.5,
    "boolean": True,
    "array": [],
    "dict": {"nonsense": 1},
}

TABLES = " ".join(
    chain(
        vehicle.CITIES,
        vehicle.distances(),
        trading.COMPANIES,
        trading.SECTORS,
        travel.destinations(),
        travel.CLASSES,
        mathematics.SI_UNITS,
        *mathematics.IMPERIAL_UNITS,
        (" .. ",),  # The way to the parent directory.
    )
)
"""What is the same in every scenario, whatever its gold is: it says nothing about it."""

GOLD_THAT_FAILS = {
    (153, "verify_traveler_information"),
    (154, "verify_traveler_information"),
    (181, "verify_traveler_information"),
    (188, "authenticate_twitter"),
    (195, "retweet"),
}
"""Gold calls (task index, function) whose results are failures that BFCL does not mark as errors."""


@dataclass
class Found:
    """What playing conversations brought to light."""

    different: list = field(default_factory=list)
    withheld: list = field(default_factory=list)
    leaked: list = field(default_factory=list)
    malformed: list = field(default_factory=list)
    changed: list = field(default_factory=list)
    failing: Counter = field(default_factory=Counter)
    hinted: Counter = field(default_factory=Counter)
    silent: list = field(default_factory=list)
    """(task index, function) of calls that got a hint although BFCL marks no error."""


def words(text):
    return set(re.findall(r"\w+", text))


def occurs(value, text):
    return value in text and re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text) is not None


def values(arguments):
    """The texts and numbers in a call's arguments, as they would be written."""
    for value in arguments.values() if isinstance(arguments, dict) else arguments:
        if isinstance(value, dict | list | tuple):
            yield from values(value)
        elif isinstance(value, str) and value.strip():
            yield value
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield str(value)
            if value == int(value):
                yield str(int(value))


def fingerprint(instances):
    """All attributes of all instances, private ones and random generators included."""
    return {
        (class_name, name): value.getstate()
        if isinstance(value, random.Random)
        else id(value)
        if name == "_current_dir"
        else copy.deepcopy(value)
        for class_name, instance in instances.items()
        for name, value in vars(instance).items()
    }


def visible_state(scenario, turn, episode, known):
    """What functions that change nothing and are visible in this turn show, on a copy of the state.

    Functions that need an access token get one if it occurs in `known`.
    """
    with Episode(scenario) as reader:
        reader._instances = copy.deepcopy(episode._instances)
        reader._turn, reader._callable = turn, scenario.visible(turn)
        names = (
            "pwd list_users view_messages_sent get_account_info get_order_history get_watchlist get_all_credit_cards "
            "list_all_airports get_user_tickets list_all_following check_tire_pressure"
        )
        reads = [Call(name, {}) for name in names.split()]
        reads += [Call("ls", {"a": True}), Call("find", {"path": "/"}), Call("search_tweets", {"keyword": ""})]
        reads += [Call("get_order_details", {"order_id": -1})]
        reads += [Call("displayCarStatus", {"option": option}) for option in ("fuel", "doors", "brakePedal", "engine")]
        travel_state = reader._instances.get("TravelAPI")
        if travel_state is not None and travel_state.access_token and occurs(travel_state.access_token, known):
            reads.append(Call("get_booking_history", {"access_token": travel_state.access_token}))
        return " ".join(reader.execute(call).text for call in reads if call.name in reader._callable)


@cache
def gold_values(scenario, turn):
    """Every text and number in the arguments of the gold calls of this turn and later ones."""
    return {value for later in scenario.turns[turn:] for call in later.gold for value in values(call.arguments)}


def leaks(scenario, turn, episode, said, hint):
    """Gold values of this and later turns in a hint that the model could not know.

    It could know what occurs in the user's texts so far, the calls and results so far, the documentation of visible
    functions, the `TABLES`, or the visible state. How many more values a list has is not a value.
    """
    hint = re.sub(r" and \d+ more", "", hint)
    found = [value for value in gold_values(scenario, turn) if occurs(value, hint)]
    if not found:
        return []
    users = [item.user for item in scenario.turns[: turn + 1]]
    known = " ".join([TABLES, str(scenario.functions(turn)), *users, *said])
    found = [value for value in found if not occurs(value, known)]
    if not found:
        return []
    state = visible_state(scenario, turn, episode, known)
    return [value for value in found if not occurs(value, state)]


def probes(scenario, turn):
    for name in sorted(scenario.visible(turn)):
        properties = function_docs()[function_owners()[name]][name]["parameters"]["properties"]
        yield Call(name, {})
        yield Call(name, {key: NONSENSE[schema["type"]] for key, schema in properties.items()})
    for name in scenario.withheld(turn):
        yield Call(name, {})


def play(scenario, turns, found, probe=False):
    with Episode(scenario) as plain, Episode(scenario, augment=True) as augmented:
        said = []
        for number, calls in enumerate(turns):
            for call in chain(probes(scenario, number) if probe else (), calls):
                one, two = plain.execute(call), augmented.execute(call)
                if (one.text, one.error) != (two.text, two.error) or one.hint is not None:
                    found.different.append((scenario.id, number, call, one, two))
                said += [str(call), two.text]
                owner = function_owners().get(call.name) if call.name in scenario.visible(number) else None
                if two.error is not None:
                    found.failing[owner or "no such function"] += 1
                    found.hinted[owner or "no such function"] += two.hint is not None
                if two.hint is None:
                    continue
                if two.error is None:
                    found.silent.append((scenario.index, call.name))
                if not 0 < len(two.hint) <= augmentation.MAX_CHARS or "\n" in two.hint:
                    found.malformed.append((call, two.hint))
                if words(two.hint).intersection(scenario.withheld(number)):
                    found.withheld.append((scenario.id, number, call, two.hint))
                leaked = leaks(scenario, number, augmented, said, two.hint)
                if leaked:
                    found.leaked.append((scenario.id, number, str(call), two.hint, leaked))
            one, two = plain.end_turn(), augmented.end_turn()
            if one != two:
                found.different.append((scenario.id, number, one, two))


def strict(situation):
    """`augmentation.hint`, but a rule that raises fails the test."""
    advice = augmentation.advise(situation)
    return advice[1] if advice else None


@pytest.fixture(scope="module")
def played():
    """Mutants of all categories, and more of the category that withholds functions."""
    found = Found()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(augmentation, "hint", strict)
        for mutant in mutants(SEED, MUTANTS):
            play(mutant.scenario, mutant.turns, found)
        more = (item for item in mutants(SEED + 1, 10**6) if item.scenario.category == "multi_turn_miss_func")
        for _ in range(MUTANTS_OF_WITHHELD):
            mutant = next(more)
            play(mutant.scenario, mutant.turns, found)
    return found


@pytest.fixture(scope="module")
def probed():
    """Gold of every fourth task of the categories in which something is missing, with probes in every turn."""
    found = Found()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(augmentation, "hint", strict)
        for category in ("multi_turn_miss_func", "multi_turn_miss_param"):
            for scenario in load_scenarios(category)[::4]:
                play(scenario, [turn.gold for turn in scenario.turns], found, probe=True)
    return found


@pytest.mark.parametrize("category", ["base", "miss_func", "miss_param", "long_context"])
def test_hints_change_nothing_on_gold_which_gets_none_where_it_succeeds(category):
    found = Found()
    for scenario in load_scenarios(f"multi_turn_{category}"):
        play(scenario, [turn.gold for turn in scenario.turns], found)
    assert found.different == [] and found.leaked == [] and found.failing == Counter()
    assert set(found.silent) == GOLD_THAT_FAILS


def test_hints_change_neither_texts_nor_errors_nor_verdicts_of_mutants(played, probed):
    assert sum(played.failing.values()) > 2_000
    assert played.different == [] and probed.different == []


def test_no_hint_names_a_withheld_function(played, probed):
    assert played.withheld == [] and probed.withheld == []


def test_no_hint_names_a_gold_value_that_the_model_could_not_know(played, probed):
    assert played.leaked == [] and probed.leaked == []


def test_hints_are_one_short_line(played, probed):
    assert played.malformed == [] and probed.malformed == []


def test_nine_of_ten_failing_calls_of_every_class_get_a_hint(played, probed):
    for name, found in (("mutants", played), ("probes", probed)):
        failing, hinted = sum(found.failing.values()), sum(found.hinted.values())
        print(f"\n{name}: {hinted} of {failing} failing calls have a hint ({hinted / failing:.1%})")
        for owner in sorted(found.failing):
            share = found.hinted[owner] / found.failing[owner]
            print(f"  {owner}: {found.hinted[owner]} of {found.failing[owner]} ({share:.1%})")
            assert share >= 0.9
        assert set(CLASS_MODULES) < set(found.failing)


def test_giving_a_hint_changes_no_state_private_and_random_included():
    for mutant in mutants(SEED + 2, 400):
        with Episode(mutant.scenario) as episode:
            for number, calls in enumerate(mutant.turns):
                for call in calls:
                    result = episode.execute(call)
                    if result.error is not None:
                        before = fingerprint(episode._instances)
                        augmentation.hint(
                            augmentation.Situation(
                                mutant.scenario, number, call, result.text, result.error, episode._instances
                            )
                        )
                        assert fingerprint(episode._instances) == before
                episode.end_turn()


def test_the_check_for_leaks_sees_a_leak():
    scenario = load_scenarios("multi_turn_base")[0]
    with Episode(scenario, augment=True) as episode:
        assert leaks(scenario, 0, episode, [], "Use the pattern 'budget analysis'.") == ["budget analysis"]
        assert leaks(scenario, 1, episode, [], "Use the pattern 'budget analysis'.") == []
        assert leaks(scenario, 0, episode, [], "There is 'previous_report.pdf'.") == []
