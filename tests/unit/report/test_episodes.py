"""Stored episodes are found in one file and in parts, whatever a crash has left; and which a page shows."""

import itertools
import json
import random
from pathlib import Path
from typing import Any

from support.runs import STAGE, a_run

from interaction.episode_file import append, parts_of, path_of, steps_in
from recipe.report import page, tables
from recipe.report.episodes import LONGEST_TEXT, choose, headers, load, read_records, slowest
from recipe.reward import sample_record

LAUNCHES = ("20261122-090000", "20261122-101500")
WORKERS = ("node7.local-41", "node7.local-42", "node8-41")
STEPS, TASKS, ROLLOUTS = 10, 3, 2
RECORD = sample_record()


def line(step: int, task: int, rollout: int, launch: str | None = None, score: float = 0.5, **more: Any) -> dict:
    head = {"step": step, "split": "train", "launch": launch, "uid": f"{launch}{step}{task}", "session_id": rollout}
    named = {"environment": "bfcl", "task_id": f"multi_turn_base_{task}", "category": "multi_turn_base"}
    reward = {"acc": score, "progress": score, "acc_official": score}
    found = {**head, **named, "cluster": str(task), "part": "test", "score": score, "reward": reward}
    episode = more.pop("episode", RECORD)
    return {**found, **more, "episode": episode}  # as training writes it: last


def in_order(records: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(record, sort_keys=True) for record in records)


def test_every_reader_finds_in_parts_what_is_in_one_file(tmp_path: Path) -> None:
    """As one machine writes episodes, and as several do; the last step of a launch is played again."""
    draw, runs = random.Random(0), [a_run(tmp_path / name, [0.5] * STEPS) for name in ("one", "several")]
    for steps, launch in zip((range(1, 7), range(6, STEPS + 1)), LAUNCHES, strict=True):
        for step, task, rollout in itertools.product(steps, range(TASKS), range(ROLLOUTS)):
            made = line(step, task, rollout, launch, round(draw.random(), 3))
            for run, part in zip(runs, ("", f"{launch}-{draw.choice(WORKERS)}"), strict=True):
                for split in ("train", "val"):
                    append(path_of(run / STAGE / "rollouts", split, step, part), {**made, "split": split})
    first, second = (run / STAGE / "rollouts" / "train" for run in runs)
    assert [path.name for path in steps_in(first)] == [path.name for path in steps_in(second)]
    for path in steps_in(first):
        other = second / path.name
        assert not other.exists() and len(parts_of(other)) > 1 and len(read_records(path)) == TASKS * ROLLOUTS
        assert in_order(read_records(path)) == in_order(read_records(other))
    chosen = [choose([run / STAGE], 400) for run in runs]
    assert len(chosen[0]) == len(chosen[1]) == len(list(load(chosen[1])))
    tabled = [tables.table([run]) for run in runs]
    assert tabled[0] == tabled[1] and "+- 0" in tabled[0]


def test_of_an_episode_that_was_played_again_the_later_one_counts(tmp_path: Path) -> None:
    played = [("first", "a", 0.1), ("first", "b", 0.2), ("second", "c", 0.3), ("second", "d", 0.4)]
    lines = [json.dumps(line(1, 0, 0, launch, score, uid=uid)) + "\n" for launch, uid, score in played]
    path = path_of(tmp_path / STAGE / "rollouts", "train", 1)
    path.parent.mkdir(parents=True)
    for count, expected in ((2, [0.1, 0.2]), (4, [0.3, 0.4])):  # dynamic sampling; and a step played after a resume
        path.write_text("".join(lines[:count]))
        assert [place.header["score"] for place in headers(path)] == expected
        assert [record["score"] for record in read_records(path)] == expected


DAMAGED = [
    *("", "\0" * 100, "null", "[" * 20_000),
    *(json.dumps(line(1, 9, 9))[:-60], json.dumps(line(1, 9, 9))[:100]),
    *(json.dumps(line(1, 9, 9, episode=None)), json.dumps(line(1, 9, 9) | {"step": "three"})),
]


def test_a_damaged_line_costs_no_other_and_the_page_is_made(tmp_path: Path) -> None:
    run, whole = a_run(tmp_path / "run", [0.5] * 10), [json.dumps(line(1, task, 0)) for task in range(4)]
    for damaged in DAMAGED:
        for split in ("train", "val"):
            path = path_of(run / STAGE / "rollouts", split, 1)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join([*whole[:2], damaged, *whole[2:]]) + "\n" + damaged[:50])
        found = {place.header["task_id"] for place in headers(path)}
        assert found >= {f"multi_turn_base_{task}" for task in range(4)}, damaged[:40]
        shown = [one for one in load(choose([run / STAGE], 20)) if one["session_id"] != 9]
        assert len(shown) == 8 and all(one["episode"] == RECORD for one in shown)
    assert STAGE in page.write(run).read_text()
    path = path_of(tmp_path / STAGE / "rollouts", "train", 1)
    append(path, line(1, 0, 0, score=float("nan"), episode={"turns": [{"user": "x" * (LONGEST_TEXT + 7)}]}))
    (cut,) = load(headers(path))
    assert cut["episode"]["turns"][0]["user"].endswith("... [7 more characters]")
    json.dumps(cut, allow_nan=False)


def test_failures_of_validation_are_chosen_first_and_the_slowest_are_named(tmp_path: Path) -> None:
    stage = a_run(tmp_path, [0.5] * 14) / STAGE
    for step in range(1, 15):
        for n in range(20):
            seconds = {"total": 10.0 + step if n == 19 else 1.0, "generate": 9.0}
            made = line(step, 0, n, score=1.0, seconds=seconds if n else None)
            append(path_of(stage / "rollouts", "train", step), made)
    for n in range(30):
        append(path_of(stage / "rollouts", "val", 14), {**line(14, 0, n, score=0.0), "split": "val"})
    chosen = choose([stage], 200)
    assert len(chosen) == 200 and sum(place.split == "val" for place in chosen) == 30
    assert len({place.header["step"] for place in chosen if place.split == "train"}) == 12
    assert chosen == choose([stage], 200)
    rows = slowest([stage])
    assert len(rows) == 11 and rows[1][1:] == ["14", "19", "multi_turn_base_0", "24.00", "9.00", "-", "-"]
    assert slowest([tmp_path / "nothing"]) == []
