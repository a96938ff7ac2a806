"""Numbers of several environments, and what is said of an evaluation of which nothing was played."""

import json
import sys
from pathlib import Path

import pytest
from support.evaluation import PROTOCOL, run, serving
from support.own_environment import write_namesake

from interaction.environment import load_tasks, register
from recipe import evaluate
from recipe.evaluation.results import Judged, all_lost, causes, results, text
from recipe.report import __main__ as report
from recipe.tools import judge
from recipe.tools.policies import POLICIES, play


def test_tasks_of_two_environments_with_one_id_are_two(tmp_path):
    bfcl = [task for task in load_tasks().values() if task.category == "multi_turn_base"][:8]
    register({"inventory": str(write_namesake(tmp_path, bfcl, "multi_turn_base"))})
    pairs = [(task, "gold") for task in bfcl] + [(task, "nothing") for task in load_tasks("inventory").values()]
    records = [play(task, PROTOCOL, POLICIES[policy]) for task, policy in pairs for _ in range(2)]
    found = results([Judged(record, None) for record in records], [], 2)
    assert [*found["categories"]] == ["bfcl/multi_turn_base", "inventory/multi_turn_base"]
    assert [group["acc"]["mean"] for group in found["categories"].values()] == [1.0, 0.0]
    assert found["overall"]["tasks"] == 16 and found["overall"]["pass_at_k"]["acc"] == {"1": 0.5, "2": 0.5}
    acc = found["overall"]["acc"]
    assert acc["high"] - acc["low"] > 0.3, "16 clusters, 8 of which pass"
    assert "bfcl/multi_turn_base" in text(found)


PROMPTS = iter(range(900, 10_000))


def too_long(_: object) -> tuple[int, dict[str, dict[str, str]]]:
    """Says another number each time, as vLLM does of each prompt."""
    words = f"This model's maximum context length is 64 tokens, your prompt has {next(PROMPTS)}."
    return 400, {"error": {"message": words}}


def test_every_reader_of_a_lost_evaluation_says_how_many_why_and_what_to_do(tmp_path, monkeypatch, capsys):
    dead = (503, {"error": {"message": "overloaded"}})
    for name, play_, cause, remedy in (
        ("long", too_long, "12 of them to one cause: the server's context does not hold", "--max-model-len"),
        ("gone", lambda _: dead, "10 of them to one cause: ", "server.log"),
    ):
        folder = tmp_path / name
        with serving(play_) as server:
            status, found = run(server.url, folder, "--concurrency", "1", limit=12)
        assert (status, found["overall"], len(found["lost"])) == (evaluate.LOST_STATUS, None, 12)
        printed = (folder / "results.txt").read_text()
        assert "LOST: all 12 episodes, so there is no number:" in printed and remedy in printed
        monkeypatch.setattr(sys, "argv", ["recipe.report", "--compare", str(folder), "--out", str(folder / "page")])
        capsys.readouterr()
        with pytest.raises(SystemExit):
            report.main()
        assert evaluate.main(["--records", str(folder)]) == 1
        assert judge.main([str(folder), "--endpoint", "http://127.0.0.1:9/v1", "--out", str(folder / "votes")]) == 1
        said = capsys.readouterr().err
        assert (
            said.count(f"{folder} holds no episode: all 12 were lost") == 3 == said.count(cause) == said.count(remedy)
        )


def test_reasons_that_differ_in_numbers_only_are_one_cause_and_what_was_not_tried_comes_last():
    reasons = ["not tried: 10 episodes in a row were lost"] * 9 + [f"no reply in {n} s" for n in range(3)] + ["other"]
    assert causes(reasons) == [(3, "no reply in 0 s"), (1, "other"), (9, "not tried: 10 episodes in a row were lost")]


def test_results_that_say_nothing_of_lost_episodes_are_not_believed(tmp_path: Path):
    for content in (None, "", "[]", "{}", json.dumps({"lost": [], "overall": None}), json.dumps({"lost": [3]})):
        if content is not None:
            (tmp_path / "results.json").write_text(content)
        assert all_lost(tmp_path) is None
