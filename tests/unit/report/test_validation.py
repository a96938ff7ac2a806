"""Held-out tasks: which count, how far they moved, and that groups, guards and runs are never pooled."""

import pytest
from support.runs import STAGE, a_run, validated, write_metrics

from interaction.episode_file import path_of
from recipe.evaluation.intervals import SHARE, interval
from recipe.report import figures
from recipe.report.tables import LOSS
from recipe.report.validation import ends, moved, rows, table, validations

UP = "+0.500 [-0.979, +0.998]"


@pytest.fixture
def run(tmp_path):
    return a_run(tmp_path / "run", [0.1] * 10)


def test_a_column_is_each_model_of_the_run_that_was_validated_to_the_end(run):
    for stage in ("stage2_base", "stage3_full", "stage3_more"):
        a_run(run, [0.3] * 10, stage)
    validated(run, 0, {"a_1": [0], "a_2": [0], "b_1": [0], "b_2": [1]}, stage="before")
    assert table([run]) == ""
    validated(run, 0, {"a_1": [0], "a_2": [1], "b_1": [1], "b_2": [1], "c_1": [1]})
    validated(run, 5, {"a_1": [0], "a_2": [0], "b_1": [0], "b_2": [0]})
    validated(run, 9, {"a_1": [1], "b_1": [0]})
    validated(run, 0, {"a_1": [0]}, stage="stage2_base")
    write_metrics(run, "stage2_base", "0.jsonl", [(9, {})])  # step 0 was not validated to its end
    validated(run, 9, {"b_1": [1], "b_2": [1]}, stage="stage2_base")
    validated(run, 0, {"a_1": [0], "a_2": [0], "b_1": [0], "b_2": [0]}, stage="stage3_full")
    validated(run, 9, {"a_1": [1], "a_2": [1], "b_1": [1], "b_2": [0]}, stage="stage3_full")
    validated(run, 11, {"a_1": [0]}, stage="stage3_full")  # goes on
    assert moved([run])[:4] == [
        ["held-out", "tasks", "before", "warm start", "stage1", "stage2", "stage3", "since before", "since warm start"],
        ["a", "2", "0.000", "0.500", "1.000 of 1", "-", "1.000", "+1.000 [-0.976, +1.000]", UP],
        ["b", "2", "0.500", "1.000", "0.000 of 1", "-", "0.500", "+0.000 [-0.997, +0.997]", "-0.500 [-0.998, +0.979]"],
        ["all", "4", "0.250", "0.800 of 5", "0.500 of 2", "1.000 of 2", "0.750", UP, "+0.000 [-0.988, +0.988]"],
    ]
    validated(run, 1, {"a_1": [1]}, stage="stage3_more")
    assert moved([run])[0][5:8] == ["stage2_base", "stage3_full", "stage3_more"], "two would have one name"
    assert [row[:7] for row in ends(["r"], [validations(run)])[-2:]] == [
        ["stage3_full", "all", "r", "4", "0 -> 9", "0.000 -> 0.750 [0.010, 0.999]", "1.000 -> 1.000 [0.012, 1.000]"],
        ["stage3_more", "all", "r", "1", "1", "1.000", "1.000"],
    ], "the validation of step 11 goes on"


def test_a_metric_that_some_episodes_lack_is_in_no_table_and_calls_stand_beside_refusals(run):
    names = [f"{name}_{task}" for name in ("irrelevance", "multi_turn_x") for task in "12"]
    for step, acc in ((0, 0), (9, 1)):
        validated(run, step, {name: [acc] for name in names}, reward={"progress": 0.5, "calls": acc, "surplus": acc})
    shares = {name: [f"{share:.2f}" for share, _ in of] for name, of, _ in rows([run])[1]}
    whole, halves = ["0.00", "1.00"], ["0.50", "0.50"]
    assert shares == {
        **{"irrelevance": whole, "irrelevance, called": whole, "multi_turn_x": whole, "multi_turn_x, progress": halves},
        **{"all": whole, "all, official": ["1.00", "1.00"], "all, called": whole, "all, surplus": whole},
    }
    path = path_of(run / STAGE / "rollouts", "val", 9)
    path.write_text(path.read_text().replace(', "surplus": 1', "", 1))
    surplus = {row["category"]: str(row["surplus"]) for row in validations(run) if row["step"] == 9}
    assert surplus["irrelevance"] == surplus["all"] == "-" and surplus["multi_turn_x"].startswith("1.000 [")
    every = [row for row in validations(run) if row["category"] == "irrelevance"]
    panels = {panel.title: panel for panel in figures.validation_panels(["run"], [validations(run)], {STAGE: 100})}
    (line,) = panels["solved: irrelevance"].lines
    assert line.points == [(100 + row["step"], row["acc"].value) for row in every]
    assert line.band == [row["acc"].interval for row in every]
    validated(run, 10, {"late_1": [1]})
    assert table([run]) == "", "no task is in both columns"
    validated(a_run(run, [0.3] * 9, "stage2_base"), 9, {name: [1] for name in names}, stage="stage2_base")
    told = [name for name, *_ in rows([run])[1] if "," not in name]
    assert told == ["irrelevance", "multi_turn_x", "all"], "of the last column, though the stage before it had others"


def test_guards_clusters_and_categories_of_two_environments_are_kept_apart(run):
    for step, share in ((0, [0, 0]), (9, [1, 1])):
        validated(run, step, {"base_1": share, "base_2": share})
    assert rows([run])[0] == ["start", STAGE]
    write_metrics(run, "stage0_sft", "0.jsonl", [(1, {LOSS: 0.5})])
    titles, found = rows([run])
    assert titles == ["warm start", STAGE], "what a run with a warm start begins with"
    assert [name for name, *_ in found] == ["all", "all, official"], "a category alone has no row of its own"
    for step, share in ((0, [1, 1]), (9, [0, 0])):
        validated(run, step, {"easy_1": share, "easy_2": share, "long_1": [1, 1], "long_2": [1, 1]}, part="guard")
    found = {name: [share for share, _ in shares] for name, shares, _ in rows([run])[1]}
    assert found.pop("all, official") == [1.0, 1.0] and found.pop("all") == [0.0, 1.0]
    assert found == {"easy, guard": [1.0, 0.0], "long, guard": [1.0, 1.0], "all, guard": [1.0, 0.5]}
    for environment, solved in (("a", 6), ("b", 2)):
        write_metrics(run, STAGE, "12.jsonl", [(12, {})])
        validated(run, 8, {f"all_there_is_{at}": [float(at < solved)] for at in range(8)}, environment=environment)
    measured = {row["category"]: row for row in validations(run) if row["step"] == 8}
    shares = {name: (row["tasks"], row["acc"].value) for name, row in measured.items()}
    assert shares == {"a/all_there_is": (8, 0.75), "b/all_there_is": (8, 0.25), "all": (16, 0.5)}
    sure = interval([1.0] * 8 + [0.0] * 8, range(16), bounds=SHARE)
    assert measured["all"]["acc"].interval == pytest.approx(sure), "16 clusters, not 8"
    for environment, names in {"a": ["base_1", "late_1"], "d": ["base_1", "base_2"], "e": ["x_1", "y_1"]}.items():
        validated(run, 7, dict.fromkeys(names, [1.0]), environment=environment)
    rows_of = [row["category"] for row in validations(run) if row["step"] == 7]
    assert rows_of == ["a", "d/base", "e/x", "e/y", "all"], "one row where several categories are others' too"
