"""Votes in place of the step reward's rules: what they pay, whose they are, and what is wrong with a file."""

import json
import math
import subprocess
import sys

import pytest

from recipe.reward import sample_record
from rewards import step as step_reward
from rewards import votes

BEST = {"succ_calling": [1], "contribution": [5]}
HALVES = [{name: votes} for name, votes in BEST.items()]


@pytest.fixture(scope="module")
def record():
    """Gold of a scenario of four turns: messages 0, 2, 4, 6 make calls, 1, 3, 5, 7 answer, and 8 says it again."""
    record = sample_record()
    steps = record["turns"][-1]["steps"]
    steps[1:] = [{**steps[1], "text": "It is é."} for _ in range(2)]
    return record


def write(path, record, **steps):
    """An annotation file with votes on the messages given as `s0={...}`; the others that need votes get the lowest."""
    lines = []
    for line in votes.blank(record):
        lowest = {"succ_calling": [0], "contribution": [0]} if line["results"] else {}
        if given := lowest | steps.get(f"s{line['step']}", {}):
            lines.append(json.dumps(line | given))
    path.write_text("\n".join(lines) + "\n\n")
    return str(path)


def score(record, path, **parameters):
    return step_reward.compute_score("bfcl", "", "[]", {"episode": record}, votes=path, **parameters)


def test_votes_are_averaged_and_put_into_the_formula(record, tmp_path):
    path = write(
        tmp_path / "votes.jsonl",
        record,
        s0={"succ_calling": [1, 1, 1], "contribution": [5, 4, 5]},
        s1={"is_solved": ["Solved", "solved", "Unsolved"]},
        s2={"succ_calling": [1], "contribution": [1]},
        s3={"is_solved": [0, 0.5]},
        s4={"succ_calling": [True], "contribution": [2.5]},
        s5={"is_solved": ["Unsure"]},
        s8={"is_solved": ["Solved"]},
    )
    with open(path, "a") as file:
        more = {"step": 2, "succ_calling": [0], "contribution": [0]}
        file.write(json.dumps({"episode": votes.episode_key(record), **more}))
    result = score(record, path)
    assert result["step_scores"] == pytest.approx([(1 + 14 / 15) / 2, 2 / 3, 0.3, 0.25, 0.75, 0.5, 0, 0, 1 + 0.25])
    assert (result["voted"], result["score"]) == (1.0, pytest.approx(sum(result["step_scores"])))
    assert score(record, path, alpha=3)["step_scores"][2] == pytest.approx((3 * 0.5 + 0.1) / 4)
    first = record["turns"][0]
    short = record | {"turns": [first, {**first, "passed": False, "steps": []}]}
    for said, earned in (([], 1), (["Unsolved"], 0)):
        path = write(tmp_path / f"{earned}.jsonl", short, s1={"is_solved": said})
        assert score(short, path)["step_scores"] == [0, earned], "without a vote the verdict stands, also of no steps"


def test_an_episode_without_votes_follows_the_rules(record, tmp_path):
    path = write(tmp_path / "votes.jsonl", record)
    first, *later = record["turns"]
    said = [{**first, "steps": [{**first["steps"][0], "text": "else"}]}, *later]
    for changed in ({"turns": said}, {"environment": "shop"}, {"task_id": "other"}, {"given": [first]}):
        other = record | changed
        plain = step_reward.compute_score("bfcl", "", "[]", {"episode": other})
        assert score(other, path) == plain and plain["voted"] == 0.0


def test_what_is_wrong_with_a_file_is_said(record, tmp_path):
    path, key = tmp_path / "votes.jsonl", votes.episode_key(record)
    lines = [json.dumps(line) for line in votes.blank(record)]
    voted = [json.dumps({**json.loads(line), **(BEST if '"results": [' in line else {})}) for line in lines]
    cases = [
        (voted, {"step": 0, "succ_calling": [2]}, "line 10: a vote in 'succ_calling' is 2; expected 0 to 1"),
        (voted, {"step": 0, "succ_calling": ["Solved"]}, "line 10: a vote in 'succ_calling'"),
        (voted, {"step": 0, "succ_calling": 1}, "line 10: "),
        (voted, {"step": 0, "contribution": ["Solved"]}, "line 10: a vote in 'contribution'"),
        (voted, {"step": 0, "contribution": [math.nan]}, "line 10: a vote in 'contribution'"),
        (voted, {"step": 0, "contribution": [5.5]}, "line 10: a vote in 'contribution' is 5.5; expected 0 to 5"),
        (voted, {"step": 0, "contribution": [-0.5]}, "line 10: a vote in 'contribution'"),
        (voted, {"step": -1}, "line 10: 'episode' is"),
        (voted, {"step": True}, "line 10: 'episode' is"),
        (voted, {"step": 0, "episode": 3}, "line 10: 'episode' is 3"),
        (voted, {"step": 1, "is_solved": [1.5]}, "line 10: a vote in 'is_solved'"),
        (voted, {"step": 0, "is_solved": ["maybe"]}, "line 10: a vote in 'is_solved' is 'maybe'; expected Solved"),
        (voted, {"step": 7, "is_solved": [1]}, "step 7 has is_solved, but is not the last step of its turn"),
        (voted, {"step": 9, "succ_calling": [1]}, "votes on step 9, but the episode has steps 0 to 8"),
        (lines, {"step": 1, "is_solved": [1]}, f"{key}: step 0 has calls or did not parse"),
        ([*lines, "", "[]"], {"step": 0}, "line 11: expected an object"),
        ([], {"step": 1}, "step 0 has calls"),
        *(([json.dumps({"episode": key, "step": 0, **half})], {"step": 9}, "step 0 has calls") for half in HALVES),
    ]
    for number, (before, line, said) in enumerate(cases):
        path = tmp_path / f"{number}.jsonl"
        path.write_text("\n".join([*before, json.dumps({"episode": key, **line})]))
        with pytest.raises(ValueError, match=said):
            score(record, str(path))
    with pytest.raises(ValueError, match="cannot be read"):
        score(record, str(tmp_path / "nowhere.jsonl"))


def test_the_command_writes_a_line_a_message_to_fill_in_and_none_twice(record, tmp_path):
    stored = tmp_path / "000001.jsonl"
    stored.write_text("".join(json.dumps({"uid": uid, "episode": record}) + "\n" for uid in "ab"))
    done = subprocess.run([sys.executable, "-m", "rewards.votes", str(stored)], capture_output=True, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    turns = [0, 0, 1, 1, 2, 2, 3, 3, 3]
    assert [(line["step"], line["turn"]) for line in lines] == [*enumerate(turns)], done.stderr
    assert ["is_solved" in line for line in lines] == [False, True] * 3 + [False, False, True]
    assert {len(line["episode"]) for line in lines} == {16} and "é" in done.stdout
