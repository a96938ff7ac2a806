"""The report pools runs as its columns say, and reads what interrupted runs leave behind."""

import json
from pathlib import Path

import pytest

from recipe import report
from recipe.metrics_log import read_steps


def write_metrics(run: Path, stage: str, name: str, lines: list[tuple[int, dict]]) -> None:
    folder = run / stage / "metrics"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(json.dumps({"step": step, "data": data}) + "\n" for step, data in lines))


def a_run(folder: Path, values: list[float]) -> Path:
    lines = [
        (step, {"critic/score/mean": value, "train/progress": value / 2, "timing_s/step": 1.0})
        for step, value in enumerate(values, start=1)
    ]
    write_metrics(folder, "stage1_format", "20260101-000000.jsonl", lines)
    return folder


def test_the_rise_is_the_mean_of_the_last_five_minus_the_first_five_pooled_over_runs():
    rise = report.rise([[0, 0, 0, 0, 0, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 9, 3, 3, 3, 3, 3]])
    assert rise is not None
    assert (rise.first, rise.last, rise.difference, rise.runs, rise.steps) == (0, 2, 2, 2, 10)


def test_the_standard_error_of_independent_runs_adds_as_squares():
    one = [0.0, 1.0, 0.0, 1.0, 0.5, 5.0, 6.0, 5.0, 6.0, 5.5]
    single, double = report.rise([one]), report.rise([one, one])
    assert single is not None and double is not None
    assert single.standard_error == pytest.approx((0.25 / 5 * 2) ** 0.5)
    assert double.standard_error == pytest.approx(single.standard_error / 2**0.5)


def test_too_few_steps_give_no_rise():
    assert report.rise([[1.0] * 9]) is None
    assert report.rise([]) is None


def test_a_repeated_step_counts_once_with_its_later_value_and_a_cut_line_is_left_out(tmp_path):
    write_metrics(tmp_path, "s", "20260101-000000.jsonl", [(1, {"x": 1.0}), (2, {"x": 2.0})])
    write_metrics(tmp_path, "s", "20260101-000100.jsonl", [(2, {"x": 5.0}), (3, {"x": 3.0})])
    with (tmp_path / "s" / "metrics" / "20260101-000100.jsonl").open("a") as file:
        file.write('{"step": 4, "da')
    assert read_steps(tmp_path / "s") == {1: {"x": 1.0}, 2: {"x": 5.0}, 3: {"x": 3.0}}


def test_the_page_stands_alone_and_shows_table_and_episodes(tmp_path):
    run = a_run(tmp_path / "run", [0.1 * step for step in range(12)])
    episode = {
        "stop_reason": "completed",
        "turns": [
            {
                "user": "Please <b>list</b> the files.",
                "passed": False,
                "reached": True,
                "difference": [{"class": "Files", "attribute": "root", "expected": "a", "actual": "b"}],
                "steps": [{"text": "<think>ls</think>", "format_error": "missing_action", "calls": []}],
            }
        ],
    }
    record = {"step": 1, "scenario_id": "multi_turn_base_0", "session_id": 3, "score": 0.5, "episode": episode}
    folder = run / "stage1_format" / "rollouts" / "train"
    folder.mkdir(parents=True)
    (folder / "000001.jsonl").write_text(json.dumps(record) + "\n" + json.dumps({**record, "score": 1.5}) + "\n")

    page = report.write(run).read_text()
    assert "stage1_format" in page and "multi_turn_base_0" in page and "missing_action" in page
    assert "score 1.50" in page and "score 0.50" not in page
    assert "&lt;b&gt;list&lt;/b&gt;" in page, "text of a model or a task must not become markup"
    assert "http://" not in page and "https://" not in page and "<script" not in page
    assert (run / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "+0.500" in report.table([run]) or "0.200 ->" in report.table([run])


def test_two_runs_are_pooled_in_the_table(tmp_path):
    one = a_run(tmp_path / "one", [0.0] * 5 + [1.0] * 5)
    two = a_run(tmp_path / "two", [0.0] * 5 + [3.0] * 5)
    (row,) = report.stage_rows([one, two])
    assert (row["runs"], row["reward"].difference, row["progress"].difference) == (2, 2.0, 1.0)
