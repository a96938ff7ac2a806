"""The leaderboard's averages: as its own code combines categories, and only of what is there."""

import json
import random
import subprocess
import sys

import pytest

from bfcl_env.leaderboard.averages import CATEGORIES, LIVE, WEIGHTS, averages, missing

COLUMNS = {
    "Overall Acc": "overall",
    "Non-Live AST Acc": "non-live",
    "Live Acc": "live",
    "Irrelevance Detection": "irrelevance",
    "Multi Turn Acc": "multi-turn",
}
"""Of the leaderboard's table."""


def drawn(seed, names=CATEGORIES):
    chance = random.Random(seed)
    return {name: (chance.random(), chance.randrange(1, 999)) for name in names}


def test_live_counts_tasks_and_non_live_counts_categories():
    found = drawn(1)
    weighted = sum(found[name][0] * found[name][1] for name in LIVE) / sum(found[name][1] for name in LIVE)
    assert averages(found)["live"] == pytest.approx(weighted)
    simple = sum(found[f"simple_{name}"][0] for name in ("python", "java", "javascript")) / 3
    others = sum(found[name][0] for name in ("multiple", "parallel", "parallel_multiple"))
    assert averages(found)["non-live"] == pytest.approx((simple + others) / 4)


def test_overall_is_the_weighted_sum_of_its_five_parts():
    found = averages(drawn(2))
    assert [*found] == [*WEIGHTS, "overall"] and sum(WEIGHTS.values()) == pytest.approx(1)
    assert found["overall"] == pytest.approx(sum(found[name] * weight for name, weight in WEIGHTS.items()))


@pytest.mark.parametrize("left_out", CATEGORIES)
def test_an_average_that_lacks_a_category_is_not_given(left_out):
    found = drawn(3)
    del found[left_out]
    given = averages(found)
    assert left_out in missing(found)
    assert len(given) == (6 if left_out == "live_relevance" else 4) and ("overall" in given) == (len(given) == 6)


def test_what_is_not_played_is_named_and_nothing_gives_nothing():
    assert missing(drawn(4)) == ("format_sensitivity",)
    assert averages({}) == {} and len(missing({})) == len(CATEGORIES) + 1


ORACLE = """
import csv, json, os, sys, types
from pathlib import Path

out, scores = Path(sys.argv[1]), json.loads(sys.argv[2])
os.environ["BFCL_PROJECT_ROOT"] = str(out)  # it makes folders there
model = types.SimpleNamespace(display_name="m", url="", org="", license="", input_price=None, output_price=None)
table = types.ModuleType("bfcl_eval.constants.model_config")
table.MODEL_CONFIG_MAPPING = {"m": model}
sys.modules[table.__name__] = table  # of the module that imports all vendors' packages it needs this one
from bfcl_eval.eval_checker.eval_runner_helper import generate_leaderboard_csv

accuracies = {name: {"accuracy": value, "total_count": count} for name, (value, count) in scores.items()}
generate_leaderboard_csv({"m": accuracies}, out)
(row,) = csv.DictReader((out / "data_overall.csv").open())
print(json.dumps(row))
"""


def test_the_leaderboards_own_code_gives_the_same(tmp_path):
    scores = drawn(5)
    command = [sys.executable, "-c", ORACLE, str(tmp_path), json.dumps(scores)]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr[-2000:]
    row = json.loads(answer.stdout.splitlines()[-1])
    found = averages(scores)
    for column, name in COLUMNS.items():
        assert row[column] == f"{found[name] * 100:.2f}%", column
