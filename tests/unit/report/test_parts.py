"""Of a run on several machines a step's episodes are in parts; every reader finds in them what is in one file."""

import itertools
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from support.runs import a_run

from interaction.episode_file import append, parts_of, path_of, steps_in, whole_of
from recipe import report, trajectories
from recipe.report import episodes
from recipe.rescore import rescore
from recipe.reward import sample_record
from rewards.progress import compute_score

LAUNCHES = ("20261122-090000", "20261122-101500")
WORKERS = ("node7.local-41", "node7.local-42", "node8-41")
STEPS, TASKS, ROLLOUTS = 10, 3, 2
RECORD = sample_record()


def episode(step: int, task: int, rollout: int, launch: str, score: float) -> dict[str, Any]:
    head = {"step": step, "split": "train", "launch": launch, "uid": f"{launch}{step}{task}", "session_id": rollout}
    task_id = f"multi_turn_base_{task}"
    named = {"environment": "bfcl", "task_id": task_id, "category": "multi_turn_base", "cluster": str(task)}
    reward = {"acc": score, "progress": score}
    return {**head, **named, "part": "report", "score": score, "reward": reward, "episode": RECORD}


def two_runs(folder: Path, launches: Iterable[str], seed: int) -> tuple[Path, Path]:
    """The same episodes: as one machine writes them, and as several do. The last step of a launch is played again."""
    draw = random.Random(seed)
    one, several = a_run(folder / "one", [0.5] * STEPS), a_run(folder / "several", [0.5] * STEPS)
    for number, launch in enumerate(launches):
        steps = range(1, 7) if number == 0 else range(6, STEPS + 1)
        for step, task, rollout in itertools.product(steps, range(TASKS), range(ROLLOUTS)):
            line = episode(step, task, rollout, launch, round(draw.random(), 3))
            part = f"{launch}-{draw.choice(WORKERS)}"
            for split in ("train", "val"):
                append(path_of(one / "stage1_format" / "rollouts", split, step), {**line, "split": split})
                append(path_of(several / "stage1_format" / "rollouts", split, step, part), {**line, "split": split})
    return one, several


def in_order(records: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(record, sort_keys=True) for record in records)


@pytest.mark.parametrize("seed", range(5))
def test_every_reader_finds_in_parts_what_is_in_one_file(tmp_path: Path, seed: int) -> None:
    one, several = two_runs(tmp_path, LAUNCHES, seed)
    first, second = one / "stage1_format" / "rollouts", several / "stage1_format" / "rollouts"
    assert [path.name for path in steps_in(first / "train")] == [path.name for path in steps_in(second / "train")]
    for path in steps_in(first / "train"):
        other = second / "train" / path.name
        assert not other.exists() and len(parts_of(other)) > 1
        assert len(report.read_records(path)) == TASKS * ROLLOUTS
        assert in_order(report.read_records(path)) == in_order(report.read_records(other))
        headers = [[place.header for place in episodes.headers(each)] for each in (path, other)]
        assert in_order(headers[0]) == in_order(headers[1])
    last = [episodes.validation_files(run / "stage1_format")[-1].name for run in (one, several)]
    assert last == [f"{STEPS:06d}.jsonl"] * 2
    chosen = [episodes.choose([run / "stage1_format"], 400) for run in (one, several)]
    assert len(chosen[0]) == len(chosen[1]) and len(list(episodes.load(chosen[1]))) == len(chosen[1])
    assert {place.path for place in chosen[1]} <= set(second.glob("*/*.jsonl"))
    rises = [report.rise([run / "stage1_format"], "critic/score/mean") for run in (one, several)]
    moved = [(item.runs[0].first, item.runs[0].last, item.runs[0].standard_error) for item in rises if item is not None]
    assert moved[0] == pytest.approx(moved[1]) and moved[0][2] > 0
    columns = [
        {key: sorted(column.both) for key, column in rescore(run, compute_score).items()} for run in (one, several)
    ]
    assert columns[0] == columns[1]


def test_a_page_is_written_of_a_run_in_parts(tmp_path: Path) -> None:
    _, several = two_runs(tmp_path, LAUNCHES[:1], seed=0)
    page = report.write(several).read_text()
    assert "has no stored" not in page and "no validation so far" not in page


def test_later_launches_stand_behind_earlier_ones_and_a_file_without_part_before_all(tmp_path: Path) -> None:
    paths = [path_of(tmp_path, "train", 1, f"{launch}-{worker}") for launch in LAUNCHES for worker in WORKERS]
    whole = path_of(tmp_path, "train", 1)
    for path in reversed([whole, *paths, path_of(tmp_path, "train", 10), path_of(tmp_path, "train", 2, "x")]):
        append(path, {})
    assert parts_of(whole) == [whole, *paths]
    assert {whole_of(path) for path in parts_of(whole)} == {whole}
    assert [path.name for path in steps_in(whole.parent)] == ["000001.jsonl", "000002.jsonl", "000010.jsonl"]
    assert trajectories.found([str(whole.parent)])  # a folder stands for its files, parts too
