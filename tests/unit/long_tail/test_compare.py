"""Trainings in turn and trainings that play on, compared through their folders."""

import json
import re
from pathlib import Path

import pytest

from benchmarks.long_tail.compare import main

STALENESS = "training/off_policy/trajectory_staleness_worst"


def run(folder: Path, name: str, seconds: list[float], rewards: list[float], age: float = 0.0) -> str:
    """A run of one stage, as verl logs it."""
    metrics = folder / name / "stage1_format" / "metrics"
    metrics.mkdir(parents=True)
    lines = []
    for step, (whole, reward) in enumerate(zip(seconds, rewards, strict=True), start=1):
        numbers = {"timing_s/step": whole, "timing_s/gen": whole / 2, "timing_s/update_actor": whole / 4}
        numbers |= {"critic/score/mean": reward, f"{STALENESS}/mean": age, f"{STALENESS}/max": 3 * age}
        lines.append(json.dumps({"step": step, "data": numbers}) + "\n")
    (metrics / "a.jsonl").write_text("".join(lines))
    return str(folder / name)


def test_it_prints_what_can_be_worked_out_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sync = [run(tmp_path, f"sync{n}", [40.0, 20.0, 20.0, 20.0], [0.0, 0.0, 0.5, 0.5]) for n in (1, 2)]
    ahead = [run(tmp_path, f"async{n}", [20.0, 10.0, 10.0, 10.0], [0.0, 0.0, 0.2, 0.2], 1.0) for n in (1, 2)]
    main(["--sync", *sync, "--async", *ahead, "--window", "2", "--figure", str(tmp_path / "curves.png")])
    said = capsys.readouterr().out
    rows = [line.split() for line in said.splitlines()]
    assert rows[1] == ["sync1", "4", "100", "20.0", "20.0", "10.0", "0.0", "5.0", "5.0", "0.00", "0"]
    assert rows[3] == ["async1", "4", "50", "10.0", "10.0", "5.0", "0.0", "2.5", "2.5", "1.00", "3"]
    assert "async is 2.00 times as fast [2.00, 2.00] over 2 pairs" in said
    assert "async less sync: -0.300 [-0.300, -0.300] over 2 pairs" in said
    assert (tmp_path / "curves.png").stat().st_size > 1000


def test_a_longer_run_is_compared_over_the_steps_that_both_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sync, ahead = run(tmp_path, "s", [10.0] * 3, [0.0] * 3), run(tmp_path, "a", [5.0] * 6, [0.0] * 6)
    main(["--sync", sync, "--async", ahead])
    assert "async is 2.00 times as fast\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("ahead", "text"),
    [
        (["a", "a"], "1 runs with --sync, 2 with --async"),
        (["short"], "has 1 steps of training: expected at least 2"),
        (["missing"], "has 0 steps of training: expected at least 2"),
    ],
)
def test_what_cannot_be_compared_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ahead: list[str], text: str
) -> None:
    sync = run(tmp_path, "a", [10.0] * 3, [0.0] * 3)
    run(tmp_path, "short", [10.0], [0.0])
    with pytest.raises(SystemExit) as stop:
        main(["--sync", sync, "--async", *(str(tmp_path / name) for name in ahead)])
    assert stop.value.code == 2 and text in re.sub(r"\s+", " ", capsys.readouterr().err)
