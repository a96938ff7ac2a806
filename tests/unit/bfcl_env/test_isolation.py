"""No state is shared between episodes or left in the process: threads, long-context constants, precision, memory."""

import copy
import dataclasses
import decimal
import os
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest

import mpmath

from bfcl_env import Episode, load_scenarios, make_call
from bfcl_env.execution import _LIST_DEFAULTS
from bfcl_env.proof.mutants import random_call
from bfcl_env.source import CLASS_MODULES, function_docs, function_owners, load_class, load_padding

CARELESS = ("logarithm", "square_root", "get_outside_temperature_from_google", "book_flight", "post_tweet", "mention")
"""Functions that write what BFCL shares: precision, the weather, credit cards, lists of tweets."""


def careless_calls(scenario, rng):
    """Calls of those functions, as far as the scenario has them, that succeed."""
    for name in CARELESS:
        if function_owners()[name] in scenario.classes:
            yield random_call(scenario, rng, frozenset({name}))
    if "MathAPI" in scenario.classes:
        yield make_call("square_root", {"number": rng.randint(2, 99), "precision": rng.randint(3, 60)})
    if "TravelAPI" in scenario.classes and scenario.long_context:
        token = scenario.initial_config["TravelAPI"].get("access_token")
        of_card = {"access_token": token, "card_id": rng.choice(list(load_padding().CREDIT_CARD_EXTENSION))}
        bought = {"insurance_type": "x", "booking_id": "booking_901", "insurance_cost": 0.5}
        yield make_call("purchase_insurance", {**of_card, **bought})
        yield make_call("get_credit_card_balance", of_card)


def scripts(count, seed):
    """Scenarios with the calls of each turn: gold mixed with drawn and careless calls."""
    rng = random.Random(seed)
    long = load_scenarios("multi_turn_long_context")
    classes = ("TravelAPI", "VehicleControlAPI", "MathAPI", "TwitterAPI")
    pools = [*([item for item in long if name in item.classes] for name in classes), load_scenarios()]
    for number in range(count):
        scenario = rng.choice(pools[number % len(pools)])
        turns = [[*turn.gold, *careless_calls(scenario, rng), random_call(scenario, rng)] for turn in scenario.turns]
        yield scenario, [rng.sample(calls, len(calls)) for calls in turns]


def transcript(scenario, turns):
    """Everything that an episode hands back, one item after every call."""
    with Episode(scenario) as episode:
        for calls in turns:
            for call in calls:
                result = episode.execute(call)
                yield result.text, result.error
            yield episode.end_turn()


def interleaved(items):
    """The transcripts of all items, each advanced by one step in turn."""
    rounds = zip_longest(*(transcript(*item) for item in items))
    return [[step for step in steps if step is not None] for steps in zip(*rounds, strict=True)]


def test_interleaved_episodes_of_eight_threads_give_the_results_of_a_serial_run():
    items = [*scripts(60, seed=5)]
    assert {name for item in items for name in item[0].classes} == set(CLASS_MODULES)
    serial = [list(transcript(*item)) for item in items]
    fresh = [(dataclasses.replace(scenario), turns) for scenario, turns in items]  # gold is first needed in threads
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            orders = [random.Random(number).sample(range(len(items)), len(items)) for number in range(8)]
            futures = [pool.submit(interleaved, [fresh[at] for at in order]) for order in orders]
            for order, future in zip(orders, futures, strict=True):
                for at, steps in zip(order, future.result(), strict=True):
                    assert steps == serial[at], items[at][0].id
    finally:
        sys.setswitchinterval(before)


def defaults():
    for class_name, docs in function_docs().items():
        for name in docs:
            yield (class_name, name), getattr(load_class(class_name), name).__defaults__ or ()


def shared_data():
    """Copies of what the classes share by themselves, module constants and defaults of functions, and of settings."""
    found = {"settings": (mpmath.mp.prec, repr(decimal.getcontext()), random.getstate(), os.getcwd(), dict(os.environ))}
    for module in [load_padding(), *(sys.modules[load_class(name).__module__] for name in CLASS_MODULES)]:
        for name, value in vars(module).items():
            if isinstance(value, list | dict) and not name.startswith("__"):
                found[module.__name__, name] = copy.deepcopy(value)
                if name == "LONG_WEATHER_EXTENSION":
                    found[module.__name__, name].pop("outsideTemperature", None)  # written before read, under a lock
    return found | {key: copy.deepcopy(value) for key, value in defaults()}


def test_no_call_changes_what_the_classes_share_or_the_settings_of_the_process():
    for item in scripts(5, seed=7):
        list(transcript(*item))
    decimal.getcontext().clear_flags()
    with mpmath.workdps(31):
        before = shared_data()
        assert {"DEFAULT_STATE", "CREDIT_CARD_EXTENSION", "MA_20_EXTENSION"} <= {key[1] for key in before}
        for item in scripts(250, seed=6):
            list(transcript(*item))
        assert shared_data() == before
    found = {key[1] for key, values in defaults() if any(isinstance(value, list | dict | set) for value in values)}
    assert found == _LIST_DEFAULTS.keys()
