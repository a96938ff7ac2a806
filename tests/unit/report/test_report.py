"""The report says how sure each difference is, of one run and of several, and reads what interrupted runs leave."""

import json
import re
import shutil
from pathlib import Path

import pytest
from support.runs import a_run, write_metrics

from recipe import report
from recipe.report import __main__ as command
from recipe.report import curves, losses
from recipe.report.episodes import headers, read_records
from recipe.stage.metrics_log import read_steps


def store(run: Path, step: int, scores: dict[str, list[float]], stage: str = "stage1_format") -> Path:
    """The stored episodes of a step; a task's scores are its rollouts."""
    lines = [
        {"step": step, "session_id": n, "task_id": task, "score": score, "reward": {"progress": score / 2}}
        for task, values in scores.items()
        for n, score in enumerate(values)
    ]
    path = run / stage / "rollouts" / "train" / f"{step:06d}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({**line, "episode": {}}) + "\n" for line in lines))
    return path


def a_run_with_episodes(folder: Path, rise: float, shift: int = 0) -> Path:
    """Ten steps; the tasks of the last five are moved by `shift`."""
    run = a_run(folder, [0.5] * 5 + [0.5 + rise] * 5)
    for step in range(1, 11):
        late = step > 5
        tasks = range(shift * late, shift * late + 4)
        store(run, step, {f"multi_turn_base_{task}": [0.4 + rise * late, 0.6 + rise * late] for task in tasks})
    return run


def test_the_rise_is_the_mean_of_the_last_five_steps_minus_the_first_five(tmp_path):
    one = a_run(tmp_path / "one", [0, 0, 0, 0, 0, 7, 1, 1, 1, 1, 1])
    rise = report.rise([one / "stage1_format"], "critic/score/mean")
    assert rise is not None
    assert (rise.first, rise.last, rise.difference) == (0, 1, 1)


def test_the_error_of_a_run_comes_from_its_episodes(tmp_path):
    run = a_run_with_episodes(tmp_path / "one", 0.2)
    rise = report.rise([run / "stage1_format"], "critic/score/mean")
    assert rise is not None and rise.interval is None
    (one,) = rise.runs
    assert one.value == pytest.approx(0.2) and one.tasks == 4
    spread = 10 * 0.01 / 9 / 10  # the variance of the mean of one task's ten episodes
    assert one.standard_error == pytest.approx((2 * 4 * spread / 4**2) ** 0.5)
    progress = report.rise([run / "stage1_format"], "train/progress")
    assert progress is not None and progress.difference == pytest.approx(0.1)
    text = report.table([run])
    assert "+0.200 +- 0.024 [+0.153, +0.247], one run" in text and "nothing about another run" in text
    assert "each run" not in text


def test_several_runs_give_an_interval_from_their_own_differences_and_each_its_error(tmp_path):
    runs = [a_run_with_episodes(tmp_path / str(rise), rise) for rise in (0.1, 0.2, 0.3)]
    text = report.table(runs)
    assert "+0.200 [-0.048, +0.448]" in text
    assert "+0.100 +- 0.024, +0.200 +- 0.024, +0.300 +- 0.024" in text
    assert "Student's t" in text and "one run," not in text


def test_a_copy_of_a_run_is_no_second_seed(tmp_path, capsys, monkeypatch):
    one, other = (a_run_with_episodes(tmp_path / name, rise) for name, rise in (("one", 0.1), ("other", 0.2)))
    shutil.copytree(one, tmp_path / "copy")
    for given, refused in (([one, other], False), ([one, other, tmp_path / "copy"], True), ([one, one], True)):
        monkeypatch.setattr("sys.argv", ["report", *map(str, given)])
        if not refused:
            command.main()
            continue
        with pytest.raises(SystemExit):
            command.main()
        assert "stage1_format" in capsys.readouterr().err


def test_a_run_without_stored_episodes_says_so_and_shows_no_error(tmp_path):
    run = a_run(tmp_path / "one", [0.0, 0.1] * 10)
    text = report.table([run])
    assert "(no stored episodes: no error), one run" in text
    assert "+-" not in text


def test_a_window_that_lacks_the_episodes_of_one_step_shows_no_error(tmp_path):
    run = a_run_with_episodes(tmp_path / "one", 0.2)
    path = store(run, 8, {})
    assert "no stored episodes" in report.table([run])
    path.unlink()
    assert "no stored episodes" in report.table([run])


def test_windows_with_other_tasks_are_compared_on_those_that_both_have(tmp_path):
    text = report.table([a_run_with_episodes(tmp_path / "some", 0.2, shift=2)])
    assert "on 2 tasks [" in text and "the tasks that both have are compared" in text
    assert "no task in both windows" in report.table([a_run_with_episodes(tmp_path / "none", 0.2, shift=4)])
    assert "one task in both windows" in report.table([a_run_with_episodes(tmp_path / "one", 0.2, shift=3)])


def test_an_episode_of_a_repeated_step_counts_once(tmp_path):
    run = a_run_with_episodes(tmp_path / "one", 0.2)
    path = run / "stage1_format" / "rollouts" / "train" / "000003.jsonl"
    before = report.table([run])
    path.write_text(path.read_text() * 2)
    assert report.table([run]) == before


def test_a_score_that_is_no_number_is_in_no_mean(tmp_path):
    run = a_run_with_episodes(tmp_path / "one", 0.2)
    path = run / "stage1_format" / "rollouts" / "train" / "000003.jsonl"
    line = json.loads(path.read_text().splitlines()[0])
    odd = [json.dumps({**line, "session_id": 10 + n, "score": bad}) for n, bad in enumerate((None, float("nan"), "x"))]
    path.write_text(path.read_text() + "\n".join(odd) + "\n")
    assert "+0.200 +- 0.024" in report.table([run])


def test_the_page_has_the_same_words_as_the_table(tmp_path):
    one, two = (a_run_with_episodes(tmp_path / name, rise) for name, rise in (("one", 0.1), ("two", 0.3)))
    page = report.write(one, (two,)).read_text()
    assert "+0.200 [-1.071, +1.471]" in page and "<td>+0.100 ± 0.024</td><td>+0.300 ± 0.024</td>" in page
    assert "nothing about another run" in page and "Student&#39;s t" in page


def test_too_few_steps_give_no_rise(tmp_path):
    run = a_run(tmp_path / "one", [1.0] * 9)
    assert report.rise([run / "stage1_format"], "critic/score/mean") is None
    assert "fewer than 10 steps" in report.table([run])
    assert report.rise([], "critic/score/mean") is None


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


def test_a_stage_without_step_times_still_has_its_row(tmp_path):
    write_metrics(tmp_path, "stage1_format", "a.jsonl", [(step, {"critic/score/mean": 0.5}) for step in range(1, 11)])
    assert report.stage_rows([tmp_path])[0]["seconds"] is None
    assert report.table([tmp_path]).splitlines()[1].split()[:3] == ["stage1_format", "1", "10"]


def test_a_line_of_metrics_without_data_is_left_out(tmp_path):
    write_metrics(tmp_path, "s", "a.jsonl", [(1, {"x": 1.0})])
    with (tmp_path / "s" / "metrics" / "a.jsonl").open("a") as file:
        file.write('{"step": 2}\n3\n')
    assert read_steps(tmp_path / "s") == {1: {"x": 1.0}}


def test_tasks_of_two_environments_with_one_id_and_cluster_are_two(tmp_path):
    run = a_run_with_episodes(tmp_path / "one", 0.2)
    for path in sorted((run / "stage1_format" / "rollouts" / "train").iterdir()):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        other = [{"environment": "shop", "category": "buy", "cluster": "0", **line} for line in lines]
        path.write_text("".join(json.dumps(line) + "\n" for line in [*lines, *other]))
        assert len(headers(path)) == len(read_records(path)) == 16
    rise = report.rise([run / "stage1_format"], "critic/score/mean")
    assert rise is not None and rise.runs[0].tasks == 8


def test_validation_keeps_the_clusters_and_categories_of_two_environments_apart(tmp_path):
    def line(environment: str, task: int, acc: float) -> str:
        names = {"environment": environment, "task_id": str(task), "category": "all_there_is", "cluster": str(task)}
        return json.dumps({"step": 1, "session_id": 0, **names, "reward": {"acc": acc}, "episode": {}}) + "\n"

    run = a_run(tmp_path / "one", [0.5])
    path = run / "stage1_format" / "rollouts" / "val" / "000001.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(line("a", task, 1.0) + line("b", task, 0.0) for task in range(8)))
    rows = {row.category: row for row in report.validations(run)}
    assert {name: (row.tasks, row.acc.value) for name, row in rows.items()} == {
        "a/all_there_is": (8, 1.0),
        "b/all_there_is": (8, 0.0),
        "all": (16, 0.5),
    }
    path.write_text(
        "".join(line("a", task, 1.0) for task in range(8))
        + "".join(
            line(name, task, 0.0).replace('"category"', '"part": "guard", "category"')
            for task in range(4)
            for name in "bc"
        )
    )
    found = {row.category: (row.tasks, row.acc.value) for row in report.validations(run)}
    with path.open("a") as file:  # one of the stage's own categories
        file.write(line("a", 9, 0.0).replace('"category"', '"part": "guard", "category"'))
    again = {row.category: row.tasks for row in report.validations(run)}
    assert (again["a/all_there_is"], again["a/all_there_is, guard"], again["all, guard"]) == (8, 1, 9)
    assert found == {
        "a/all_there_is": (8, 1.0),
        "b/all_there_is, guard": (4, 0.0),
        "c/all_there_is, guard": (4, 0.0),
        "all, guard": (8, 0.0),
    }
    low, high = rows["all"].acc.interval
    assert high - low > 0.3, "16 clusters; as 8 that each hold a pass and a failure they would not differ at all"


def a_warm_start(run: Path, held_out: dict[int, float]) -> Path:
    losses = [(step, {"train/loss": 2.0 - step / 10}) for step in range(1, 11)]
    write_metrics(run, "stage0_sft", "a.jsonl", losses)
    write_metrics(run, "stage0_sft", "b.jsonl", [(step, {"val/loss": loss}) for step, loss in held_out.items()])
    return run


def test_a_warm_start_shows_its_losses_and_where_the_validation_was_lowest(tmp_path, capsys, monkeypatch):
    run = a_warm_start(tmp_path / "one", {4: 1.75, 8: 1.5, 10: 1.625})
    (row,) = losses.loss_rows(run)
    assert (row["steps"], row["first"], row["last"]) == (10, pytest.approx(1.7), pytest.approx(1.2))
    monkeypatch.setattr("sys.argv", ["report", str(run)])
    command.main()
    said = capsys.readouterr().out
    assert "stage0_sft  10     1.700 -> 1.200           1.750 -> 1.625                  1.500 at step 8" in said
    page = (run / "report.html").read_text()
    assert "1.750 → 1.625" in page and "1.500 at step 8" in page and "loss, validation loss" in page


def test_a_warm_start_beside_stages_leaves_their_table_and_steps_as_they_are(tmp_path):
    run = a_warm_start(a_run(tmp_path / "one", [0.5] * 10), {})
    assert [row["stage"] for row in report.stage_rows([run])] == ["stage1_format"]
    assert losses.loss_rows(run)[0]["held_out"] is None and "-" in losses.loss_table(run)
    assert "warm start: loss" in curves.draw([run])[1] and "warm start" not in curves.draw([a_run(tmp_path, [1.0])])[1]
