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
    moved = held_out.held_out([run / STAGE], "acc")
    assert moved is not None and (moved.first, moved.last) == (0.375, 0.75)
    (only,) = moved.runs
    assert only.standard_error == pytest.approx(stdev([1.0, 0.0, 0.5, 0.0]) / 2) and only.tasks == 4


def test_the_table_is_printed_where_a_stage_has_validated_twice(run: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", ["report", str(run)])
    validated(run, 0, {"a": [0, 0], "b": [1, 0]})
    main()
    assert "Held-out tasks" not in capsys.readouterr().out
    validated(run, 9, {"a": [1, 0], "b": [1, 1]})
    main()
    said = capsys.readouterr().out
    assert "0.250 -> 0.750" in said and "acc_official" in said and "Held-out tasks for reporting" in said


def test_categories_and_what_a_guard_plays_have_rows_of_their_own(run: Path) -> None:
    validated(run, 0, {"base_1": [0, 0], "base_2": [0, 0]})
    validated(run, 9, {"base_1": [1, 1], "base_2": [1, 1]})
    assert "acc: " not in held_out.table([run]) and "guard" not in held_out.table([run])
    validated(run, 0, {"miss_1": [1, 1], "miss_2": [1, 1]})
    validated(run, 9, {"miss_1": [0, 0], "miss_2": [1, 1]})
    validated(run, 0, {"easy_1": [1, 1], "easy_2": [1, 1], "long_1": [1, 1], "long_2": [1, 1]}, part="guard")
    validated(run, 9, {"easy_1": [0, 0], "easy_2": [0, 0], "long_1": [1, 1], "long_2": [1, 1]}, part="guard")
    found = dict(re.findall(r"(acc[^\d]*?) +(\d\.\d+ -> \d\.\d+)", held_out.table([run])))
    assert found == {
        "acc": "0.500 -> 0.750",
        "acc_official": "1.000 -> 1.000",
        "acc: base": "0.000 -> 1.000",
        "acc: miss": "1.000 -> 0.500",
        "acc, guard": "1.000 -> 0.500",
        "acc, guard: easy": "1.000 -> 0.000",
        "acc, guard: long": "1.000 -> 1.000",
    }


def test_several_runs_are_never_pooled(run: Path, tmp_path: Path) -> None:
    other = a_run(tmp_path / "other", [0.1] * 10)
    for folder, end in ((run, 1.0), (other, 0.5)):
        validated(folder, 0, {"a": [0, 0], "b": [0, 0]})
        validated(folder, 9, {"a": [end, end], "b": [end, end]})
    moved = held_out.held_out([run / STAGE, other / STAGE], "acc")
    assert moved is not None and [each.value for each in moved.runs] == [1.0, 0.5]
    assert "+1.000" in held_out.table([run, other]) and moved.interval is not None


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
    for said, begin in ((printed, "tasks of first -> last"), (page, "<th>first → last</th>")):
        stages, _, moved = said.partition(begin)
        for part in (stages, moved):
            assert re.search(r"[+-]\d\.\d+, [+-]\d\.\d+\]", part)
            assert (OF_ONE in part, OF_SEVERAL in part) == (not several, several)
