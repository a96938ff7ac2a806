"""Held-out tasks: which count, how far they moved, and that groups, guards and runs are never pooled."""

import json
import re
from pathlib import Path
from statistics import stdev

import pytest
from support.runs import STAGE, a_run, validated, write_metrics

from recipe.report import figures, page
from recipe.report.validation import METRICS, OVERALL, beside, first_and_last, moved, rows, table, validations

CURVES = 'aria-label="Validation over steps'


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return a_run(tmp_path / "run", [0.1] * 10)


def svg(panels: list[figures.Panel], names: list[str]) -> str:
    return "".join(drawn["svg"] for drawn in figures.draw_panels(panels, names))


def test_the_difference_is_that_of_the_tasks_for_reporting_and_its_error_that_of_drawn_tasks(run: Path) -> None:
    validated(run, 0, {"a": [0, 0], "b": [1, 0], "c": [0, 0], "d": [1, 1]})
    validated(run, 9, {"a": [1, 1], "b": [1, 0], "c": [1, 0], "d": [1, 1]})
    validated(run, 0, {"e": [1, 1]}, part="dev")
    validated(run, 9, {"e": [0, 0]}, part="dev")
    titles, ((_, shares, since), *_) = rows([run])
    assert titles == ["start", STAGE] and shares == [(0.375, 4), (0.75, 4)]
    (only,) = since["start"].runs
    assert (only.first, only.last, only.tasks) == (0.375, 0.75, 4)
    assert only.standard_error == pytest.approx(stdev([1.0, 0.0, 0.5, 0.0]) / 2)


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
    assert moved([run])[3][6:] == ["+0.500 [-1.091, +2.091]", "+0.000 [-1.299, +1.299]"]


def test_what_a_guard_plays_has_rows_of_its_own_and_a_category_alone_has_none(run: Path) -> None:
    validated(run, 0, {"base_1": [0, 0], "base_2": [0, 0]})
    validated(run, 9, {"base_1": [1, 1], "base_2": [1, 1]})
    assert [name for name, *_ in rows([run])[1]] == ["all", "all, official"]
    validated(run, 0, {"easy_1": [1, 1], "easy_2": [1, 1], "long_1": [1, 1], "long_2": [1, 1]}, part="guard")
    validated(run, 9, {"easy_1": [0, 0], "easy_2": [0, 0], "long_1": [1, 1], "long_2": [1, 1]}, part="guard")
    assert {name: [share for share, _ in shares] for name, shares, _ in rows([run])[1]} == {
        "all": [0.0, 1.0],
        "all, official": [1.0, 1.0],
        "easy, guard": [1.0, 0.0],
        "long, guard": [1.0, 1.0],
        "all, guard": [1.0, 0.5],
    }


def test_several_runs_are_never_pooled(run: Path, tmp_path: Path) -> None:
    other = a_run(tmp_path / "other", [0.1] * 10)
    for folder, end in ((run, 1.0), (other, 0.5)):
        validated(folder, 0, {"a": [0, 0], "b": [0, 0]})
        validated(folder, 9, {"a": [end, end], "b": [end, end]})
    assert "+0.750 [-2.427, +3.927]  +1.000 +- 0.000, +0.500 +- 0.000" in table([run, other])


def test_clusters_and_categories_of_two_environments_are_kept_apart(run: Path) -> None:
    def line(environment: str, task: int, acc: float, part: str = "test") -> str:
        names = {"environment": environment, "task_id": str(task), "category": "all_there_is", "cluster": str(task)}
        scored = {"score": acc, "reward": {"acc": acc}, "episode": {}}
        return json.dumps({"step": 1, "session_id": 0, **names, "part": part, **scored}) + "\n"

    path = run / STAGE / "rollouts" / "val" / "000001.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(line("a", task, 1.0) + line("b", task, 0.0) for task in range(8)))
    found = {row["category"]: row for row in validations(run)}
    shares = {name: (row["tasks"], row["acc"].value) for name, row in found.items()}
    assert shares == {"a/all_there_is": (8, 1.0), "b/all_there_is": (8, 0.0), "all": (16, 0.5)}
    low, high = found["all"]["acc"].interval
    assert high - low > 0.3, "16 clusters; as 8 that each hold a pass and a failure they would not differ at all"
    guarded = [line(name, task, 0.0, "guard") for task in range(4) for name in "bc"]
    path.write_text("".join([line("a", task, 1.0) for task in range(8)] + guarded + [line("a", 9, 0.0, "guard")]))
    again = {row["category"]: row["tasks"] for row in validations(run)}
    assert (again["a/all_there_is"], again["a/all_there_is, guard"], again["all, guard"]) == (8, 1, 9)


def test_the_bands_are_the_intervals_of_the_table_over_all_steps(run: Path) -> None:
    for step, share in ((0, [0, 0]), (4, [1, 0]), (9, [1, 1])):
        assert CURVES not in page.write(run).read_text() or step > 4, "a curve has two points"
        validated(run, step, {"base_1": share, "miss_1": [0, 0]})
    every = validations(run)
    points = figures.timeline(every, {STAGE: 100})
    assert set(points) == {(category, metric) for category in ("base", "miss", OVERALL) for metric in METRICS}
    for (category, metric), line in points.items():
        assert line == [(100 + row["step"], row[metric]) for row in every if row["category"] == category]
    assert {row["step"] for row in first_and_last(every)} == {0, 9} and figures.timeline(every, {}) == {}
    validated(run, 0, {"easy_1": [0, 0]}, part="guard")
    validated(run, 9, {"easy_1": [0, 0]}, part="guard")
    drawn = svg(
        figures.validated_panels(["run"], [figures.timeline(validations(run), {STAGE: 0})], {STAGE: 0}), ["run"]
    )
    assert all(f">solved: {name}<" in drawn for name in ("base", "miss", "easy, guard"))


def test_names_are_drawn_as_they_are(tmp_path: Path) -> None:
    """matplotlib would read some as formulas, and hide others."""
    for number, name in enumerate((r"$\frac{1}{0}$", "_hidden", "<b>", "100%")):
        runs = [a_run(tmp_path / f"{number}{half}" / name.replace("/", ""), [0.1] * 9 + [0.2]) for half in "12"]
        for folder, step in ((folder, step) for folder in runs for step in (0, 9)):
            validated(folder, step, {f"{name}_1": [1, 0], "other_1": [0]})
        lines = [figures.timeline(validations(folder), {STAGE: 0}) for folder in runs]
        shown = (" " if name.startswith("_") else "") + name.replace("<", "&lt;").replace(">", "&gt;")
        drawn = svg(figures.validated_panels([name, "second"], lines, {STAGE: 0}), [name, "second"])
        assert f">{shown}</text>" in drawn and ">second</text>" in drawn and "<b>" not in drawn
        names = [path.name for path in runs]
        assert svg(figures.curves(runs, lines)[0], names).count(f">{shown}</text>") == 2, "both runs in the legend"


def test_runs_stand_beside_one_another_each_with_its_own_steps_and_column(run: Path, tmp_path: Path) -> None:
    other, third, fourth = (tmp_path / name for name in ("other", "third", "fourth"))
    for folder, last in ((run, 8), (a_run(other, [0.1] * 5 + [0.3] * 5), 9)):
        validated(folder, 0, {"a": [0, 0], "b": [0, 0]})
        validated(folder, last, {"a": [1, 0], "b": [last - 8, 1]})
    write_metrics(third, "stage9", "a.jsonl", [(1, {"critic/score/mean": 1.0})])
    (row,) = beside([validations(folder) for folder in (run, other, a_run(fourth, [0.1] * 10))])
    found = [[(one["step"], one["acc"].value) for one in each] for each in row["runs"]]
    assert found == [[(0, 0.0), (8, 0.5)], [(0, 0.0), (9, 0.75)], []]
    text = page.write(run, (third, other)).read_text()
    assert "4 episodes, step 0 → 8" in text and "4 episodes, step 0 → 9" in text
    row = text[text.index("<td>reward</td>") :]
    cells = [re.sub("<.*", "", part) for part in row[: row.index("</tr>")].split("<td>")[1:]]
    assert cells[3].startswith("+0.000") and cells[4] == "" and cells[5].startswith("+0.200"), (
        "an empty cell is its own"
    )
