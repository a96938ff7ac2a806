"""Validations as curves: bands are the intervals of the table, and several runs stand beside one another."""

import json
from pathlib import Path

import pytest
from support.runs import STAGE, a_run, validated, write_metrics

from recipe import report
from recipe.report.validation import METRICS, OVERALL, beside, first_and_last, validations
from recipe.report.validation_curves import draw, timeline

CURVES = 'aria-label="Validation over steps'


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return a_run(tmp_path / "run", [0.1] * 10)


def test_there_is_a_curve_once_there_are_two_points(run: Path) -> None:
    assert CURVES not in report.write(run).read_text()
    validated(run, 0, {"a": [0, 0], "b": [1, 0]})
    assert CURVES not in report.write(run).read_text()
    validated(run, 5, {"a": [1, 0], "b": [1, 0]})
    assert CURVES in report.write(run).read_text()


def test_the_bands_are_the_intervals_of_the_table_over_all_steps(run: Path) -> None:
    for step, share in ((0, [0, 0]), (4, [1, 0]), (9, [1, 1])):
        validated(run, step, {"base_1": share, "miss_1": [0, 0]})
    every = validations(run, every=True)
    points = timeline(every, {STAGE: 100})
    assert set(points) == {(category, metric) for category in ("base", "miss", OVERALL) for metric in METRICS}
    for (category, metric), line in points.items():
        rows = [row for row in every if row.category == category]
        assert line == [(100 + row.step, getattr(row, metric)) for row in rows] and len(line) == 3
    assert first_and_last(every) == validations(run)
    drawn = draw(["run"], [points])
    assert [f">{title}<" in drawn for title in ("solved", "progress", "solved: base", "solved: miss")] == [True] * 4


def test_of_one_category_all_tasks_are_drawn_once_and_a_guard_apart(run: Path) -> None:
    for step in (0, 9):
        validated(run, step, {"base_1": [1, 0]})
        validated(run, step, {"easy_1": [0, 0]}, part="guard")
    points = timeline(validations(run, every=True), {STAGE: 0})
    assert [measured.value for _, measured in points[OVERALL, "acc"]] == [0.5, 0.5]
    drawn = draw(["run"], [points])
    assert ">solved: easy, guard<" in drawn and ">solved: base<" not in drawn


def test_a_stage_that_the_first_run_has_not_is_on_no_time_line(run: Path) -> None:
    validated(run, 0, {"a": [1]})
    assert timeline(validations(run), {}) == {}


@pytest.mark.parametrize("name", ["$x$", "_hidden", "<b>", "a$b"])
def test_names_of_runs_and_categories_are_drawn_as_they_are(tmp_path: Path, name: str) -> None:
    runs = [a_run(tmp_path / number / "run", [0.1] * 10) for number in "12"]
    for folder in runs:
        for step in (0, 9):
            validated(folder, step, {f"{name}_1": [1, 0], "other_1": [0]})
    lines = [timeline(validations(folder), {STAGE: 0}) for folder in runs]
    drawn = draw([name, "second"], lines)
    shown = (" " if name.startswith("_") else "") + name.replace("<", "&lt;").replace(">", "&gt;")
    assert f">{shown}</text>" in drawn and ">second</text>" in drawn and "<b>" not in drawn


def test_runs_stand_beside_one_another_each_with_its_own_first_and_last_step(run: Path, tmp_path: Path) -> None:
    other, third = (a_run(tmp_path / name, [0.1] * 10) for name in ("other", "third"))
    for folder, last in ((run, 8), (other, 9)):
        validated(folder, 0, {"a": [0, 0], "b": [0, 0]})
        validated(folder, last, {"a": [1, 0], "b": [last - 8, 1]})
    (row,) = beside([validations(folder) for folder in (run, other, third)])
    assert [[(one.step, one.acc.value) for one in found] for found in row.runs] == [
        [(0, 0.0), (8, 0.5)],
        [(0, 0.0), (9, 0.75)],
        [],
    ]
    page = report.write(run, (other, third)).read_text()
    assert "4 episodes, step 0 → 8" in page and "4 episodes, step 0 → 9" in page
    assert "<th>run</th><th>other</th><th>third</th>" in page


def test_a_run_without_a_stage_has_an_empty_cell_in_its_own_column(run: Path, tmp_path: Path) -> None:
    """Not that of the run behind it."""
    other, third = tmp_path / "other", a_run(tmp_path / "third", [0.1] * 5 + [0.3] * 5)
    write_metrics(other, "stage9", "a.jsonl", [(1, {"critic/score/mean": 1.0})])
    page = report.write(run, (other, third)).read_text()
    row = page[page.index("<td>reward</td>") :]
    cells = [part.partition("</td>")[0] for part in row[: row.index("</tr>")].split("<td>")[1:]]
    assert cells[3].startswith("+0.000") and cells[4] == "" and cells[5].startswith("+0.200")


def test_validations_whose_lines_are_damaged_are_left_out_of_the_curves(run: Path) -> None:
    for step in (0, 4, 9):
        validated(run, step, {"a": [1, 0], "b": [1, 0]})
    path = run / STAGE / "rollouts" / "val" / "000004.jsonl"
    path.write_bytes(b"\xff\n" + json.dumps({"step": "x"}).encode())
    assert [row.step for row in validations(run, every=True)] == [0, 9]
    assert CURVES in report.write(run).read_text()
