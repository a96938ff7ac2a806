"""What gold and policies that do not solve the task get, and which entries are worth less than they look."""

import subprocess
import sys
from collections import Counter

import pytest

from bfcl_env import CATEGORIES, CallError, load_scenarios, parse_call
from bfcl_env.suspicious import suspicions
from bfcl_env.validate import POLICIES, always_answer, echo, play, repeat_last_call, score, skip_a_turn

MISS = ("multi_turn_miss_func", "multi_turn_miss_param")


@pytest.mark.parametrize("category", CATEGORIES)
def test_gold_scores_one(category):
    got = score("gold", category)
    assert (got.passed, got.turns_passed) == (200, got.turns)
    assert got.progress == got.progress_raw == 1.0


@pytest.mark.parametrize("policy", ["always answer", "echo"])
@pytest.mark.parametrize("category", CATEGORIES)
def test_a_policy_without_calls_scores_zero_and_raw_only_what_turns_without_gold_give(policy, category):
    got = score(policy, category)
    assert got.passed == 0 and got.progress == 0.0
    assert got.turns_passed == (203 if category in MISS else 3)
    assert got.progress_raw == pytest.approx(0.235 if category in MISS else 0.003, abs=5e-4)


def test_no_request_of_a_user_reads_as_a_call_so_that_an_echo_is_an_answer():
    for scenario in load_scenarios():
        for turn in scenario.turns:
            with pytest.raises(CallError):
                parse_call(turn.user, scenario)
        assert echo(scenario) == always_answer(scenario)


@pytest.mark.parametrize("category", CATEGORIES)
def test_drawn_calls_score_next_to_nothing(category):
    got = score("random calls", category)
    assert got.passed == 0 and got.progress < 0.02
    assert got.progress_raw < 0.235  # Less than answering: the state is changed where nothing should be done.


@pytest.mark.parametrize("category", CATEGORIES)
def test_repeating_one_right_call_passes_a_task_only_if_that_is_the_answer(category):
    got = score("repeat last call", category)
    assert got.passed <= 1 and 0.1 < got.progress < 0.25
    for scenario in load_scenarios(category):
        if all(repeat_last_call(scenario)):
            assert all(len(turn.gold) <= 1 for turn in scenario.turns)


@pytest.mark.parametrize("category", CATEGORIES)
def test_skipping_a_turn_fails_it_and_passes_no_task(category):
    got = score("skip a turn", category)
    assert got.passed == 0 and 0.3 < got.progress < 0.4
    for scenario in load_scenarios(category):
        first = next(number for number, turn in enumerate(scenario.turns) if turn.gold)
        assert not skip_a_turn(scenario)[first]


def test_policies_play_the_same_every_time():
    assert all(score(policy, CATEGORIES[1]) == score(policy, CATEGORIES[1]) for policy in POLICIES)


def test_the_suspicious_entries_of_the_pinned_data_are_known():
    found = Counter(item.reason for scenario in load_scenarios() for item in suspicions(scenario))
    assert found == {
        "does not depend on earlier turns: passes when they are all skipped": 588,
        "the first turn has no gold calls": 175,
        "passes with a call of a function that does not exist, after gold": 27,
        "no gold calls, in a category where every request can be fulfilled": 6,
        "a withheld function that gold never calls": 17,
        "a gold call can be left out: this and later turns pass": 3,
        "gold calls a function before it is published": 1,
    }


def test_a_gold_call_that_fails_is_suspicious(monkeypatch):
    from bfcl_env import suspicious
    from interaction.outcome import ErrorKind

    monkeypatch.setattr(suspicious, "run_call", lambda call, instances: ("broken", ErrorKind.EXECUTION))
    scenario = load_scenarios("multi_turn_base")[0]
    found = [item for item in suspicions(scenario) if item.reason == "a gold call fails"]
    assert len(found) == sum(len(turn.gold) for turn in scenario.turns)
    assert "broken" in found[0].detail


def test_a_turn_that_passes_with_junk_is_one_whose_results_and_state_gold_had_before():
    scenario = next(
        item for item in load_scenarios() if any("does not exist" in found.reason for found in suspicions(item))
    )
    (number,) = [item.turn for item in suspicions(scenario) if "does not exist" in item.reason]
    gold = [turn.gold for turn in scenario.turns]
    junk = parse_call("no_such_function()", scenario)
    turns = tuple((junk,) if at == number else calls for at, calls in enumerate(gold))
    assert play(scenario, turns)[number]


def test_the_command_prints_the_table_and_the_list():
    done = subprocess.run([sys.executable, "-m", "bfcl_env", "validate"], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert sum(" multi_turn_" in line and line.startswith(tuple(POLICIES)) for line in lines) == len(POLICIES) * len(
        CATEGORIES
    )
    assert "the first turn has no gold calls (175)" in lines
    assert any("--all lists them" in line for line in lines)
