"""Stored episodes can be scored again without a model."""

import json
import sys
from pathlib import Path

import pytest

from recipe import rescore
from recipe.reward import sample_record

PRICED = """
from rewards.metrics import episode_metrics, episode_of

def compute_score(data_source, solution_str, ground_truth, extra_info=None, price=0.01, **kwargs):
    metrics = episode_metrics(episode_of(extra_info))
    return {"score": metrics["progress"] - price * metrics["calls"], **metrics}
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of one step with two groups of two: in the first both rollouts solved the task, in the second one did."""
    solved = sample_record()
    failed = {**solved, "turns": [{**turn, "passed": False} for turn in solved["turns"]]}
    lines = []
    for uid, episodes in {"a": (solved, solved), "b": (solved, failed)}.items():
        for session, episode in enumerate(episodes):
            score = float(episode is solved)
            head = {"step": 1, "uid": uid, "session_id": session, "task_id": uid, "score": score, "reward": {}}
            lines.append(json.dumps({**head, "episode": episode}))
    path = tmp_path / "run" / "stage2_base" / "rollouts" / "train" / "000001.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(lines) + '\n{"cut off')
    return tmp_path / "run"


def rescored(run: Path, *arguments: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["recipe.rescore", str(run), "--reward", *arguments])
    rescore.main()


def test_the_stored_score_comes_back_and_a_price_on_calls_lowers_it(run, tmp_path, monkeypatch, capsys):
    reward = tmp_path / "priced.py"
    reward.write_text(PRICED)
    calls = sum(len(step["calls"]) for turn in sample_record()["turns"] for step in turn["steps"])
    rescored(run, "pkg://rewards.progress", monkeypatch=monkeypatch)
    assert capsys.readouterr().out.splitlines()[-1].split()[2:] == ["all", "4", "0.750", "0.750", "1.000", "50%"]
    rescored(run, str(reward), "price=0.1", monkeypatch=monkeypatch)
    line = capsys.readouterr().out.splitlines()[-1].split()
    assert float(line[5]) == pytest.approx(0.75 - 0.1 * calls, abs=5e-4)


def test_damaged_lines_cost_no_other_and_an_episode_without_a_score_is_in_no_old_mean(run, monkeypatch, capsys):
    path = next(run.glob("*/rollouts/*/*.jsonl"))
    lines = [json.loads(line) for line in path.read_text().splitlines()[:4]]
    lines[0]["score"], lines[1]["score"] = float("nan"), None
    damaged = [b"[" * 200_000, b"\xff\xfe", b"null", b'{"task_id": "x", "session_id": 9}']
    damaged += [b'{"task_id": "x", "session_id": 9, "episode": {"category": 3, "turns": []}}']
    path.write_bytes(b"\n".join([*damaged, *(json.dumps(line).encode() for line in lines)]) + b"\n")
    rescored(run, "pkg://rewards.progress", monkeypatch=monkeypatch)
    assert capsys.readouterr().out.splitlines()[-1].split()[2:] == ["all", "4", "0.500", "0.750", "1.000", "50%"]


def test_a_reward_without_a_score_ends_with_status_1_and_an_async_one_is_awaited(run, tmp_path, monkeypatch, capsys):
    (path := tmp_path / "bad.py").write_text("def compute_score(**given): raise SystemExit(0)")
    with pytest.raises(SystemExit, match="1"):
        rescored(run, str(path), "--timeout", "1", monkeypatch=monkeypatch)
    assert capsys.readouterr().err.count("\n") == 1
    (path := tmp_path / "mine.py").write_text("async def compute_score(**given): return 1.0")
    rescored(run, str(path), monkeypatch=monkeypatch)
    assert capsys.readouterr().out.splitlines()[-1].split()[2:] == ["all", "4", "0.750", "1.000", "-", "100%"]
