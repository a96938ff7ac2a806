"""BFCL's multi-turn tasks: data, split, and what gold and policies that solve nothing get."""

import json
import random
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from bfcl_env import CATEGORIES, load_scenarios, part_of, source, train_indices
from bfcl_env.leaderboard.averages import CATEGORIES as LEADERBOARD
from bfcl_env.leaderboard.averages import WEIGHTS, averages, missing
from bfcl_env.proof.suspicious import suspicions
from bfcl_env.proof.validate import POLICIES, score


def test_other_data_are_refused(monkeypatch):
    monkeypatch.setattr(source, "DATA_SHA256", "0" * 64)
    with pytest.raises(source.SourceError, match=r"bfcl-eval==2026\.3\.23"):
        source.read_data.__wrapped__()  # not what is cached


SCORES = {
    "gold": [(200, 734, 1.0), (200, 934, 1.0), (200, 934, 1.0), (200, 734, 1.0)],
    "always answer": [(0, 3, 0.0), (0, 203, 0.0), (0, 203, 0.0), (0, 3, 0.0)],
    "echo": [(0, 3, 0.0), (0, 203, 0.0), (0, 203, 0.0), (0, 3, 0.0)],
    "random calls": [(0, 8, 0.00783), (0, 138, 0.00492), (0, 144, 0.009), (0, 6, 0.00392)],
    "repeat last call": [(1, 105, 0.14435), (1, 297, 0.21193), (1, 300, 0.21343), (0, 102, 0.1411)],
    "skip a turn": [(0, 290, 0.34807), (0, 489, 0.38187), (0, 490, 0.3852), (0, 290, 0.34807)],
}
"""Of each category the tasks and turns that pass, and the mean progress."""


def test_gold_scores_one_and_policies_that_solve_nothing_score_next_to_nothing():
    for policy in POLICIES:
        found = [score(policy, category) for category in CATEGORIES]
        assert [(one.passed, one.turns_passed, round(one.progress, 5)) for one in found] == SCORES[policy]
        assert all((one.progress_raw > 0) == (one.turns_passed > 0) for one in found)


def test_what_is_suspicious_of_a_task_is_as_it_was_published():
    published = json.loads((Path(__file__).parents[3] / "docs" / "data" / "suspicious.json").read_text())
    for scenario in load_scenarios()[::40]:
        assert [asdict(one) for one in suspicions(scenario)] == published.get(scenario.id, []), scenario.id


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
COLUMNS = {"Overall Acc": "overall", "Non-Live AST Acc": "non-live", "Live Acc": "live"}
COLUMNS |= {"Irrelevance Detection": "irrelevance", "Multi Turn Acc": "multi-turn"}


def test_averages_are_those_of_the_leaderboards_own_code_and_need_all_their_categories(tmp_path):
    chance = random.Random(5)
    scores = {name: (chance.random(), chance.randrange(1, 999)) for name in LEADERBOARD}
    command = [sys.executable, "-c", ORACLE, str(tmp_path), json.dumps(scores)]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True).stdout
    row, found = json.loads(answer.splitlines()[-1]), averages(scores)
    assert [*found] == [*WEIGHTS, "overall"] and missing(scores) == ("format_sensitivity",)
    assert all(row[column] == f"{found[name] * 100:.2f}%" for column, name in COLUMNS.items())
    for left_out in LEADERBOARD:
        given = averages({name: value for name, value in scores.items() if name != left_out})
        assert len(given) == (6 if left_out == "live_relevance" else 4), left_out
        assert ("overall" in given) == (len(given) == 6)


def test_all_categories_share_one_split_as_the_seeds_draw_it():
    indices = list(range(200))
    random.Random(0).shuffle(indices)
    assert train_indices() == tuple(indices[:100])
    rest = sorted(set(range(200)) - set(train_indices()) - {40, 66})
    random.Random(1).shuffle(rest)
    dev = {40, 66, *rest[:23]}
    parts = {"train": set(train_indices()), "dev": dev, "test": set(range(200)) - dev - set(train_indices())}
    parts["val"] = parts["dev"] | parts["test"]
    for category in CATEGORIES:
        assert [item.index for item in load_scenarios(category)] == list(range(200))
        for part, wanted in parts.items():
            assert {item.index for item in load_scenarios(category, split=part)} == wanted
    assert all(part_of(index) == part for part in ("train", "dev", "test") for index in parts[part])


def test_a_turn_without_words_publishes_what_was_withheld_and_tail_is_the_only_one_published_early():
    early = []
    for scenario in load_scenarios("multi_turn_miss_func"):
        (number,) = [n for n, turn in enumerate(scenario.turns) if not turn.user]
        revealed = scenario.turns[number].revealed
        assert revealed and set(revealed) <= set(scenario.withheld(number - 1)) and scenario.withheld(number) == ()
        names = [doc["name"] for doc in scenario.functions(number)]
        assert tuple(names[-len(revealed) :]) == revealed
        assert set(revealed).isdisjoint(doc["name"] for doc in scenario.functions(0))
        early += [(scenario.id, turn.revealed) for turn in scenario.turns if turn.user and turn.revealed]
    assert early == [("multi_turn_miss_func_49", ("tail",))]
