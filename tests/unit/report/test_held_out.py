"""How much held-out tasks moved: from tasks for reporting alone, with errors that cover which tasks they are."""

import re
from pathlib import Path
from statistics import stdev

import pytest
from support.report_pages import record, store
from support.runs import STAGE, a_run, validated

from bfcl_env import load_scenarios
from recipe.report import held_out
from recipe.report.__main__ import main


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return a_run(tmp_path / "run", [0.1] * 10)


def test_the_difference_is_that_of_the_tasks_for_reporting_and_its_error_that_of_drawn_tasks(run: Path) -> None:
    validated(run, 0, {"a": [0, 0], "b": [1, 0], "c": [0, 0], "d": [1, 1]})
    validated(run, 9, {"a": [1, 1], "b": [1, 0], "c": [1, 0], "d": [1, 1]})
    validated(run, 0, {"e": [1, 1]}, part="choose")
    validated(run, 9, {"e": [0, 0]}, part="choose")
    titles, (every, _) = held_out.rows([run])
    assert titles == ["start", STAGE] and every.shares == [(0.375, 4), (0.75, 4)]
    (only,) = every.since["start"].runs
    assert (only.first, only.last, only.tasks) == (0.375, 0.75, 4)
    assert only.standard_error == pytest.approx(stdev([1.0, 0.0, 0.5, 0.0]) / 2)


def test_a_column_is_the_model_before_after_the_warm_start_and_after_each_stage_that_was_validated(
    run: Path, capsys, monkeypatch
) -> None:
    monkeypatch.setattr("sys.argv", ["report", str(run)])
    for stage in ("stage2_base", "stage3_full"):
        a_run(run, [0.3] * 10, stage)
    (run / "before" / "config").mkdir(parents=True)
    (run / "before" / "config" / "config.yaml").write_text("")
    validated(run, 0, {"a_1": [0], "a_2": [0], "b_1": [0], "b_2": [1]}, stage="before")
    main()
    assert "held-out" not in capsys.readouterr().out
    validated(run, 0, {"a_1": [0], "a_2": [1], "b_1": [1], "b_2": [1]})
    validated(run, 5, {"a_1": [0], "a_2": [0], "b_1": [0], "b_2": [0]})
    validated(run, 9, {"a_1": [1], "b_1": [0]})
    validated(run, 0, {"a_1": [0], "a_2": [0], "b_1": [0], "b_2": [0]}, stage="stage3_full")
    validated(run, 9, {"a_1": [1], "a_2": [1], "b_1": [1], "b_2": [0]}, stage="stage3_full")
    validated(run, 11, {"a_1": [0]}, stage="stage3_full")  # goes on
    main()
    said, page = capsys.readouterr().out, (run / "report.html").read_text()
    table = said[said.index("held-out  ") :].splitlines()
    assert re.split(r"  +", table[0]) == [
        *("held-out", "tasks", "before", "warm start", "stage1", "stage3", "since before", "since warm start")
    ]
    assert [re.split(r"  +", line)[:6] for line in table[1:4]] == [
        ["a", "2", "0.000", "0.500", "1.000 of 1", "1.000"],
        ["b", "2", "0.500", "1.000", "0.000 of 1", "0.500"],
        ["all", "4", "0.250", "0.750", "0.500 of 2", "0.750"],
    ]
    assert "+0.500 [-1.091, +2.091]    +0.000 [-1.299, +1.299]" in table[3]
    assert "<th>since warm start</th>" in page and "<td>1.000 of 1</td>" in page
    assert "before has not logged a training step" not in page


def test_what_a_guard_plays_has_rows_of_its_own_and_a_category_alone_has_none(run: Path) -> None:
    validated(run, 0, {"base_1": [0, 0], "base_2": [0, 0]})
    validated(run, 9, {"base_1": [1, 1], "base_2": [1, 1]})
    assert [row.name for row in held_out.rows([run])[1]] == ["all", "all, official"]
    validated(run, 0, {"easy_1": [1, 1], "easy_2": [1, 1], "long_1": [1, 1], "long_2": [1, 1]}, part="guard")
    validated(run, 9, {"easy_1": [0, 0], "easy_2": [0, 0], "long_1": [1, 1], "long_2": [1, 1]}, part="guard")
    assert {row.name: [share for share, _ in row.shares] for row in held_out.rows([run])[1]} == {
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
    moved = held_out.rows([run, other])[1][0].since["start"]
    assert [each.value for each in moved.runs] == [1.0, 0.5] and moved.interval is not None
    assert "+0.750 [-2.427, +3.927]  +1.000 +- 0.000, +0.500 +- 0.000" in held_out.table([run, other])


OF_ONE, OF_SEVERAL = "Of one run the brackets are", "Of several runs the brackets are"


@pytest.mark.parametrize("several", [False, True])
def test_page_and_console_explain_the_brackets_that_they_show_and_no_others(
    several: bool, tmp_path: Path, capsys, monkeypatch
) -> None:
    folders = [tmp_path / name for name in ("one", "two")[: 1 + several]]
    for number, folder in enumerate(folders):
        a_run(folder, [0.1 + number] * 10)
        scenarios = load_scenarios("multi_turn_base")
        for step in range(1, 11):
            plays = [record(scenarios[0], step=step, sample=n, solved=n < step // 4) for n in range(3)]
            store(folder, STAGE, "train", step, plays)
        validated(folder, 0, {"a": [0, 0], "b": [1, 0]})
        validated(folder, 9, {"a": [1, 0], "b": [1, 1]})
    monkeypatch.setattr("sys.argv", ["report", *map(str, folders)])
    main()
    printed, page = (
        " ".join(text.split()) for text in (capsys.readouterr().out, (folders[0] / "report.html").read_text())
    )
    for said, begin in ((printed, "held-out tasks start"), (page, "<th>held-out</th>")):
        stages, _, moved = said.partition(begin)
        for part in (stages, moved):
            assert re.search(r"[+-]\d\.\d+, [+-]\d\.\d+\]", part)
            assert (OF_ONE in part, OF_SEVERAL in part) == (not several, several)
