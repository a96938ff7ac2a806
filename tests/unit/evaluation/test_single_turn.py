"""BFCL's single-turn tasks through an evaluation, and the leaderboard's averages at its end."""

import json

import pytest
from support.evaluation import PROTOCOL, run, serving

from interaction.environment import load_tasks
from recipe.evaluation.results import Judged, results, text
from recipe.tools.policies import POLICIES, play

TASKS = list(load_tasks("bfcl_single").values())
HERE = ("--environment", "bfcl_single", "--split", "all")


def gold_player(messages):
    """Writes gold of the task with these words and these functions; not for those that have none."""
    system, user = messages[0]["content"], messages[1]["content"]
    task = next(
        task
        for task in TASKS
        if user.endswith(task.messages[-1]["content"])
        and all(f"\n{item['name']}(" in system for item in task.functions)
        and system.count("\n") >= len(task.functions)
    )
    for gold in task.gold():
        return PROTOCOL.render_calls("t", gold.calls) if gold.calls else PROTOCOL.render_answer("t", gold.answer)
    raise AssertionError(f"{task.id} has no gold")


def test_all_categories_are_played_and_averaged_as_the_leaderboard_does(tmp_path, capsys):
    with serving(lambda messages: PROTOCOL.render_answer("t", "I cannot do this.")) as server:
        status, found = run(server.url, tmp_path, *HERE, category="all", limit=2)
    said = capsys.readouterr().out
    assert status == 0 and len(found["categories"]) == 13 and found["overall"]["episodes"] == 26
    averages = found["leaderboard"]["averages"]
    assert averages == {"non-live": 0.0, "live": 0.0, "irrelevance": 1.0}
    assert {"multi_turn_base", "memory_kv", "web_search_base", "format_sensitivity"} <= {
        *found["leaderboard"]["missing"]
    }
    assert "irrelevance 1.000" in said and "not played: multi_turn_base" in said and "over 26 tasks" in said
    assert all(group["stop"]["completed"] + group["stop"]["done"] == 1 for group in found["categories"].values())


def test_gold_scores_one_and_an_episode_is_one_message(tmp_path):
    with serving(gold_player) as server:
        status, found = run(server.url, tmp_path, *HERE, "--category", "irrelevance", category="simple_python")
    assert status == 0 and [*found["categories"]] == ["simple_python", "irrelevance"]
    assert found["overall"]["acc"]["mean"] == found["overall"]["acc_official"]["mean"] == 1
    assert found["overall"]["steps"] == 1 and len(server.requests) == 6
    assert found["leaderboard"] is None, "no average is of these two"


@pytest.mark.parametrize("left_out", [0, 1])
def test_stored_episodes_are_averaged_over_whole_categories_only(left_out):
    tasks = [task for task in TASKS if task.category in ("irrelevance", "live_irrelevance")]
    records = [play(task, PROTOCOL, POLICIES["answers"]) for task in tasks[left_out:]]
    found = results([Judged(record, None) for record in records], [], None)
    assert (found["leaderboard"] or {}).get("averages") == (None if left_out else {"irrelevance": 1.0})
    assert ("irrelevance 1.000" in text(found)) == (not left_out)


def test_a_second_start_of_the_same_evaluation_plays_nothing_again(tmp_path):
    with serving(gold_player) as server:
        run(server.url, tmp_path, *HERE, category="parallel")
        asked = len(server.requests)
        _, found = run(server.url, tmp_path, *HERE, category="parallel")
        assert len(server.requests) == asked == 3
    lines = [json.loads(line) for line in (tmp_path / "episodes.jsonl").read_text().splitlines()]
    assert sorted(line["task_id"] for line in lines) == ["parallel_0", "parallel_1", "parallel_2"]
    assert found["overall"]["acc"]["mean"] == 1
