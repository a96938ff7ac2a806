"""Stored episodes can be scored again without a model."""

import json
import re
import sys
from pathlib import Path

import pytest

from recipe import rescore
from recipe.preflight.reward import sample_record

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
            head = {"uid": uid, "session_id": session, "task_id": f"{uid}", "score": score}
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


def test_lines_are_sorted_by_stage_split_and_category_and_all_is_last(run, monkeypatch, capsys):
    line = json.loads(next(run.glob("*/rollouts/*/*.jsonl")).read_text().splitlines()[0])
    lines = [
        {**line, "session_id": number, "episode": {**line["episode"], "category": name}}
        for number, name in enumerate(("move", "add", "zip", "base"))
    ]
    for place in ("stage2_base/rollouts/val", "stage2_base/rollouts/train", "stage1_format/rollouts/train"):
        path = run / place / "000001.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    rescored(run, "--reward", "pkg://rewards.progress", monkeypatch=monkeypatch)
    found = [tuple(line.split()[:3]) for line in capsys.readouterr().out.splitlines()[-15:]]
    assert found == [
        (stage, split, category)
        for stage, split in (("stage1_format", "train"), ("stage2_base", "train"), ("stage2_base", "val"))
        for category in ("add", "base", "move", "zip", "all")
    ]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "def compute_score(**kwargs): return 1 / 0",
            "raised ZeroDivisionError: division by zero at bad.py:1. This was on a in .*000001.jsonl",
        ),
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


@pytest.mark.parametrize("score", [None, float("nan"), float("inf"), "high", [1], 10**400, "missing"], ids=str)
def test_an_episode_that_was_stored_without_a_score_is_in_no_old_mean(run, monkeypatch, capsys, score):
    path = next(run.glob("*/rollouts/*/*.jsonl"))
    lines = [json.loads(line) for line in path.read_text().splitlines()[:4]]
    for line in lines[:2]:
        line["score"] = score
        if score == "missing":
            del line["score"]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    rescored(run, "--reward", "pkg://rewards.progress", monkeypatch=monkeypatch)
    out = capsys.readouterr().out
    assert "NOTE 2 episodes were stored without a finite score" in out
    assert out.splitlines()[-1].split()[2:] == ["all", "4", "0.500", "0.750", "1.000", "50%"]


DAMAGED = [
    b"[" * 200_000,
    b"\xff\xfe",
    b"null",
    b'{"task_id": "x", "session_id": 9}',
    b'{"task_id": "x", "session_id": 9, "episode": null}',
    b'{"task_id": "x", "session_id": 9, "episode": {"category": 3, "turns": []}}',
    b'{"task_id": "x", "session_id": 9, "episode": {"category": "c", "turns": [{"steps": [{"text": 3}]}]}}',
    b'{"task_id": "x", "session_id": [], "episode": {}}',
    b'{"task_id": "x", "uid": [], "session_id": 9, "score": {}, "episode": {"category": "c"}}',
]


@pytest.mark.parametrize("line", DAMAGED, ids=lambda line: repr(line[:70]))
def test_a_damaged_line_costs_no_other(run, monkeypatch, capsys, line):
    path = next(run.glob("*/rollouts/*/*.jsonl"))
    path.write_bytes(line + b"\n" + path.read_bytes())
    rescored(run, "--reward", "pkg://rewards.progress", monkeypatch=monkeypatch)
    assert capsys.readouterr().out.splitlines()[-1].split()[2:] == ["all", "4", "0.750", "0.750", "1.000", "50%"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return float('nan')", "returned the score nan; expected a finite number. This was on a in"),
        ("return {'score': None}", "expected a number or a dict with the number `score`"),
        ("return None", "returned None"),
        ("raise SystemExit(0)", "raised SystemExit: 0"),
        ("import os; os._exit(0)", "ended its process with status 0"),
        ("import time; time.sleep(600)", "took longer than 1 s to return a score"),
        ("return 1e308", "are too large to be averaged"),
    ],
)
def test_a_reward_that_gives_no_score_is_one_line_and_status_1(run, tmp_path, monkeypatch, capsys, body, said):
    (tmp_path / "bad.py").write_text(f"def compute_score(**given):\n    {body}\n")
    with pytest.raises(SystemExit) as exit_:
        seconds = "1" if "sleep" in body else "60"
        rescored(run, "--reward", str(tmp_path / "bad.py"), "--timeout", seconds, monkeypatch=monkeypatch)
    error = capsys.readouterr().err
    assert exit_.value.code == 1
    assert said in error and error.count("\n") == 1


def test_a_reward_that_changes_the_record_changes_its_own_alone(run, tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.py").write_text(
        "def compute_score(extra_info, **given):\n"
        "    passed = [turn.pop('passed') for turn in extra_info['episode']['turns']]\n"
        "    return sum(passed) / len(passed)\n"
    )
    rescored(run, "--reward", str(tmp_path / "mine.py"), monkeypatch=monkeypatch)
    assert capsys.readouterr().out.splitlines()[-1].split()[2:] == ["all", "4", "0.750", "0.750", "1.000", "50%"]


def test_an_async_reward_is_awaited(run, tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.py").write_text("async def compute_score(**given):\n    return 0.25\n")
    rescored(run, "--reward", str(tmp_path / "mine.py"), monkeypatch=monkeypatch)
    assert "0.250" in capsys.readouterr().out.splitlines()[-1]
