"""The report pools runs as its columns say, and reads what interrupted runs leave behind."""

import json
import re
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


def test_the_page_and_the_picture_are_written_into_the_first_run(tmp_path):
    one, two = (a_run(tmp_path / name, [0.1 * step for step in range(12)]) for name in ("one", "two"))
    page = report.write(one, (two,))
    assert page == one / "report.html"
    assert set(re.findall(r'\b(?:src|href)="(.)', page.read_text())) == {"#"}, (
        "it loads nothing, not even from beside it"
    )
    assert (one / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert not (two / "report.html").exists()


def test_two_runs_are_pooled_in_the_table(tmp_path):
    one = a_run(tmp_path / "one", [0.0] * 5 + [1.0] * 5)
    two = a_run(tmp_path / "two", [0.0] * 5 + [3.0] * 5)
    (row,) = report.stage_rows([one, two])
    assert (row["runs"], row["reward"].difference, row["progress"].difference) == (2, 2.0, 1.0)


def test_a_stage_without_step_times_still_has_its_row(tmp_path):
    write_metrics(tmp_path, "stage1_format", "a.jsonl", [(step, {"critic/score/mean": 0.5}) for step in range(1, 11)])
    assert report.stage_rows([tmp_path])[0]["seconds"] is None
    assert report.table([tmp_path]).splitlines()[1].split()[:3] == ["stage1_format", "1", "10"]


def test_a_line_of_metrics_without_data_is_left_out(tmp_path):
    write_metrics(tmp_path, "s", "a.jsonl", [(1, {"x": 1.0})])
    with (tmp_path / "s" / "metrics" / "a.jsonl").open("a") as file:
        file.write('{"step": 2}\n3\n')
    assert read_steps(tmp_path / "s") == {1: {"x": 1.0}}
