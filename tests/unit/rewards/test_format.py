"""What the format reward promises, for any record and for policies in the real environment: work pays, safety does not.

solves no turn              earns at most 0.5
solves a share p of turns   earns at least p, and 0.5 + 1.5 p if it writes perfectly
"""

from functools import cache
from statistics import fmean

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from bfcl_env import Call, Episode, load_scenarios
from interaction import Conversation, get_protocol
from recipe.settings import CONFIG_DIR
from rewards import format as format_reward
from rewards.metrics import episode_metrics

think_xml = get_protocol("think_xml")
ANSWER = think_xml.render_answer("done", "done")
GARBAGE = "no tags at all"
CUT = "cut"
NOTHING_SOLVED = 0.5
SCENARIOS = load_scenarios("multi_turn_base", split="train")[::4] + load_scenarios("multi_turn_miss_param")[::20]


def score(record):
    return format_reward.compute_score("bfcl", "", None, {"episode": record})["score"]


# Any record.

CALLS = st.builds(
    lambda name, error, gold: {"name": name, "arguments": {}, "shown": None, "error": error, "facts": {"gold": gold}},
    st.sampled_from("abc"),
    st.sampled_from([None, "result"]),
    st.sampled_from([None, 0]),
)
STEPS = st.builds(
    lambda well_formed, calls: {"well_formed": well_formed, "calls": calls if well_formed else []},
    st.booleans(),
    st.lists(CALLS, max_size=4),
)


@st.composite
def turns(draw):
    """Also what no environment writes: turns that passed without a message, or were not reached."""
    passed = draw(st.booleans())
    return {
        "facts": {"has_gold": draw(st.booleans()), "passed_official": passed},
        "passed": passed,
        "reached": draw(st.booleans()),
        "steps": draw(st.lists(STEPS, max_size=4)),
    }


RECORDS = st.builds(
    lambda found: {"turns": found, "stop_reason": None, "outcome": None, "facts": {}},
    st.lists(turns(), min_size=1, max_size=6),
)


@settings(max_examples=200, deadline=None)
@given(RECORDS)
def test_any_record_earns_at_least_its_progress_and_at_most_what_perfect_writing_would(record):
    progress = episode_metrics(record)["progress"]
    assert progress - 1e-9 <= score(record) <= NOTHING_SOLVED + 1.5 * progress + 1e-9


@settings(max_examples=200, deadline=None)
@given(RECORDS, RECORDS)
def test_what_solves_nothing_never_earns_more_than_what_solves_half(first, second):
    works = any(turn["facts"]["has_gold"] for turn in first["turns"])  # or doing nothing is all there is to do
    for turn in first["turns"]:
        turn["passed"] = turn["passed"] and works and not turn["facts"]["has_gold"]
    for turn in second["turns"][: (len(second["turns"]) + 1) // 2]:
        turn |= {"facts": {"has_gold": True}, "passed": True}
    assert score(first) <= score(second)


def test_writing_well_pays_whether_or_not_the_turn_is_solved():
    """Without spread among those that solve nothing yet, GRPO would have nothing to learn writing from."""

    def turn(passed, *steps):
        return {"facts": {"has_gold": True}, "passed": passed, "reached": True, "steps": list(steps)}

    works = {"well_formed": True, "calls": [{"name": "a", "arguments": {}, "error": None, "facts": {}}]}
    fails = {"well_formed": True, "calls": [{"name": "b", "arguments": {}, "error": "result", "facts": {}}]}
    garbage = {"well_formed": False, "calls": []}
    for passed in (True, False):
        ranked = [[garbage, garbage, fails], [garbage, fails], [fails], [works, fails], [works]]
        earned = [format_reward.format_score({"turns": [turn(passed, *steps)]}) for steps in ranked]
        assert earned == sorted(set(earned))


# Policies in the real environment. Each function gives the messages of one turn.


def say(*calls):
    return think_xml.render_calls(", ".join(call.name for call in calls), calls)


def wrong(turn):
    return Call("no_such_function", {"x": turn})


def solve(scenario, turn):
    calls = scenario.turns[turn].gold
    return [say(*calls), ANSWER] if calls else [ANSWER]


VALUES = {"string": str, "integer": int, "float": float, "number": float, "boolean": bool}


def _with_values(doc, number):
    """A call of a function whose arguments are plain values made from `number`; None where it takes others."""
    needed = doc["parameters"].get("required", [])
    kinds = [doc["parameters"]["properties"][name]["type"] for name in needed]
    if not needed or set(kinds) - set(VALUES):
        return None
    return Call(doc["name"], {name: VALUES[kind](number) for name, kind in zip(needed, kinds, strict=True)})


@cache
def safe_calls(scenario):
    """A call a turn, each another one, of which every one works, whatever was asked for."""
    for doc in scenario.functions(0):
        calls = [_with_values(doc, number) for number in range(1, len(scenario.turns) + 1)]
        if all(calls):
            with Episode(scenario) as episode:
                if not any(episode.execute(call).error for call in calls):
                    return calls
    raise AssertionError(f"{scenario.id} has no safe call")


def safe_call(scenario, turn):
    return [say(safe_calls(scenario)[turn]), ANSWER]


def same_call(scenario, turn):
    return [say(safe_calls(scenario)[0]), ANSWER]


def safe_calls_beside_an_error(scenario, turn):
    return [say(wrong(turn), *safe_calls(scenario)), ANSWER]


def answer_always(scenario, turn):
    return [ANSWER]


def safe_call_where_nothing_is_asked(scenario, turn):
    return [ANSWER] if scenario.turns[turn].gold else safe_call(scenario, turn)


def garbage_after_a_safe_call(scenario, turn):
    return [*safe_call(scenario, turn)[:1], GARBAGE, ANSWER]


def one_failing_call_a_turn(scenario, turn):
    return [say(wrong(turn)), *solve(scenario, turn)]


def first_half(scenario, turn):
    """Whether the turn is of the first half, which holds a turn with gold calls in every scenario."""
    return 2 * turn < len(scenario.turns)


def half(before, after):
    return lambda scenario, turn: (before if first_half(scenario, turn) else after)(scenario, turn)


POLICIES = {
    # solves nothing
    "another safe call every turn": safe_call,
    "the same safe call every turn": same_call,
    "safe calls beside an error": safe_calls_beside_an_error,
    "answers always": answer_always,
    "a safe call where nothing is asked": safe_call_where_nothing_is_asked,
    "a malformed message after each safe call": garbage_after_a_safe_call,
    # solves half
    "half solved, then safe calls": half(solve, safe_call),
    "half solved, one failing call a turn": half(
        one_failing_call_a_turn, lambda s, t: [say(wrong(t)), *safe_call(s, t)]
    ),
    "half solved, then failing calls": half(solve, lambda s, t: [say(wrong(t)), ANSWER]),
    "half solved, then answers": half(solve, answer_always),
    "half solved, then silent": half(solve, lambda s, t: [CUT]),
    "half solved, then malformed": half(solve, lambda s, t: [GARBAGE] * 4),
    # solves all
    "all solved, one failing call a turn": one_failing_call_a_turn,
    "all solved": solve,
}


def play(scenario, policy):
    with Conversation(scenario, think_xml) as conversation:
        conversation.start()
        while not conversation.done:
            for text in policy(scenario, conversation.turn):
                if conversation.reply(text, truncated=text == CUT).done:
                    break
    return conversation.record().to_dict()


@cache
def earned(policy):
    """(share of turns solved, score) of each scenario."""
    records = [play(scenario, POLICIES[policy]) for scenario in SCENARIOS]
    return [(episode_metrics(record)["progress"], score(record)) for record in records]


@pytest.mark.parametrize("policy", POLICIES)
def test_what_a_policy_earns_is_bounded_by_what_it_solves(policy):
    for progress, score in earned(policy):
        assert progress <= score <= NOTHING_SOLVED + 1.5 * progress + 1e-9


def test_solving_half_in_whatever_way_earns_more_than_solving_nothing_in_any_way():
    found = [item for policy in POLICIES for item in earned(policy)]
    nothing = [score for progress, score in found if progress == 0]
    half = [score for progress, score in found if progress >= 0.5]
    assert len(nothing) > 5 * len(SCENARIOS) and len(half) > 7 * len(SCENARIOS)
    assert max(nothing) <= NOTHING_SOLVED < min(half)


def test_going_on_pays_more_than_falling_silent_and_clean_writing_more_than_failing():
    means = {policy: fmean(score for _, score in earned(policy)) for policy in POLICIES}
    ranked = [
        "half solved, then silent",
        "half solved, then failing calls",
        "half solved, then safe calls",
        "all solved",
    ]
    assert sorted(ranked, key=means.__getitem__) == ranked
    ranked = ["answers always", "safe calls beside an error", "another safe call every turn"]
    assert sorted(ranked, key=means.__getitem__) == ranked


def test_nothing_that_solves_no_turn_passes_the_gate_of_stage_1_and_good_writing_that_solves_half_does():
    gate = yaml.safe_load((CONFIG_DIR / "stage1.yaml").read_text("utf-8"))["stage"]["gate"]
    means = {policy: fmean(score for _, score in earned(policy)) for policy in POLICIES}
    assert NOTHING_SOLVED < gate["value"] < min(means["half solved, then safe calls"], means["all solved"])
    assert means["another safe call every turn"] < gate["value"]
