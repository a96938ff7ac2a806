"""What each reward pays, as tables of small hand-made episodes, and what the format reward promises of any record.

solves no turn              earns at most 0.5
solves a share p of turns   earns at least p, and 0.5 + 1.5 p if it writes perfectly
"""

import json
import math
from itertools import product
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from interaction import StopReason
from recipe.settings import CONFIG_DIR
from rewards import all_or_nothing, dense, metrics, outcome
from rewards import format as format_reward
from rewards import progress as progress_reward
from rewards.metrics import STOP_REASONS, episode_metrics

GOLD = "cd"
"""The function that gold calls in every turn."""
ANSWER, GARBAGE = "answer", "garbage"
ONE, TWO = ({"gold_calls": len(names), "gold_functions": names} for names in ([GOLD], [GOLD, "ls"]))
THREE = {"gold_calls": 1, "gold_functions": ["ls"], "gold_arguments": [{"a": [1], "b": [[2]], "c": ["", 3]}]}
TWICE = {"gold_calls": 2, "gold_functions": ["ls", "ls"], "gold_arguments": [{"a": [1]}, {"a": [1]}]}


def ok(name, /, error=None, **arguments):
    gold = 0 if name == GOLD and error is None else None
    return {"name": name, "arguments": arguments, "result": "", "shown": None, "error": error, "facts": {"gold": gold}}


def bad(name, /, **arguments):
    return ok(name, "result", **arguments)


def turn(*steps, gold=True, passed=False, reached=True, **facts):
    """A message is ANSWER, GARBAGE, or a list of calls."""
    return {
        "facts": {"has_gold": gold} | ({} if passed is None else {"passed_official": passed}) | facts,
        "reached": reached,
        "passed": passed,
        "steps": [{"well_formed": step != GARBAGE, "calls": [] if isinstance(step, str) else step} for step in steps],
    }


def episode(*turns, stop_reason="completed", **changed):
    """A record as it comes out of a file."""
    passed = bool(turns) and all(turn["passed"] for turn in turns)
    record = {"stop_reason": stop_reason, "facts": {}, "outcome": {"passed": passed}, "turns": turns, **changed}
    return json.loads(json.dumps(record))


def as_a_whole(*messages, **outcome):
    """An episode whose turns, of one message each, are not judged."""
    return episode(*[turn(message, passed=None, **ONE) for message in messages], outcome=outcome)


GOOD = [[ok("cd", folder="x")], ANSWER]
PASS, FAIL = turn(*GOOD, passed=True), turn(*GOOD)
FREE = turn(ANSWER, gold=False, passed=True)
UNREACHED = turn(reached=False)
READ = [ok("cat", file="a")]

FORM = {
    "always answering": ([turn(ANSWER), turn(ANSWER)], 0.0),
    "answering where nobody says whether gold calls": ([{**turn(ANSWER), "facts": {}}], 0.0),
    "paying every turn with ls()": ([turn([ok("ls")], ANSWER)] * 2, 1.0),
    "the same arguments in another order": ([turn([ok("mv", a=1, b=2)]), turn([ok("mv", b=2, a=1)])], 1.0),
    "one error beside one success": ([turn([bad("cd", folder="y"), ok("cd", folder="x")], ANSWER)], 1.5),
    "a pair that failed first": ([turn([bad("cd", folder="x")], [ok("cd", folder="x")], ANSWER)], 1.0),
    "gold's call counts again in another turn": ([FAIL, FAIL], 2.0),
    "what worked in an earlier turn and is an error now": ([turn(READ), turn([bad("cat", file="a")])], 1.5),
    "what was an error in an earlier turn and works now": ([turn([bad("cat", file="a")]), turn(READ)], 1.5),
    "one malformed message of three": ([turn(GARBAGE, *GOOD)], 1 + 2 / 3),
    "a working call where nothing is to be called": ([turn([ok("cd", folder="x")], ANSWER, gold=False)], 2.0),
}
"""Mean of w + s over the turns, none of which passed: the reward is a quarter of it."""

FORMAT = {
    "half solved, the rest as well written": (episode(PASS, FAIL), 1.25),
    "half solved, then silent": (episode(PASS, UNREACHED), 1.0),
    "only turns passed in which nothing is to be called": (episode(FREE, FREE, FAIL), 0.5),
    "one turn with gold makes the others count": (episode(FREE, FREE, PASS), 2.0),
    "solved as a whole, with one error of two": (as_a_whole(READ, [bad("ls")], ANSWER, passed=True), 1.75),
    "solved as a whole without a call": (as_a_whole(ANSWER, ANSWER, passed=True), 2.0),
    "not solved as a whole": (as_a_whole(READ, READ, GARBAGE, passed=False), (2 / 3 + 1) / 4),
    "not solved as a whole without a call": (as_a_whole(ANSWER, ANSWER, passed=False), 0.0),
    "gold has made one of the calls before": (episode(turn(READ), turn([ok("ls")]), given=[turn(READ)]), 0.25),
    "gold has failed with a call before": (episode(turn(READ), given=[turn([bad("cat", file="a")])]), 0.5),
    "nothing": (episode(), 0.0),
}

HALF = turn(*GOOD, share=0.5, **ONE)
PROGRESS = {
    "one turn with gold makes the free turns count": (episode(PASS, FREE, FAIL, FAIL), (0.5, 0.5, 0, 0)),
    "always answering": (episode(turn(ANSWER), FREE, turn(ANSWER), turn(ANSWER)), (0.0, 0.25, 0, 0)),
    "answering where nothing is to be called": (episode(FREE), (1.0, 1.0, 1, 1)),
    "half solved, then silent": (episode(PASS, UNREACHED), (0.5, 0.5, 0, 0)),
    "half of a turn is work": (episode(HALF, FREE), (0.75, 0.75, 0, 0)),
    "no share of a turn is none": (episode(turn(*GOOD, share=0.0), FREE), (0.0, 0.5, 0, 0)),
    "passed by the source's rule alone": (episode(turn(*GOOD, passed_official=True)), (0.0, 0.0, 0, 1)),
    "the source judges the episode": (episode(PASS, facts={"passed_official": False}), (1.0, 1.0, 1, 0)),
    "solved as a whole": (as_a_whole(*GOOD, passed=True), (1.0, 1.0, 1, 1)),
    "not solved as a whole": (as_a_whole(*GOOD, passed=False), (0.0, 0.0, 0, 0)),
    "a quarter of the whole": (as_a_whole(ANSWER, passed=False, components={"episode": 0.25}), (0.25, 0.25, 0, 0)),
    "never judged": (as_a_whole(ANSWER, passed=True) | {"outcome": None}, (0.0, 0.0, 0, 0)),
    "no turns": (episode(), (0.0, 0.0, 0, 0)),
}
"""`progress`, `progress_raw`, `acc` and `acc_official`."""

MANY, MISSED = [ok("ls")] * 10, [bad("cd", folder="y")]
SOLVED, CALLED = turn(*GOOD, passed=True, **ONE), turn(MANY[:1], gold=False, passed=True, gold_calls=0)
DENSE = {
    "gold": ([SOLVED, PASS], {}, [0, 0.5, 0, 0.5], 0),
    "two calls too many": ([turn([bad("ls"), *GOOD[0]], MANY[:1], passed=True, **ONE), PASS], {}, [0, 0, 0, 0.5], 2),
    "a call where gold makes none": ([SOLVED, CALLED], {}, [0, 0.5, 0.25], 1),
    "a price is a turn's worth at most": ([SOLVED, turn(MANY, **ONE)], {}, [0, 0.5, -0.5], 9),
    "nothing solved": ([turn(MANY[:1], **ONE), CALLED], {}, [0, -0.25], 1),
    "a price of all": ([turn(MANY[:2], passed=True, **ONE)], {"price": 1}, [0], 1),
    "no price": ([turn(MANY, **ONE)], {"price": 0}, [0], 9),
    "gold's function": ([turn(MISSED, ANSWER, **ONE), PASS], {}, [0, 0.3 / 4, 0, 0.5], 0),
    "gold's call": ([turn(*GOOD, **ONE), PASS], {}, [0, 0.3 / 2, 0, 0.5], 0),
    "one call of two": ([turn(*GOOD, **TWO)], {}, [0, 0.3 / 2], 0),
    "an error beside it": ([turn([*MISSED, *GOOD[0]], **ONE)], {"price": 0}, [0.3 / 2], 1),
    "both functions among four": ([turn([*MISSED * 3, bad("ls")], **TWO)], {"price": 0}, [0.3 / 4], 2),
    "no function of gold's": ([turn([ok("pwd"), ok("a")], **ONE)], {"price": 0}, [0], 1),
    "gold's call with other arguments": ([turn(*GOOD, gold_arguments=[{"folder": ["y"]}], **ONE)], {}, [0, 0.3], 0),
    "a call without arguments that fails": ([turn([bad("cd")], gold_arguments=[{}], **ONE)], {}, [0.3 / 2], 0),
    "one left out": ([turn([bad("ls", a=1)], **THREE)], {}, [0.3 * 5 / 6], 0),
    "one too many": ([turn([bad("ls", a=1, b=[2], c=3, d=4)], **THREE)], {}, [0.3 * 7 / 8], 0),
    "another value": ([turn([bad("ls", a="1", b=[2])], **THREE)], {}, [0.3 * 5 / 6], 0),
    "the nearest call": ([turn([bad("ls"), bad("ls", a=1, b=[2])], **THREE)], {"price": 0}, [0.3 / 2], 1),
    "each call for one of gold's": ([turn([bad("ls", a=1)], **TWICE)], {}, [0.3 / 2], 0),
    "all for half": ([turn(MISSED, **ONE)], {"partial": 1}, [0.5], 0),
    "nothing for half": ([turn(MISSED, **ONE)], {"partial": 0}, [0], 0),
    "nobody says what gold calls": ([FAIL, PASS], {}, [0, 0, 0, 0.5], 0),
    "a check's share": ([HALF, UNREACHED], {}, [0, (0.5 + 0.3 / 2) / 2], 0),
}
"""Turns, settings, what each message earns, and the calls beyond gold's."""

PRICES = ((None, 0.8), (0, 1), (0.3, 0.4), (1, 0))
OUTCOME = [({"rule": "priced", "price": price}, False, True, paid) for price, paid in PRICES]
OUTCOME += [({"rule": rule}, True, False, paid) for rule, paid in (("clean", 1), ("official", 0), ("priced", 0))]
OUTCOME += [({}, True, False, 1), ({}, False, True, 0), ({"rule": "official"}, False, True, 1)]
OUTCOME = json.loads(json.dumps(OUTCOME))  # settings come out of a file
"""Settings, whether it passed and by the source's rule, and the reward of an episode with two needless writes."""

WRONG = {dense: [{name: value} for name in ("partial", "price") for value in (2, -0.5, True, math.nan, "1")]}
WRONG[outcome] = [{"rule": "priced", "price": value} for value in (2, -0.5, True, math.nan, "1")]
WRONG[outcome] += [{"price": 0.1}, {"rule": "official", "price": 0}, {"rule": "best"}]


def score(reward, record):
    return reward.compute_score("bfcl", "", [], {"episode": record})["score"]


def test_each_episode_is_paid():
    for case, (turns, form) in FORM.items():
        assert score(format_reward, episode(*turns)) == pytest.approx(form / 4), case
    for case, (record, expected) in FORMAT.items():
        assert score(format_reward, record) == pytest.approx(expected), case
    for case, (record, expected) in PROGRESS.items():
        found = episode_metrics(record)
        assert tuple(found[name] for name in ("progress", "progress_raw", "acc", "acc_official")) == expected, case
        assert score(progress_reward, record) == found["progress"], case
        assert score(all_or_nothing, record) == found["acc"], case
    for case, (turns, given_settings, expected, surplus) in DENSE.items():
        found = dense.compute_score("bfcl", "", [], {"episode": episode(*turns)}, **given_settings)
        assert (found["step_scores"], found["surplus"]) == (pytest.approx(expected), surplus), case
        assert found["score"] == pytest.approx(sum(expected)), case
    for given_settings, passed, official, expected in OUTCOME:
        record = episode(outcome={"passed": passed}, facts={"passed_official": official, "needless": ["a", "b"]})
        found = outcome.compute_score("tau", "", [], {"episode": record}, **given_settings)
        assert (found["score"], found["needless"]) == (pytest.approx(expected), 2), given_settings
    assert score(dense, as_a_whole(*GOOD, passed=True)) == score(outcome, episode(PASS)) == 1


def test_a_setting_out_of_range_is_refused():
    for reward, wrong in WRONG.items():
        for given_settings in wrong:
            with pytest.raises(ValueError, match="expected"):
                reward.compute_score("bfcl", "", [], {"episode": episode(PASS)}, **given_settings)
    with pytest.raises(ValueError, match="longer"):
        score(dense, episode(turn(*GOOD, gold_arguments=[{}, {}], **ONE)))


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
    assert sum(value for name, value in counts.items() if name.startswith("stop/")) == 1
    assert sum(episode_metrics(episode()).values()) == 1, "its stop reason, and no rate of nothing"
    rewards = (format_reward, progress_reward, dense, all_or_nothing, outcome)
    for reward, record in product(rewards, (episode(), episode(PASS))):
        scores = reward.compute_score("bfcl", "", None, {"episode": record}, extra=1)
        for own in ("step_scores", "needless"):  # the first is taken out before verl sees it
            scores.pop(own, None)
        assert tuple(scores) == ("score", *counts)
        assert all(type(value) is float for value in scores.values())


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
