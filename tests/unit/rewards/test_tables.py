"""What each reward pays, as tables of small hand-made episodes, and what the format reward promises of any record.

solves no turn              earns at most 0.5
solves a share p of turns   earns at least p, and 0.5 + 1.5 p if it writes perfectly
"""

from itertools import product
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from interaction import StopReason
from recipe.settings import CONFIG_DIR
from rewards import all_or_nothing, dense, metrics
from rewards import format as format_reward
from rewards import progress as progress_reward
from rewards.metrics import STOP_REASONS, episode_metrics

GOLD = "cd"
"""The function that gold calls in every turn."""
ANSWER, GARBAGE = "answer", "garbage"


def ok(name, error=None, **arguments):
    gold = 0 if name == GOLD and error is None else None
    return {"name": name, "arguments": arguments, "result": "", "shown": None, "error": error, "facts": {"gold": gold}}


def bad(name, **arguments):
    return ok(name, "result", **arguments)


def turn(*steps, gold=True, passed=False, reached=True):
    """A message is ANSWER, GARBAGE, or a list of calls."""
    return {
        "facts": {"has_gold": gold, "passed_official": passed},
        "reached": reached,
        "passed": passed,
        "steps": [{"well_formed": step != GARBAGE, "calls": [] if isinstance(step, str) else step} for step in steps],
    }


def episode(*turns, stop_reason="completed"):
    passed = bool(turns) and all(turn["passed"] for turn in turns)
    return {"stop_reason": stop_reason, "facts": {}, "outcome": {"passed": passed}, "turns": list(turns)}


GOOD = [[ok("cd", folder="x")], ANSWER]
PASS, FAIL = turn(*GOOD, passed=True), turn(*GOOD)
FREE = turn(ANSWER, gold=False, passed=True)
UNREACHED = turn(reached=False)

FORM = {
    "gold's calls": ([FAIL], 2.0),
    "always answering": ([turn(ANSWER), turn(ANSWER)], 0.0),
    "stopping after one good turn": ([FAIL, UNREACHED, UNREACHED, UNREACHED], 0.5),
    "cut in the second turn": ([FAIL, turn([ok("a", x=1)], GARBAGE)], 1.75),
    "calling once, then only answering": ([FAIL, turn(ANSWER), turn(ANSWER), turn(ANSWER)], 0.5),
    "paying every turn with ls()": ([turn([ok("ls")], ANSWER)] * 2, 1.0),
    "one error beside one success": ([turn([bad("cd", folder="y"), ok("cd", folder="x")], ANSWER)], 1.5),
    "a pair that failed first": ([turn([bad("cd", folder="x")], [ok("cd", folder="x")], ANSWER)], 1.0),
    "gold's call counts again in another turn": ([FAIL, FAIL], 2.0),
    "another read in every turn": ([turn([ok("cat", file=name)], ANSWER) for name in "abcd"], 2.0),
    "what worked in an earlier turn and is an error now": (
        [turn([ok("cat", file="a")], ANSWER), turn([bad("cat", file="a")], ANSWER)],
        1.5,
    ),
    "one malformed message of three": ([turn(GARBAGE, *GOOD)], 1 + 2 / 3),
    "a working call where nothing is to be called": ([turn([ok("cd", folder="x")], ANSWER, gold=False)], 2.0),
}
"""Mean of w + s over the turns, none of which passed: the reward is a quarter of it."""

FORMAT = {
    "half solved, the rest as well written": (episode(PASS, FAIL), 1.25),
    "half solved, then silent": (episode(PASS, UNREACHED), 1.0),
    "solved, with one malformed message of three": (episode(turn(GARBAGE, *GOOD, passed=True)), 1.5 + 2 / 6),
    "only turns passed in which nothing is to be called": (episode(FREE, FREE, FAIL), 0.5),
    "one turn with gold makes the others count": (episode(FREE, FREE, PASS), 2.0),
}

PROGRESS = {
    "gold": (episode(PASS, PASS, FREE), 1.0, 1.0),
    "one turn with gold makes the free turns count": (episode(PASS, FREE, FAIL, FAIL), 0.5, 0.5),
    "always answering": (episode(turn(ANSWER), FREE, turn(ANSWER), turn(ANSWER)), 0.0, 0.25),
    "no turns": (episode(), 0.0, 0.0),
}


def score(reward, record):
    return reward.compute_score("bfcl", "", [], {"episode": record})["score"]


def test_each_episode_is_paid():
    for case, (turns, form) in FORM.items():
        assert score(format_reward, episode(*turns)) == pytest.approx(form / 4), case
    for case, (record, expected) in FORMAT.items():
        assert score(format_reward, record) == pytest.approx(expected), case
    for case, (record, expected, raw) in PROGRESS.items():
        assert score(progress_reward, record) == pytest.approx(expected), case
        assert episode_metrics(record)["progress_raw"] == pytest.approx(raw), case
        assert score(all_or_nothing, record) == (record["outcome"]["passed"] and expected), case


CALLS = st.builds(ok, st.sampled_from(["a", "b", GOLD]), st.sampled_from([None, "result"]))
STEPS = st.lists(st.just(GARBAGE) | st.lists(CALLS, max_size=4), max_size=4)
TURNS = st.builds(
    lambda steps, **how: turn(*steps, **how), STEPS, gold=st.booleans(), passed=st.booleans(), reached=st.booleans()
)
"""Also those that no environment writes: that passed without a message, or were not reached."""


@settings(max_examples=200, deadline=None)
@given(st.lists(TURNS, min_size=1, max_size=6))
def test_any_record_earns_at_least_its_progress_and_at_most_what_perfect_writing_would(turns):
    record = episode(*turns)
    progress = episode_metrics(record)["progress"]
    assert progress - 1e-9 <= score(format_reward, record) <= 0.5 + 1.5 * progress + 1e-9


def test_metrics_count_what_happened_under_the_same_keys_as_floats():
    first = turn([ok("ls"), bad("cd", folder="y")], GARBAGE, ANSWER, passed=True)
    counts = episode_metrics(episode(first, FREE, UNREACHED, stop_reason="max_steps"))
    assert (counts["format_rate"], counts["call_success_rate"]) == (3 / 4, 1 / 2)
    assert (counts["turns"], counts["steps"], counts["calls"]) == (2.0, 4.0, 2.0)
    assert (counts["acc"], counts["acc_official"], counts["stop/max_steps"]) == (0.0, 0.0, 1.0)
    for reward, record in product((format_reward, progress_reward, dense, all_or_nothing), (episode(), episode(PASS))):
        scores = reward.compute_score("bfcl", "", None, {"episode": record}, extra=1)
        scores.pop("step_scores", None)  # of `dense`, taken out before verl sees them
        assert tuple(scores) == ("score", *counts)
        assert all(type(value) is float for value in scores.values())


def test_a_price_is_paid_for_each_call_beyond_the_number_that_gold_makes_in_its_turn():
    once = {"has_gold": True, "gold_calls": 1}
    good = turn(*GOOD, passed=True) | {"facts": once}
    more = turn([bad("ls"), ok("ls")], *GOOD, passed=True) | {"facts": once}
    wrong = turn([ok("ls")], ANSWER) | {"facts": once}
    many = turn([ok("ls")] * 10, ANSWER) | {"facts": once}
    none = turn([ok("ls")], ANSWER, gold=False, passed=True) | {"facts": {"has_gold": False, "gold_calls": 0}}
    for turns, surplus, paid in (
        ([good, wrong], 0, 0.5),
        ([good, more], 2, 0.5),
        ([good, none], 1, 0.75),
        ([wrong, none], 1, -0.25),
        ([good, many], 9, 0.0),
        ([PASS, PASS], 0, 1.0),
    ):
        scores = dense.compute_score("bfcl", "", [], {"episode": episode(*turns)}, partial=0)
        assert (scores["surplus"], scores["score"]) == (surplus, pytest.approx(paid))
    with pytest.raises(ValueError, match="price=2; expected 0 to 1"):
        dense.compute_score("bfcl", "", [], {"episode": episode(PASS)}, price=2)


def test_a_failed_turn_is_paid_for_the_functions_and_calls_of_gold_that_it_has_and_a_solved_one_no_more_than_before():
    once = {"has_gold": True, "gold_calls": 1, "gold_functions": [GOLD]}
    twice = once | {"gold_calls": 2, "gold_functions": [GOLD, "ls"]}
    for messages, facts, share in (
        ([[bad("cd", folder="y")], ANSWER], once, 0.5),
        ([[ok("cd", folder="x")], ANSWER], once, 1.0),
        ([[ok("cd", folder="x")], ANSWER], twice, 0.5),
        ([[bad("cd", folder="y"), ok("cd", folder="x")], ANSWER], once, 0.5),
        ([[bad("cd"), bad("cd"), bad("cd"), bad("ls")], ANSWER], twice, 0.25),
        ([[ok("pwd")], ANSWER], once, 0.0),
        ([[ok("cd", folder="x")], ANSWER], {"has_gold": False, "gold_calls": 0, "gold_functions": []}, 0.0),
    ):
        failed = episode(turn(*messages) | {"facts": facts}, PASS)
        scores = dense.compute_score("bfcl", "", [], {"episode": failed}, price=0)
        assert scores["score"] == pytest.approx(scores["progress"] + 0.3 * share / 2), messages
    assert score(dense, episode(PASS, PASS)) == 1.0


def test_the_stop_reasons_are_those_of_the_conversation():
    assert STOP_REASONS == tuple(reason.value for reason in StopReason)


def test_the_plug_in_of_the_readme_works_as_written():
    readme = Path(metrics.__file__).with_name("README.md").read_text("utf-8")
    namespace: dict = {}
    exec(readme.split("```python\n")[1].split("```")[0], namespace)
    scores = namespace["compute_score"]("bfcl", "", None, {"episode": episode(PASS, PASS)}, price=0.1)
    assert scores["score"] == pytest.approx(0.8)


def test_nothing_that_solves_no_turn_passes_the_gate_of_stage_1_and_good_writing_that_solves_half_does():
    gate = yaml.safe_load((CONFIG_DIR / "stage1.yaml").read_text("utf-8"))["stage"]["gate"]
    assert 0.5 < gate["value"] < FORMAT["half solved, the rest as well written"][1]
