"""Numbers of several environments and of single-turn tasks, and what is said of an evaluation that was lost."""

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace

import pytest
from support.evaluation import PROTOCOL, played
from support.own_environment import write_namesake

from interaction.environment import load_tasks, register
from recipe.evaluation.results import Judged, cost_of, results, text
from recipe.files import PreflightError
from recipe.tools.policies import POLICIES, play

TASKS = list(load_tasks("bfcl_single").values())
GOLDEN = Path(__file__).parent / "golden.txt"


def test_single_turn_categories_are_averaged_as_the_leaderboard_does_over_whole_ones_only(tmp_path):
    given = ("--environment", "bfcl_single", "--split", "all")
    done = played(lambda _: PROTOCOL.render_answer("t", "I cannot do this."), tmp_path, *given, category="all", limit=2)
    found = done.found
    assert done.status == 0 and len(found["categories"]) == 13 and found["overall"]["episodes"] == 26
    assert found["leaderboard"]["averages"] == {"non-live": 0.0, "live": 0.0, "irrelevance": 1.0}
    assert {"multi_turn_base", "memory_kv", "format_sensitivity"} <= {*found["leaderboard"]["missing"]}
    assert ", ".join(found["leaderboard"]["missing"]) in text(found) and found["multi_turn_official"] is None
    assert all(group["stop"]["completed"] + group["stop"]["done"] == 1 for group in found["categories"].values())
    tasks = [task for task in TASKS if task.category in ("irrelevance", "live_irrelevance")]
    for left_out in (0, 1):
        records = [play(task, PROTOCOL, POLICIES["answers"]) for task in tasks[left_out:]] * 2
        found = results([Judged(replace(one, facts={"passed_official": False}), None) for one in records], [], None)
        assert (found["leaderboard"] or {}).get("averages") == (None if left_out else {"irrelevance": 0.0})
        assert left_out or found["leaderboard"]["tasks"] == len(tasks) and "pass_at_k" not in found["overall"]


@pytest.mark.parametrize("samples", [1, 2, 4, 5, 9])
def test_pass_k_is_over_the_same_tasks_for_each_k_those_with_all_samples(samples):
    """Else a lost sample of a task that fails makes pass^k rise with k."""
    passed = ["1111", "11110", "000", "1110", "100000000", "0111111110", "11", "0"]
    tasks = [task for task in TASKS if task.category == "irrelevance"][:7] + [TASKS[0]]
    records = [[play(task, PROTOCOL, POLICIES[name]) for name in ("nothing", "answers")] for task in tasks]
    records = [[replace(two[one], facts={"passed_official": not one}) for one in (0, 1)] for two in records]
    episodes = [Judged(two[int(one)], None) for two, said in zip(records, passed, strict=True) for one in said]
    found = results(episodes, [], samples)
    whole = [[*map(int, said)] for said in passed if len(said) >= samples]
    for key, holds in (("pass_at_k", any), ("pass_all_k", all)) if samples > 1 else ():
        ks = [k for k in (1, 2, 3, 4, 8) if k < samples] + [samples]
        for name, of in (("acc", whole), ("acc_official", [[1 - one for one in said] for said in whole])):
            wanted = {str(k): fmean(fmean(map(holds, combinations(said, k))) for said in of) for k in ks}
            means = {k: estimate["mean"] for k, estimate in found["overall"][key][name].items()}
            assert means == pytest.approx(wanted) and [*means] == [*wanted]
    said = [" ".join(line.split()) for line in text(found).splitlines()]
    shown = [line for line in said if line.startswith(f"{tasks[7].category} 0 of 1 - -")]
    assert len(shown) == 4 * (samples > 1) and ("pass_at_k" in found["overall"]) is (samples > 1)
    assert sum(line.startswith(f"all {len(whole)} of 8 ") for line in said) == len(shown)


def test_only_the_whole_set_has_a_mean_by_bfcls_own_checker():
    tasks = list(load_tasks().values())
    nothing = play(tasks[0], PROTOCOL, POLICIES["nothing"])
    passes = replace(nothing, facts={"passed_official": True})  # by the official verdict alone
    valid = SimpleNamespace(valid=True, reason="", differences=("one",))
    pairs = [(task, nothing if number else passes) for number, task in enumerate(tasks)]
    judged = [Judged(replace(one, task_id=task.id, category=task.category), valid) for task, one in pairs]
    few = [item for item in judged if item.task.index == 0]
    for episodes, ours, bfcls, given in (
        (judged, 0.00125, 1.0, {}),
        (judged[1:], 0.0, None, {}),
        ([*judged[1:], Judged(judged[0].record, None)], 0.00125, None, {}),
        (judged, 0.00125, None, {"lost": [{"reason": "gone"}]}),
        (judged, None, None, {"samples": None}),
        (judged, None, None, {"by_bfcl": False}),
        (judged, None, None, {"cost": {"strategy": "dfsdt", "text": "a search"}}),
        ([few[0], *few], 0.25, None, {}),
        (few[1:], None, None, {}),
    ):
        found = results(episodes, **{"lost": [], "samples": 1, **given})
        assert (found["multi_turn_official"], found["multi_turn_bfcl"]) == (ours, bfcls), given
        assert ("BFCL's own checker, over all" in text(found)) is (bfcls is not None)


def test_tasks_of_two_environments_with_one_id_are_two_and_two_dresses_of_a_scenario_one_cluster(tmp_path):
    dresses = ("multi_turn_base", "multi_turn_miss_func")
    bfcl = [task for task in load_tasks().values() if task.category in dresses and task.index < 8]
    register({"inventory": str(write_namesake(tmp_path, bfcl[:8], "multi_turn_base"))})
    pairs = [(task, "gold") for task in bfcl] + [(task, "nothing") for task in load_tasks("inventory").values()]
    records = [play(task, PROTOCOL, POLICIES[policy]) for task, policy in pairs for _ in range(2)]
    found = results([Judged(record, None) for record in records], [], 2)
    means = {name: group["acc"]["mean"] for name, group in found["categories"].items()}
    assert means == {"bfcl/multi_turn_base": 1.0, "multi_turn_miss_func": 1.0, "inventory/multi_turn_base": 0.0}
    overall = found["overall"]
    acc, both = overall["acc"], overall["pass_all_k"]["acc_official"]["2"]
    assert overall["tasks"] == 24 and overall["pass_at_k"]["acc"]["2"]["mean"] == pytest.approx(2 / 3)
    assert acc["high"] - acc["low"] > 0.4, "16 clusters, 8 of which pass"
    assert overall["pass_all_k"]["acc"]["1"] == pytest.approx(acc), "the accuracy, with its interval"
    shown = f"{both['mean']:.3f} [{both['low']:.3f}, {both['high']:.3f}]"
    assert "bfcl/multi_turn_base" in text(found) and shown in text(found).split("pass^2")[1]


def test_all_that_is_said_of_an_evaluation_is_as_it_was(tmp_path):
    tasks = [task for task in load_tasks().values() if task.index < 3][:6]
    policies = POLICIES | {"once": lambda game: [*game.first_calls(), *[game.answer()] * 9]}
    judged = []
    for number, name in enumerate(("gold", "once", "gold", "gold, cut", "nothing", "gold", "once", "nothing", "gold")):
        record = play(tasks[number % 6], PROTOCOL, policies[name])
        valid = (name == "gold") != (number in (5, 6))
        reason = "" if valid else "multi_turn:force_terminated" if name == "nothing" else "multi_turn:state"
        verdict = SimpleNamespace(valid=valid, reason=reason, differences=("cards", "text")[: number % 4 - 1])
        judged.append(Judged(record, verdict if number else None, ("dev", "test")[number > 2]))
    path = tmp_path / "episodes.jsonl"
    spent = {"prompt_tokens": 3000, "completion_tokens": 50}
    searches = [{"nodes": 19, "branches": 3, "dropped": 2}, {"nodes": 4, "branches": 2, "dropped": 1}]
    for strategy, more in (("plain", [{}, {}]), ("dfsdt", [{"search": one} for one in searches])):
        heads = {"task_id": "0", **more[0]}, {"task_id": "1", **spent, **more[1]}
        lines = [{**head, "episode": judged[at].record.to_dict()} for at, head in enumerate(heads)]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        cost = cost_of([path])
        assert (cost["strategy"], cost_of([])) == (strategy, None)
        if strategy == "plain":
            assert (cost["nodes"], cost["branches"], cost["dropped"]) == (cost["messages"], 1, 0)
            assert cost_of([path, tmp_path / "000001.jsonl"]) is None
    with pytest.raises(PreflightError, match="judge each strategy by itself"):
        cost_of([path, tmp_path / "000001.jsonl"])
    found = results(judged, [{"reason": reason} for reason in "aabccd"], 1, cost_of([path]))
    about = {"source": {"bfcl_eval": "1.0", "file": None}, "note": "NOTE this"}
    about["settings"] = {"made_with": {"commit": "abc", "flags": []}, "user": {"kind": "scripted"}}
    own = {name: found["overall"][name] for name in ("turns", "steps", "calls", "call_rate")}
    rest = json.dumps([own, found["verdicts"]["reasons"], found["verdicts"]["without_listed_difference"]])
    one = results([judged[6]], [], 1)
    assert (one["parts"], one["overall"]["acc"]) == ({}, {"mean": 0.0, "low": None, "high": None})
    assert "0.000         0.000  1.000     0.000     1.000" in text(one), "no interval"
    said = f"{text(found | about)}\n\n{rest}\n"
    assert said == GOLDEN.read_text()
