"""How far each stage moved, task by task, and which steps, tasks and runs are compared."""

import json
import shutil
from itertools import product
from math import nan

import pytest
from support.runs import STAGE, a_run, write_metrics

from interaction.episode_file import append, path_of
from recipe.evaluation.intervals import interval
from recipe.report import tables
from recipe.report.tables import LOSS, REWARD, compare, rise
from recipe.stage.metrics_log import note_trained
from recipe.stage.starts import BEFORE
from recipe.stage.state import BATCHES_FILE


def a_run_with_episodes(folder, rise, shift=0):
    """Ten steps; the tasks of the last five are moved by `shift`."""
    run = a_run(folder, [0.5] * 5 + [0.5 + rise] * 5)
    for step in range(1, 11):
        late = step > 5
        head = {"step": step, "environment": "bfcl", "category": "base", "uid": "u"}
        for task, n in product(range(shift * late, shift * late + 4), range(2)):
            score = (0.0, 1.0)[n] + rise * late * (1.5 if task % 2 else 0.5)
            line = {**head, "session_id": n, "task_id": f"base_{task}", "cluster": str(task // 2), "score": score}
            line |= {"reward": {"progress": score / 2}, "episode": {}}
            append(path_of(run / STAGE / "rollouts", "train", step), line)
    return run


def episodes(**tasks):
    return {name: (name[0], values) for name, values in tasks.items()}


def test_tasks_are_compared_with_themselves_and_count_the_same():
    easy, hard = [1.0, 1.0, 1.0, 0.9], [0.0, 0.0, 0.0, 0.1]
    found = compare(episodes(a=hard, b=hard, c=easy), episodes(b=hard, c=easy, d=easy))
    assert found is not None and (found.last - found.first, len(found.tasks), found.all_tasks) == (0.0, 2, False)
    found = compare(episodes(a=[0.0, 1.0], b=[0.5, 0.5]), episodes(a=[1.0, 1.0], b=[0.0, 1.0]))
    assert found is not None and found.last - found.first == 0.25
    assert compare(episodes(a=[1.0, 0.0]), episodes(b=[1.0, 0.0])) is None
    for one, other, alike in (("ab", "ab", True), ("ab", "a", False), ("a", "ab", False)):
        assert compare(*(episodes(**dict.fromkeys(names, easy)) for names in (one, other))).all_tasks is alike


def test_stages_stand_in_the_order_in_which_they_were_started(tmp_path):
    stages = {"stage0_sft": [LOSS], "stage1_format": [REWARD], "polish": [REWARD, LOSS], "a_last_one": [], BEFORE: []}
    for number, (stage, names) in enumerate(stages.items()):
        write_metrics(tmp_path, stage, f"2026010{number}-000000.jsonl", [(1, dict.fromkeys(names, 0.5))])
    write_metrics(tmp_path, "stage1_format", "20260109-000000.jsonl", [(2, {REWARD: 0.5})])
    assert [path.name for path in tables.stage_dirs(tmp_path)] == [*stages][:4]
    assert [path.name for path in tables.trained_stages(tmp_path)] == [*stages][1:3]
    head, (*row, _) = tables.loss_rows(tmp_path)
    assert row == ["stage0_sft", "1", "0.500 -> 0.500", "-"] and tables.loss_rows(tmp_path / "polish") == []
    other = a_run(tmp_path / "other", [0.5] * 10, "polish")
    found = [(row["stage"], row["runs"]) for row in tables.stage_rows([tmp_path, other])]
    assert found == [("stage1_format", 1), ("polish", 2)]


def test_one_run_has_an_interval_over_clusters_where_all_its_episodes_are_stored(tmp_path):
    one, two = (a_run_with_episodes(tmp_path / str(rise), rise) for rise in (0.1, 0.2))
    found, moves = rise([two / STAGE], REWARD), [0.1, 0.3, 0.1, 0.3]
    assert found is not None and found.interval == pytest.approx(interval(moves, "aabb"))
    both = rise([one / STAGE, two / STAGE], REWARD)
    expected = interval([move / 2 for move in moves] + moves, "aabb" * 2, [0] * 4 + [1] * 4)
    assert both is not None and both.interval == pytest.approx(expected)
    path_of(one / STAGE / "rollouts", "train", 8).write_text("")
    assert rise([one / STAGE, two / STAGE], REWARD).interval is None, "of the seed that is left alone"
    async_run = a_run_with_episodes(tmp_path / "async", 0.2)
    note_trained(async_run / STAGE, 1, ["u_0_0"], [{"global_steps": 1}])
    late = {"step": 1, "environment": "bfcl", "category": "base", "uid": "v", "session_id": 7, "task_id": "base_0"}
    late |= {"cluster": "0", "score": 9.0, "reward": {"progress": 9.0}, "episode": {}}
    append(path_of(async_run / STAGE / "rollouts", "train", 1), late)
    data = shutil.copytree(one, tmp_path / "data")
    (data / STAGE / BATCHES_FILE).touch()
    for run, said, progress in (
        *((run, "+0.200, one run", "+0.100, one run") for run in (two, async_run)),
        (one, "+0.100 (no stored episodes), one run", "+0.050 (no stored episodes), one run"),
        (data, "+0.100 (the data's rewards), one run", "+0.050 (the data's rewards), one run"),
        (a_run_with_episodes(tmp_path / "b", 0.2, shift=2), "+0.200 on 2 tasks, one run", "+0.100 on 2 tasks, one run"),
        (a_run_with_episodes(tmp_path / "c", 0.2, shift=4), "+0.200 (no task in both windows)", "+0.100 (no task"),
    ):
        head, *lines = tables.stage_table([run])
        assert head == ["stage", "runs", "steps", "of", "first -> last 5", "difference", "corr >=", "s/step"]
        assert lines[0][:5] == [STAGE, "1", "10", "reward", f"0.500 -> {0.5 + float(said[:6]):.3f}"], said
        assert [lines[0][6:], lines[1][:4], lines[1][6:]] == [["-", "1.0"], ["", "", "", "progress"], ["", ""]]
        assert lines[0][5].startswith(said) and lines[1][5].startswith(progress), lines
    note_trained(async_run / STAGE, 2, ["none_0_0"], [{"global_steps": 2}])
    assert "no stored episodes" in tables.table([async_run]), "none of a step's groups is there"
    shares = {1: "-", 2: "0.000 -> 1.000", 5: "0.500 -> 3.500", 9: "1.500 -> 6.500", 12: "2.000 -> 9.000"}
    for steps, found in shares.items():
        run = a_run(tmp_path / f"short{steps}", [float(step) for step in range(steps)])
        assert tables.stage_table([run])[1][3:5] == ["reward", found]


def test_repeated_episodes_count_once_and_odd_scores_not_at_all(tmp_path):
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
