"""How sure each difference is: simulated many times over, intervals cover what they say."""

import json
import shutil
from itertools import product
from math import inf, nan
from pathlib import Path
from statistics import variance

import numpy as np
import pytest
from mpmath import betainc
from support.runs import STAGE, a_run

from interaction.episode_file import append, path_of
from recipe.evaluation.intervals import t_quantile
from recipe.report import __main__ as command
from recipe.report import page, tables
from recipe.report.tables import REWARD, Difference, Rise, compare, rise

TIMES = 1000  # .7 % of coverage is one standard error of it


def a_run_with_episodes(folder: Path, rise: float, shift: int = 0) -> Path:
    """Ten steps; the tasks of the last five are moved by `shift`."""
    run = a_run(folder, [0.5] * 5 + [0.5 + rise] * 5)
    for step in range(1, 11):
        late = step > 5
        head = {"step": step, "environment": "bfcl", "category": "base", "cluster": "0", "uid": "u"}
        for task, n in product(range(shift * late, shift * late + 4), range(2)):
            score = (0.4, 0.6)[n] + rise * late
            line = {**head, "session_id": n, "task_id": f"base_{task}", "score": score}
            line |= {"reward": {"progress": score / 2}, "episode": {}}
            append(path_of(run / STAGE / "rollouts", "train", step), line)
    return run


def designs(rng: np.random.Generator) -> dict[str, tuple]:
    """Tasks of each step and their chances in both windows, and the true difference."""
    four, sixty = np.array([0.05, 0.3, 0.6, 0.8]), rng.beta(0.5, 0.5, size=60)
    few, other = ([rng.permutation(60)[:30]] * 5 for _ in range(2))
    return {
        "a window repeats few tasks": (few, sixty, other, sixty, 0.0),
        "all tasks rise": ([np.arange(4)] * 5, four, [np.arange(4)] * 5, four + 0.1, 0.1),
    }


def played(rng: np.random.Generator, steps: list, chances: np.ndarray) -> dict[int, np.ndarray]:
    found: dict[int, list] = {}
    for step in steps:
        for task, values in zip(step.tolist(), rng.random((len(step), 16)) < chances[step][:, None], strict=True):
            found.setdefault(task, []).append(values.astype(float))
    return {task: np.concatenate(values) for task, values in found.items()}


def test_intervals_hold_the_true_difference_as_often_as_they_claim() -> None:
    rng, held = np.random.default_rng(0), dict.fromkeys([*designs(np.random.default_rng(0)), "runs"], 0)
    for _ in range(TIMES):
        for name, (first, before, last, after, truth) in designs(rng).items():
            found = compare(played(rng, first, before), played(rng, last, after))
            held[name] += found.interval[0] <= truth <= found.interval[1]
        values = rng.normal(0.0, 0.06, size=3) + rng.normal(0.0, 0.02, size=3)
        interval = Rise(tuple(Difference(0.0, value, 0.02) for value in values)).interval
        held["runs"] += interval[0] <= 0 <= interval[1]
    assert {name: count for name, count in held.items() if not 0.925 <= count / TIMES <= 0.975} == {}


def test_tasks_are_compared_with_themselves_and_count_the_same() -> None:
    easy, hard = [1.0, 1.0, 1.0, 0.9], [0.0, 0.0, 0.0, 0.1]
    found = compare({"a": hard, "b": hard, "c": easy}, {"b": hard, "c": easy, "d": easy})
    assert found is not None and (found.value, found.tasks, found.all_tasks) == (0.0, 2, False)
    found = compare({"a": [0.0, 1.0], "b": [0.5, 0.5]}, {"a": [1.0, 1.0], "b": [0.0, 1.0]})
    assert found is not None and found.value == 0.25
    assert found.standard_error == pytest.approx((0.25 * 0.5 / 2 + 0.25 * 0.5 / 2) ** 0.5)
    found = compare({"a": [0.0], "b": [0.0], "c": [1.0]}, {"a": [1.0], "b": [0.0], "c": [1.0]})
    assert found is not None and found.degrees == 2, "one episode a task takes the spread between tasks"
    assert found.standard_error == pytest.approx((variance([1.0, 0.0, 0.0]) / 3) ** 0.5)
    assert compare({"a": [1.0, 0.0]}, {"b": [1.0, 0.0]}) is None
    one = compare({"a": [1.0, 0.0], "b": [1.0]}, {"a": [1.0, 0.0]})
    same = compare({"a": [0.0] * 4}, {"a": [0.0] * 4})
    assert one is not None and one.interval is None and same is not None and same.interval == (0.0, 0.0)


def test_students_t_is_that_of_its_distribution() -> None:
    for degrees in (1, 4, 12.5, 200):
        t = t_quantile(degrees)
        outside = betainc(degrees / 2, 0.5, 0, degrees / (degrees + t * t), regularized=True)
        assert float(outside) == pytest.approx(0.05, abs=2e-6), degrees


def test_the_error_of_a_run_comes_from_its_episodes_and_runs_give_an_interval(tmp_path: Path) -> None:
    one, two = (a_run_with_episodes(tmp_path / str(rise), rise) for rise in (0.1, 0.2))
    found, progress = rise([two / STAGE], REWARD), rise([two / STAGE], "train/progress")
    assert found is not None and found.interval == found.runs[0].interval and found.runs[0].tasks == 4
    spread = 10 * 0.01 / 9 / 10  # the variance of the mean of one task's ten episodes
    assert found.runs[0].standard_error == pytest.approx((2 * 4 * spread / 4**2) ** 0.5)
    assert progress is not None and progress.difference == pytest.approx(0.1)
    path_of(one / STAGE / "rollouts", "train", 8).write_text("")
    for run, said in (
        (two, "+0.200 +- 0.024 [+0.153, +0.247], one run"),
        (one, "no stored episodes"),
        (a_run_with_episodes(tmp_path / "b", 0.2, shift=3), "one task in both windows"),
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
    assert tables.table([run]).splitlines()[1] == before.splitlines()[1]
    for every in path.parent.iterdir():
        every.write_text(every.read_text() + every.read_text().replace('"bfcl"', '"shop"'))
    found = rise([run / STAGE], REWARD)
    assert found is not None and found.runs[0].tasks == 8, "tasks of two environments with one id"


def test_a_copy_of_a_run_is_no_second_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    one = a_run_with_episodes(tmp_path / "one", 0.1)
    monkeypatch.setattr("sys.argv", ["report", str(one), str(shutil.copytree(one, tmp_path / "copy"))])
    with pytest.raises(SystemExit):
        command.main()
    assert "no second seed" in capsys.readouterr().err


def test_a_run_with_odd_metrics_has_a_page_and_a_table(tmp_path: Path) -> None:
    run = a_run(tmp_path / "odd", [0.5] * 6 + [nan, inf] * 3)
    assert STAGE in page.write(run).read_text() and tables.table([run])
