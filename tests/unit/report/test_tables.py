"""How far each stage moved, task by task, and which steps, tasks and runs are compared."""

import json
import shutil
from itertools import product
from math import inf, nan
from pathlib import Path

import pytest
from support.runs import STAGE, a_run, write_metrics

from interaction.episode_file import append, path_of
from recipe.evaluation.intervals import CHANGE, interval
from recipe.report import __main__ as command
from recipe.report import page, tables
from recipe.report.tables import REWARD, Rise, compare, rise


def a_run_with_episodes(folder: Path, rise: float, shift: int = 0) -> Path:
    """Ten steps; the tasks of the last five are moved by `shift`."""
    run = a_run(folder, [0.5] * 5 + [0.5 + rise] * 5)
    for step in range(1, 11):
        late = step > 5
        head = {"step": step, "environment": "bfcl", "category": "base", "uid": "u"}
        for task, n in product(range(shift * late, shift * late + 4), range(2)):
            score = (0.4, 0.6)[n] + rise * late * (1.5 if task % 2 else 0.5)
            line = {**head, "session_id": n, "task_id": f"base_{task}", "cluster": str(task // 2), "score": score}
            line |= {"reward": {"progress": score / 2}, "episode": {}}
            append(path_of(run / STAGE / "rollouts", "train", step), line)
    return run


def episodes(**tasks: list[float]) -> dict:
    return {name: (name[0], values) for name, values in tasks.items()}


def test_tasks_are_compared_with_themselves_and_count_the_same() -> None:
    easy, hard = [1.0, 1.0, 1.0, 0.9], [0.0, 0.0, 0.0, 0.1]
    found = compare(episodes(a=hard, b=hard, c=easy), episodes(b=hard, c=easy, d=easy))
    assert found is not None and (found.last - found.first, len(found.tasks), found.all_tasks) == (0.0, 2, False)
    found = compare(episodes(a=[0.0, 1.0], b=[0.5, 0.5]), episodes(a=[1.0, 1.0], b=[0.0, 1.0]))
    assert found is not None and found.last - found.first == 0.25
    assert compare(episodes(a=[1.0, 0.0]), episodes(b=[1.0, 0.0])) is None


def test_a_bracket_covers_clusters_and_seeds() -> None:
    first, last = episodes(a1=[0.0], a2=[0.0], b1=[0.0], c1=[1.0]), episodes(a1=[1.0], a2=[1.0], b1=[0.0], c1=[1.0])
    one = compare(first, last)
    assert one is not None and Rise((one,)).interval == interval([1, 1, 0, 0], "aabc", bounds=CHANGE)
    assert Rise((one,), of_shares=False).interval == interval([1, 1, 0, 0], "aabc")
    other = compare(first, episodes(a1=[0.0], a2=[1.0], b1=[0.0], c1=[1.0]))
    assert other is not None
    expected = interval([1, 1, 0, 0, 0, 1, 0, 0], "aabc" * 2, [0] * 4 + [1] * 4, CHANGE)
    assert expected is not None and Rise((one, other)).interval == expected
    still = compare(first, first)
    assert still is not None and str(Rise((still, still))) == "+0.000", "no bracket of no width"


def test_stages_stand_in_the_order_in_which_they_were_started(tmp_path: Path) -> None:
    stages = ["stage0_sft", "stage1_format", "polish", "a_last_one"]
    for number, stage in enumerate(stages):
        write_metrics(tmp_path, stage, f"2026010{number}-000000.jsonl", [(1, {REWARD: 0.5})])
    write_metrics(tmp_path, "stage1_format", "20260109-000000.jsonl", [(2, {REWARD: 0.5})])
    assert [path.name for path in tables.stage_dirs(tmp_path)] == stages


def test_one_run_has_an_interval_over_clusters_where_all_its_episodes_are_stored(tmp_path: Path) -> None:
    one, two = (a_run_with_episodes(tmp_path / str(rise), rise) for rise in (0.1, 0.2))
    found, progress = rise([two / STAGE], REWARD), rise([two / STAGE], "train/progress")
    moves = [0.1, 0.3, 0.1, 0.3]
    assert found is not None and found.interval == pytest.approx(interval(moves, "aabb"))
    assert progress is not None and progress.difference == pytest.approx(0.1)
    both = rise([one / STAGE, two / STAGE], REWARD)
    expected = interval([move / 2 for move in moves] + moves, "aabb" * 2, [0] * 4 + [1] * 4)
    assert both is not None and both.interval == pytest.approx(expected)
    path_of(one / STAGE / "rollouts", "train", 8).write_text("")
    for run, said in (
        (two, "+0.200, one run"),
        (one, "no stored episodes"),
        (a_run_with_episodes(tmp_path / "b", 0.2, shift=2), "on 2 tasks"),
        (a_run_with_episodes(tmp_path / "c", 0.2, shift=4), "no task in both windows"),
        (a_run(tmp_path / "short", [1.0] * 9), "fewer than 10 steps"),
    ):
        assert said in tables.table([run]), said


def test_repeated_episodes_count_once_and_odd_scores_not_at_all(tmp_path: Path) -> None:
    run = a_run_with_episodes(tmp_path / "one", 0.2)
    path, before = run / STAGE / "rollouts" / "train" / "000003.jsonl", tables.table([run])
    line = json.loads(path.read_text().splitlines()[0])
    odd = [json.dumps({**line, "session_id": 10 + n, "score": bad}) for n, bad in enumerate((None, nan, "x"))]
    path.write_text(path.read_text() * 2 + "\n".join(odd) + "\n")
    assert tables.table([run]).splitlines()[1].split() == before.splitlines()[1].split()
    for every in path.parent.iterdir():
        every.write_text(every.read_text() + every.read_text().replace('"bfcl"', '"shop"'))
    found = rise([run / STAGE], REWARD)
    assert found is not None and len(found.runs[0].tasks) == 8, "tasks of two environments with one id"


def test_a_copy_of_a_run_is_no_second_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    one = a_run_with_episodes(tmp_path / "one", 0.1)
    monkeypatch.setattr("sys.argv", ["report", str(one), str(shutil.copytree(one, tmp_path / "copy"))])
    with pytest.raises(SystemExit):
        command.main()
    assert "no second seed" in capsys.readouterr().err


def test_a_run_with_odd_metrics_has_a_page_and_a_table(tmp_path: Path) -> None:
    run = a_run(tmp_path / "odd", [0.5] * 6 + [nan, inf] * 3)
    assert STAGE in page.write(run).read_text() and tables.table([run])
