"""Hints: one rule each, with an example; they change nothing, give nothing away, and are there when they are needed.

Conversations are played twice side by side, with and without hints. In the play with hints, calls of every visible
function without and with nonsense arguments can come first in each turn, before the model could have seen anything.
"""

import copy
import dataclasses
import re
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from bfcl_env import Call, Episode, augmentation, load_scenarios
from bfcl_env.augmentation import office, trading, travel, vehicle
from bfcl_env.augmentation.__main__ import END, START, example, table
from bfcl_env.proof.mutants import mutants
from bfcl_env.scenarios import Turn
from bfcl_env.source import CLASS_MODULES, function_docs, function_owners

SEED = 20260701
NONSENSE = {"string": "nonsense", "integer": 987654321, "float": 987654321.5, "boolean": True, "array": []}
NONSENSE |= {"dict": {"nonsense": 1}}
TABLES = " ".join(
    [
        *(*vehicle.CITIES, *vehicle.distances(), *trading.COMPANIES, *trading.SECTORS, *travel.destinations()),
        *(*travel.CLASSES, *office.SI_UNITS, *chain(*office.IMPERIAL_UNITS), " .. "),
    ]
)
"""What is the same in every scenario, whatever its gold is: it says nothing about it."""


def words(text):
    return set(re.findall(r"\w+", text))


def test_every_rule_answers_its_example_and_never_needs_a_function_that_is_withheld():
    assert {rule.owner for rule in augmentation.RULES} == {"", *CLASS_MODULES}
    assert len({rule.name for rule in augmentation.RULES}) == len(augmentation.RULES)
    for rule in augmentation.RULES:
        assert all(function_owners()[name] == rule.owner for name in rule.functions.split()), rule.name
        situation = example(rule)
        found, text = augmentation.advise(situation)
        assert found is rule and text == augmentation.hint(situation) and len(text) <= augmentation.MAX_CHARS
        named = words(text).intersection(function_owners()).difference({situation.call.name})
        for name in named.intersection(situation.visible):
            turns = (*situation.scenario.turns, Turn("", (), (name,)))
            hidden = dataclasses.replace(situation, scenario=dataclasses.replace(situation.scenario, turns=turns))
            text = augmentation.hint(hidden)
            assert name in hidden.withheld and text and name not in words(text), (rule.name, name)


def test_the_documentation_contains_the_generated_table():
    text = Path(__file__).parents[3].joinpath("docs", "data", "hints.md").read_text("utf-8")
    assert text.count(START) == text.count(END) == 1
    shown = text.partition(START)[2].partition(END)[0].strip("\n") + "\n"
    assert shown == table(), "docs/data/hints.md is not what `python -m bfcl_env.augmentation` prints"


# Plays.


@dataclass
class Found:
    """What playing conversations brought to light."""

    wrong: list = field(default_factory=list)
    failing: Counter = field(default_factory=Counter)
    hinted: Counter = field(default_factory=Counter)
    silent: set = field(default_factory=set)
    """(task index, function) of calls that got a hint although BFCL marks no error."""


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
            yield from (str(value), str(int(value)) if value == int(value) else str(value))


def visible_state(scenario, turn, episode, known):
    """What functions that change nothing and are visible in this turn show, on a copy of the state."""
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
        bookings = reader._instances.get("TravelAPI")
        if bookings is not None and bookings.access_token and occurs(bookings.access_token, known):
            reads.append(Call("get_booking_history", {"access_token": bookings.access_token}))
        return " ".join(reader.execute(call).text for call in reads if call.name in reader._callable)


def leaks(scenario, turn, episode, said, hint):
    """Gold values of this and later turns in a hint that the model could not know.

    It could know the user's texts so far, the calls and results so far, the documents, `TABLES`, and visible state.
    """
    hint = re.sub(r" and \d+ more", "", hint)
    gold = {value for later in scenario.turns[turn:] for call in later.gold for value in values(call.arguments)}
    if not (found := [value for value in gold if occurs(value, hint)]):
        return []
    users = [item.user for item in scenario.turns[: turn + 1]]
    known = " ".join([TABLES, str(scenario.functions(turn)), *users, *said])
    if not (found := [value for value in found if not occurs(value, known)]):
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
                where = (scenario.id, number, str(call), two.hint)
                if (one.text, one.error) != (two.text, two.error) or one.hint is not None:
                    found.wrong.append(("another result", where))
                said += [str(call), two.text]
                owner = function_owners().get(call.name) if call.name in scenario.visible(number) else None
                if two.error is not None:
                    found.failing[owner or "no such function"] += 1
                    found.hinted[owner or "no such function"] += two.hint is not None
                if two.hint is None:
                    continue
                if two.error is None:
                    found.silent.add((scenario.index, call.name))
                if not 0 < len(two.hint) <= augmentation.MAX_CHARS or "\n" in two.hint:
                    found.wrong.append(("no short line", where))
                if words(two.hint).intersection(scenario.withheld(number)):
                    found.wrong.append(("names a withheld function", where))
                if leaked := leaks(scenario, number, augmented, said, two.hint):
                    found.wrong.append((leaked, where))
            if plain.end_turn() != augmented.end_turn():
                found.wrong.append(("another verdict", scenario.id, number))


def strict(situation):
    """`augmentation.hint`, but a rule that raises fails the test, and so does one that changes the state."""
    advice = augmentation.advise(situation)
    return advice[1] if advice else None


def test_gold_gets_no_hint_where_it_succeeds():
    found = Found()
    for scenario in load_scenarios():
        play(scenario, [turn.gold for turn in scenario.turns], found)
    assert found.wrong == [] and found.failing == Counter()
    verify = "verify_traveler_information"  # and two others whose failure BFCL does not mark as an error
    assert found.silent == {
        *((index, verify) for index in (153, 154, 181)),
        (188, "authenticate_twitter"),
        (195, "retweet"),
    }


def test_hints_change_nothing_give_nothing_away_and_nine_of_ten_failing_calls_get_one(monkeypatch):
    monkeypatch.setattr(augmentation, "hint", strict)
    played, probed = Found(), Found()
    for mutant in mutants(SEED, 1_000):
        play(mutant.scenario, mutant.turns, played)
    for category in ("multi_turn_miss_func", "multi_turn_miss_param"):
        for scenario in load_scenarios(category)[::10]:
            play(scenario, [turn.gold for turn in scenario.turns], probed, probe=True)
    for name, found in (("mutants", played), ("probes", probed)):
        assert found.wrong == []
        failing, hinted = sum(found.failing.values()), sum(found.hinted.values())
        print(f"\n{name}: {hinted} of {failing} failing calls have a hint ({hinted / failing:.1%})")
        for owner, count in sorted(found.failing.items()):
            print(f"  {owner}: {found.hinted[owner]} of {count} ({found.hinted[owner] / count:.1%})")
            assert found.hinted[owner] / count >= 0.9
    assert set(CLASS_MODULES) < set(probed.failing) and sum(played.failing.values()) > 700
