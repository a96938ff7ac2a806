"""Stored episodes can be scored again without a model."""

import json
import sys
from pathlib import Path

import pytest

from interaction.episode_file import append, path_of
from recipe import rescore
from recipe.reward import sample_record

PRICED = """
from rewards.metrics import episode_metrics, episode_of

def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    return 1 / 0

def priced(data_source, solution_str, ground_truth, extra_info=None, price=0.01, **kwargs):
    metrics = episode_metrics(episode_of(extra_info))
    return {"score": metrics["progress"] - price * metrics["calls"], **metrics}
"""
STORED = [
    # stage, split, step, category, group, and of each rollout whether it solved the task
    *(("stage1", "train", 1, "base", "a", "11"), ("stage1", "train", 1, "base", "b", "10")),
    *(("stage1", "train", 2, "base", "a", "00"), ("stage1", "train", 2, "miss_func", "c", "000")),
    *(("stage1", "val", 2, "miss_func", "c", "10"), ("stage2", "train", 1, "base", "a", "1")),
]
TABLE = """
stage   split  category   episodes  old mean  new mean  correlation  groups alike
stage1  train  base       6         0.625     0.500     1.000        67%
stage1  train  miss_func  3         0.250     0.000     -            100%
stage1  train  all        9         0.500     0.333     1.000        75%
stage1  val    miss_func  2         0.625     0.500     1.000        -
stage1  val    all        2         0.625     0.500     1.000        -
stage2  train  base       1         1.000     1.000     -            100%
stage2  train  all        1         1.000     1.000     -            100%
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with these episodes; a failed one has a score of 0.25, and some line is cut off."""
    for stage, split, step, category, uid, solved in STORED:
        path = path_of(tmp_path / "run" / stage / "rollouts", split, step)
        for session, passed in enumerate(map(int, solved)):
            episode = sample_record() | {"category": f"multi_turn_{category}"}
            episode["turns"] = [{**turn, "passed": bool(turn["passed"] and passed)} for turn in episode["turns"]]
            head = {"step": step, "uid": uid, "session_id": session, "task_id": uid, "score": 0.25 + 0.75 * passed}
            append(path, {**head, "reward": {}, "episode": episode})
    path.write_text(path.read_text() + '{"cut off')
    return tmp_path / "run"


@pytest.fixture
def rescored(run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """What the command prints."""

    def rescored(*arguments: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", ["recipe.rescore", str(run), "--reward", *arguments])
        rescore.main()
        return capsys.readouterr().out.splitlines()

    return rescored


def test_the_stored_score_comes_back_and_a_price_on_calls_lowers_it(rescored, tmp_path):
    (reward := tmp_path / "priced.py").write_text(PRICED)
    calls = sum(len(step["calls"]) for turn in sample_record()["turns"] for step in turn["steps"])
    assert rescored("pkg://rewards.progress") == TABLE.split("\n")[1:-1]
    for price in (0.01, 0.1):
        line = rescored(str(reward), "--name", "priced", *["price=0.1"] * (price > 0.01))[1].split()
        assert float(line[5]) == pytest.approx(0.5 - price * calls, abs=5e-4)


def test_damaged_lines_cost_no_other_and_an_episode_without_a_score_is_in_no_old_mean(run, rescored):
    (path,) = (run / "stage1" / "rollouts" / "train").glob("*1.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[0]["score"], lines[1]["score"] = float("nan"), None
    damaged = [b"[" * 200_000, b"\xff\xfe", b"null", b'{"task_id": "x", "session_id": 9}']
    damaged += [
        json.dumps({**lines[0], "session_id": number, "episode": {"category": 3, "turns": []}}).encode()
        for number in (8, 9)
    ]
    path.write_bytes(b"\n".join([*damaged, *(json.dumps(line).encode() for line in lines)]) + b"\n")
    note, _, line, *_ = rescored("pkg://rewards.progress")
    assert note == "NOTE 2 lines are no whole episode" and line.split()[3:] == ["6", "0.438", "0.500", "1.000", "67%"]


def test_a_reward_without_a_score_ends_with_status_1_and_an_async_one_is_awaited(rescored, tmp_path, capsys):
    (path := tmp_path / "bad.py").write_text("def compute_score(**given): raise SystemExit(0)")
    with pytest.raises(SystemExit, match="1"):
        rescored(str(path), "--timeout", "1")
    assert capsys.readouterr().err.count("\n") == 1
    (path := tmp_path / "mine.py").write_text("async def compute_score(**given): return 1.0")
    assert rescored(str(path))[3].split()[2:] == ["all", "9", "0.500", "1.000", "-", "100%"]
