"""The all-or-nothing reward pays whole tasks only."""

import pytest

from recipe.reward import sample_record
from rewards import all_or_nothing, progress


def score(record: dict) -> dict:
    return all_or_nothing.compute_score("bfcl/base", "", "[]", {"episode": record, "split": "train"})


def test_a_solved_task_is_paid_and_one_turn_less_is_not():
    record = sample_record()
    assert score(record)["score"] == 1.0
    record["turns"][-1]["passed"] = record["outcome"]["passed"] = False
    assert score(record)["score"] == 0.0
    assert 0 < score(record)["progress"] < 1


def test_its_keys_are_those_of_the_progress_reward():
    record = sample_record()
    extra = {"episode": record}
    assert score(record).keys() == progress.compute_score("bfcl/base", "", "[]", extra).keys()


def test_without_a_record_it_says_what_to_set():
    with pytest.raises(ValueError, match="default_agent_loop=bfcl"):
        all_or_nothing.compute_score("bfcl/base", "", "[]", {})
