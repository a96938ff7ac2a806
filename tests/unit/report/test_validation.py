"""Held-out tasks: which count, how far they moved, and that groups, guards and runs are never pooled."""

from pathlib import Path

import pytest
from support.runs import STAGE, a_run, validated

from recipe.evaluation.intervals import CHANGE, SHARE, interval
from recipe.report import figures
from recipe.report.validation import moved, rows, table, validations


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return a_run(tmp_path / "run", [0.1] * 10)


def test_the_difference_is_that_of_the_test_tasks_and_runs_are_never_pooled(run: Path, tmp_path: Path) -> None:
    validated(run, 0, {"a": [0, 0], "b": [1, 0], "c": [0, 0], "d": [1, 1]})
    validated(run, 9, {"a": [1, 1], "b": [1, 0], "c": [1, 0], "d": [1, 1]})
    for step, acc in ((0, 1), (9, 0)):
        validated(run, step, {"e": [acc, acc]}, part="dev")
    titles, ((_, shares, since), *_) = rows([run])
    assert titles == ["start", STAGE] and shares == [(0.375, 4), (0.75, 4)]
    (only,) = since["start"].runs
    assert (only.first, only.last, len(only.tasks)) == (0.375, 0.75, 4)
    assert since["start"].interval == interval([1.0, 0.0, 0.5, 0.0], "abcd", bounds=CHANGE)
    two = [a_run(tmp_path / name, [0.1] * 10) for name in ("one", "two")]
    for folder, end in zip(two, (1.0, 0.5), strict=True):
        validated(folder, 0, {"a": [0, 0], "b": [0, 0]})
        validated(folder, 9, {"a": [end, end], "b": [end, end]})
    assert "+0.750 [-0.936, +0.999]  +1.000, +0.500" in table(two)


def test_a_column_is_each_model_of_the_run_that_was_validated_to_the_end(run: Path) -> None:
    for stage in ("stage2_base", "stage3_full"):
        a_run(run, [0.3] * 10, stage)
    validated(run, 0, {"a_1": [0], "a_2": [0], "b_1": [0], "b_2": [1]}, stage="before")
    assert table([run]) == ""
    validated(run, 0, {"a_1": [0], "a_2": [1], "b_1": [1], "b_2": [1]})
    validated(run, 5, {"a_1": [0], "a_2": [0], "b_1": [0], "b_2": [0]})
    validated(run, 9, {"a_1": [1], "b_1": [0]})
    validated(run, 0, {"a_1": [0], "a_2": [0], "b_1": [0], "b_2": [0]}, stage="stage3_full")
    validated(run, 9, {"a_1": [1], "a_2": [1], "b_1": [1], "b_2": [0]}, stage="stage3_full")
    validated(run, 11, {"a_1": [0]}, stage="stage3_full")  # goes on
    assert [line[:6] for line in moved([run])[:4]] == [
        ["held-out", "tasks", "before", "warm start", "stage1", "stage3"],
        ["a", "2", "0.000", "0.500", "1.000 of 1", "1.000"],
        ["b", "2", "0.500", "1.000", "0.000 of 1", "0.500"],
        ["all", "4", "0.250", "0.750", "0.500 of 2", "0.750"],
    ]
    assert moved([run])[3][6:] == ["+0.500 [-0.979, +0.998]", "+0.000 [-0.988, +0.988]"]


def test_guards_clusters_and_categories_of_two_environments_are_kept_apart(run: Path) -> None:
    for step, share in ((0, [0, 0]), (9, [1, 1])):
        validated(run, step, {"base_1": share, "base_2": share})
    assert [name for name, *_ in rows([run])[1]] == ["all", "all, official"], "a category alone has no row of its own"
    for step, share in ((0, [1, 1]), (9, [0, 0])):
        validated(run, step, {"easy_1": share, "easy_2": share, "long_1": [1, 1], "long_2": [1, 1]}, part="guard")
    found = {name: [share for share, _ in shares] for name, shares, _ in rows([run])[1]}
    assert found.pop("all, official") == [1.0, 1.0] and found.pop("all") == [0.0, 1.0]
    assert found == {"easy, guard": [1.0, 0.0], "long, guard": [1.0, 1.0], "all, guard": [1.0, 0.5]}
    for environment, solved in (("a", 6), ("b", 2)):
        passed = {f"all_there_is_{task}": [float(task < solved)] for task in range(8)}
        validated(run, 12, passed, environment=environment)
    measured = {row["category"]: row for row in validations(run) if row["step"] == 12}
    shares = {name: (row["tasks"], row["acc"].value) for name, row in measured.items()}
    assert shares == {"a/all_there_is": (8, 0.75), "b/all_there_is": (8, 0.25), "all": (16, 0.5)}
    sure = interval([1.0] * 8 + [0.0] * 8, range(16), bounds=SHARE)
    assert measured["all"]["acc"].interval == pytest.approx(sure), "16 clusters, not 8"
    for environment, other in (("a", "late_1"), ("b", "late_1"), ("c", "x_1"), ("d", "base_2")):
        validated(run, 15, {"base_1": [1.0], other: [0.0]}, environment=environment)
    rows_of = [row["category"] for row in validations(run) if row["step"] == 15]
    assert rows_of == ["a", "b", "c", "d/base", "all"], "one row where several categories are others' too"


def test_the_bands_are_the_intervals_of_the_table_over_all_steps(run: Path) -> None:
    for step, share in ((0, [0, 0]), (9, [1, 1])):
        validated(run, step, {"base_1": share, "base_2": [0, 0], "miss_1": [0, 0]})
    every = validations(run)
    panels = figures.validation_panels(["run"], [every], {STAGE: 100})
    ((line,),) = [panel.lines for panel in panels if panel.title == "solved: base"]
    of_base = [row for row in every if row["category"] == "base"]
    assert line.points == [(100 + row["step"], row["acc"].value) for row in of_base]
    assert line.band == [row["acc"].interval for row in of_base]


def test_names_are_drawn_as_they_are(tmp_path: Path) -> None:
    """matplotlib would read some as formulas, and hide others."""
    for number, name in enumerate((r"$\frac{1}{0}$", "_hidden", "<b>")):
        runs = [a_run(tmp_path / f"{number}{half}" / name.replace("/", ""), [0.1] * 9 + [0.2]) for half in "12"]
        shown = (" " if name.startswith("_") else "") + runs[0].name.replace("<", "&lt;").replace(">", "&gt;")
        drawn = "".join(panel["svg"] for panel in figures.draw_panels(figures.curves(runs)[0]))
        assert drawn.count(f">{shown}</text>") == 2, "both runs in the legend"
