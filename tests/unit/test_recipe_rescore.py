"""Stored episodes can be scored again without a model."""

import json
import re
import sys
from pathlib import Path

import pytest

from recipe import rescore
from recipe.preflight_reward import sample_record

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
            head = {"uid": uid, "session_id": session, "scenario_id": f"{uid}", "score": score}
            lines.append(json.dumps({**head, "episode": episode}))
    path = tmp_path / "run" / "stage2_base" / "rollouts" / "train" / "000001.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(lines) + '\n{"cut off')
    return tmp_path / "run"


def rescored(run: Path, *arguments: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["recipe.rescore", str(run), *arguments])
    rescore.main()


def test_the_stored_score_comes_back_and_a_price_on_calls_lowers_it(run, tmp_path, monkeypatch, capsys):
    reward = tmp_path / "priced.py"
    reward.write_text(PRICED)
    calls = sum(len(step["calls"]) for turn in sample_record()["turns"] for step in turn["steps"])
    rescored(run, "--reward", "pkg://rewards.progress", monkeypatch=monkeypatch)
    assert capsys.readouterr().out.splitlines()[-1].split()[2:] == ["all", "4", "0.750", "0.750", "1.000", "50%"]
    rescored(run, "--reward", str(reward), "price=0.1", monkeypatch=monkeypatch)
    line = capsys.readouterr().out.splitlines()[-1].split()
    assert float(line[5]) == pytest.approx(0.75 - 0.1 * calls, abs=5e-4)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def compute_score(**kwargs): return 1 / 0", "failed on a in .*000001.jsonl: ZeroDivisionError"),
        ("x = 1", "has no function `compute_score`"),
        ("import nowhere", "cannot be imported: ModuleNotFoundError"),
    ],
)
def test_a_reward_that_cannot_work_is_named(run, tmp_path, monkeypatch, capsys, source, said):
    reward = tmp_path / "bad.py"
    reward.write_text(source)
    with pytest.raises(SystemExit) as exit_:
        rescored(run, "--reward", str(reward), monkeypatch=monkeypatch)
    assert exit_.value.code == 1
    assert re.search(said, capsys.readouterr().err)


def test_a_folder_without_episodes_is_named(tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        rescored(tmp_path, "--reward", "pkg://rewards.progress", monkeypatch=monkeypatch)
    assert "holds no episodes" in capsys.readouterr().err
