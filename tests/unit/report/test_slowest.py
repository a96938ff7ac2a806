"""The report names the episodes that took longest, and says of their time what their lines say."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.runs import write_metrics

from recipe import report
from recipe.report.slowest import slowest
from recipe.report.times import stage_times

EPISODE = {"turns": [{"user": "x", "reached": True, "steps": [{}, {}]}, {"user": "y", "reached": False, "steps": []}]}


def store(run: Path, step: int, seconds: list[Any]) -> Path:
    """The episodes of a training step; what a line says of its time."""
    path = run / "stage1_format" / "rollouts" / "train" / f"{step:06d}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    head = {"step": step, "split": "train", "uid": "u", "task_id": "multi_turn_base_0"}
    lines = [{**head, "session_id": n, "seconds": said, "episode": EPISODE} for n, said in enumerate(seconds)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_one_in_a_hundred_is_named_the_slowest_first_whatever_step_they_are_of(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        store(tmp_path, step, [{"total": 1.0, "generate": 0.5}] * 99 + [{"total": 10.0 + step, "generate": 9.0}])
    found = slowest(tmp_path / "stage1_format")
    assert found is not None
    assert (found.episodes, found.count, found.mean) == (300, 3, pytest.approx((297 + 36) / 300))
    assert [(slow.place.header["step"], slow.seconds) for slow in found.named] == [(3, 13.0), (2, 12.0), (1, 11.0)]
    slow = found.named[0]
    assert (slow.engine, slow.user, slow.turns, slow.messages) == (9.0, None, 1, 2)


def test_of_few_episodes_one_is_named_and_of_many_ten(tmp_path: Path) -> None:
    store(tmp_path, 1, [{"total": 1.0}, {"total": 2.0}])
    found = slowest(tmp_path / "stage1_format")
    assert found is not None and (found.count, len(found.named)) == (1, 1)
    store(tmp_path, 1, [{"total": 1.0}] * 2000)
    found = slowest(tmp_path / "stage1_format")
    assert found is not None and (found.count, len(found.named)) == (20, 10)


def test_a_line_of_an_earlier_release_counts_with_the_seconds_that_it_has(tmp_path: Path) -> None:
    store(tmp_path, 1, [{"generate": 2.0, "environment": 1.0}, None])
    found = slowest(tmp_path / "stage1_format")
    assert found is not None and found.episodes == 1
    assert (found.named[0].seconds, found.named[0].environment, found.named[0].user) == (3.0, 1.0, None)


ODD = [None, [], "x", {"total": "9"}, {"total": float("nan")}, {"total": -1}, {"total": 10**400}, {"total": True}]


@pytest.mark.parametrize("said", ODD)
def test_seconds_that_are_none_are_left_out_and_the_page_is_made(tmp_path: Path, said: Any) -> None:
    path = store(tmp_path, 1, [said])
    path.write_text(path.read_text() + '{"step": 1, "session_id": 3, "task_id": "a_1", "seconds": {"total": 9')
    assert slowest(tmp_path / "stage1_format") is None
    write_metrics(tmp_path, "stage1_format", "1.jsonl", [(1, {"critic/score/mean": 1.0})])
    page = report.write(tmp_path).read_text()
    assert "No step says how long it took" in page and "<th>slowest episodes" not in page


def test_an_episode_that_cannot_be_read_is_not_named(tmp_path: Path) -> None:
    path = store(tmp_path, 1, [{"total": 1.0}])
    path.write_text(path.read_text().replace('"turns": [', '"turns": ][', 1))
    found = slowest(tmp_path / "stage1_format")
    assert found is not None and (found.episodes, found.named) == (1, [])


def test_a_bar_is_drawn_for_each_stage_of_each_run_that_logged_its_time(tmp_path: Path) -> None:
    timed = {"critic/score/mean": 1.0, "timing_s/step": 4.0, "timing_s/gen": 1.0, "timing_s/update_actor": 2.0}
    for run in ("a$b", "_c"):
        write_metrics(tmp_path / run, "stage1_format", "1.jsonl", [(1, timed), (2, {"critic/score/mean": 1.0})])
        write_metrics(tmp_path / run, "stage2_base", "1.jsonl", [(1, {"critic/score/mean": 1.0})])
    runs = [tmp_path / "a$b", tmp_path / "_c"]
    assert [(time.run, time.stage, time.steps, time.seconds) for time in stage_times(runs)] == [
        ("a$b", "stage1_format", 1, 4.0),
        ("_c", "stage1_format", 1, 4.0),
    ]
    page = report.write(runs[0], (runs[1],)).read_text()
    assert "seconds of a mean step" in page and ">a$b stage1_format<" in page
    assert '<td>_c</td><td>stage1_format</td><td class="number">4.00</td>' in page
    assert '2.00 <span class="soft">50 %</span>' in page and ">users<" not in page
