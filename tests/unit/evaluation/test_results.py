"""Numbers of several environments and of single-turn tasks, and what is said of an evaluation that was lost."""

from dataclasses import replace
from types import SimpleNamespace

from support.evaluation import PROTOCOL, played
from support.own_environment import write_namesake

from interaction.environment import load_tasks, register
from recipe.evaluation.results import Judged, results, text
from recipe.tools.policies import POLICIES, play

TASKS = list(load_tasks("bfcl_single").values())
SINGLE = ("--environment", "bfcl_single", "--split", "all")


def gold_player(messages):
    """Gold of the first tasks of two categories, whose words are their own."""
    tasks = (task for task in TASKS if task.category in ("simple_python", "irrelevance"))
    task = next(task for task in tasks if messages[1]["content"].endswith(task.messages[-1]["content"]))
    (gold,) = task.gold()
    return PROTOCOL.render_calls("t", gold.calls) if gold.calls else PROTOCOL.render_answer("t", gold.answer)


def test_single_turn_categories_are_averaged_as_the_leaderboard_does(tmp_path):
    refusal = PROTOCOL.render_answer("t", "I cannot do this.")
    done = played(lambda _: refusal, tmp_path / "a", *SINGLE, category="all", limit=2)
    found = done.found
    assert done.status == 0 and len(found["categories"]) == 13 and found["overall"]["episodes"] == 26
    assert found["leaderboard"]["averages"] == {"non-live": 0.0, "live": 0.0, "irrelevance": 1.0}
    assert {"multi_turn_base", "memory_kv", "format_sensitivity"} <= {*found["leaderboard"]["missing"]}
    assert all(group["stop"]["completed"] + group["stop"]["done"] == 1 for group in found["categories"].values())
    done = played(gold_player, tmp_path / "b", *SINGLE, "--category", "irrelevance", category="simple_python")
    assert done.status == 0 and [*done.found["categories"]] == ["simple_python", "irrelevance"]
    assert done.found["overall"]["acc"]["mean"] == done.found["overall"]["acc_official"]["mean"] == 1
    assert done.found["overall"]["steps"] == 1 and len(done.requests) == 6
    assert done.found["leaderboard"] is None, "no average is of these two"


def test_stored_episodes_are_averaged_over_whole_categories_only():
    tasks = [task for task in TASKS if task.category in ("irrelevance", "live_irrelevance")]
    for left_out in (0, 1):
        records = [play(task, PROTOCOL, POLICIES["answers"]) for task in tasks[left_out:]]
        found = results([Judged(record, None) for record in records], [], None)
        assert (found["leaderboard"] or {}).get("averages") == (None if left_out else {"irrelevance": 1.0})


def test_pass_k_is_over_the_same_tasks_for_each_k_those_with_all_samples():
    """Else a lost sample of a task that fails makes pass^k rise with k."""
    means = lambda found: {k: estimate["mean"] for k, estimate in found.items()}  # noqa: E731
    tasks = [task for task in TASKS if task.category == "irrelevance"][:3]
    plays = [(tasks[0], "answers")] * 4 + [(tasks[1], "nothing")] * 3
    plays += [(tasks[2], name) for name in ("answers", "answers", "answers", "nothing")]
    found = results([Judged(play(task, PROTOCOL, POLICIES[name]), None) for task, name in plays], [], 4)
    group = found["overall"]
    assert means(group["pass_all_k"]["acc"]) == {"1": 0.875, "2": 0.75, "3": 0.625, "4": 0.5}
    assert means(group["pass_at_k"]["acc"]) == {"1": 0.875, "2": 1.0, "3": 1.0, "4": 1.0} and "2 of 3" in text(found)


def test_pass_k_has_the_interval_over_clusters_in_data_and_table():
    """Two categories are the same scenarios, so they add no tasks: pass^1 is the accuracy, with its interval."""
    plays = [(task, "gold" if task.index < 4 else "nothing") for task in load_tasks().values() if task.index < 8]
    records = [play(task, PROTOCOL, POLICIES[name]) for task, name in plays for _ in range(2)]
    found = results([Judged(record, None) for record in records], [], 2)
    group = found["overall"]
    assert group["pass_all_k"]["acc"]["1"] == group["acc"] and group["pass_all_k"]["acc"]["2"]["low"] is not None
    shown = "{mean:.3f} [{low:.3f}, {high:.3f}]".format(**group["pass_all_k"]["acc_official"]["2"])
    table = text(found).split("pass^2")[1]
    assert shown in table and group["pass_at_k"]["acc"]["2"]["high"] - group["pass_at_k"]["acc"]["2"]["low"] > 0.5


def test_only_the_whole_set_has_a_mean_by_bfcls_own_checker():
    tasks = list(load_tasks().values())
    record = play(tasks[0], PROTOCOL, POLICIES["nothing"])
    valid = SimpleNamespace(valid=True, reason="", differences=("one",))
    judged = [Judged(replace(record, task_id=task.id, category=task.category), valid) for task in tasks]
    lost = [{"reason": "gone"}]
    for episodes, without, named in ((judged, [], True), (judged[1:], [], False), (judged, lost, False)):
        found = results(episodes, without, 1)
        assert found["multi_turn_official"] == 0.0 and found["multi_turn_bfcl"] == (1.0 if named else None)
        assert ("BFCL's own checker, over all" in text(found)) is named
        assert text(found).split()[:5] == ["category", "tasks", "episodes", "acc_official", "acc"]


def test_tasks_of_two_environments_with_one_id_are_two(tmp_path):
    bfcl = [task for task in load_tasks().values() if task.category == "multi_turn_base"][:8]
    register({"inventory": str(write_namesake(tmp_path, bfcl, "multi_turn_base"))})
    pairs = [(task, "gold") for task in bfcl] + [(task, "nothing") for task in load_tasks("inventory").values()]
    records = [play(task, PROTOCOL, POLICIES[policy]) for task, policy in pairs for _ in range(2)]
    found = results([Judged(record, None) for record in records], [], 2)
    assert [*found["categories"]] == ["bfcl/multi_turn_base", "inventory/multi_turn_base"]
    assert [group["acc"]["mean"] for group in found["categories"].values()] == [1.0, 0.0]
    assert found["overall"]["tasks"] == 16 and found["overall"]["pass_at_k"]["acc"]["2"]["mean"] == 0.5
    acc = found["overall"]["acc"]
    assert acc["high"] - acc["low"] > 0.4, "16 clusters, 8 of which pass"
    assert "bfcl/multi_turn_base" in text(found)
