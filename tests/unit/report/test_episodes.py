"""Stored episodes are found in one file and in parts, whatever a crash has left; and which a page shows."""

import itertools
import json
import random

from support.runs import STAGE, a_run

from interaction.episode_file import append, path_of, steps_in
from recipe.report import page, tables
from recipe.report.episodes import LONGEST_TEXT, choose, headers, load, read_records
from recipe.reward import sample_record

RECORD = sample_record()


def line(step, task, rollout, launch=None, score=0.5, **more):
    head = {"step": step, "split": "train", "launch": launch, "uid": f"{launch}{step}{task}", "session_id": rollout}
    named = {"environment": "bfcl", "task_id": f"multi_turn_base_{task}", "category": "multi_turn_base"}
    reward = {"acc": score, "progress": score, "acc_official": score}
    found = {**head, **named, "cluster": str(task), "part": "test", "score": score, "reward": reward}
    return {**found, "episode": RECORD, **more}  # as training writes it: last


def test_every_reader_finds_in_parts_what_is_in_one_file(tmp_path):
    draw, runs = random.Random(0), [a_run(tmp_path / name, [0.5] * 10) for name in ("one", "several")]
    played = [("a", step) for step in range(1, 7)] + [("b", step) for step in range(6, 11)]
    for (launch, step), task in itertools.product(played, "xyz"):
        made = line(step, task, 0, launch, round(draw.random(), 3))
        for run, part in zip(runs, ("", f"{launch}-{draw.choice(['node7-41', 'node7-42'])}"), strict=True):
            append(path_of(run / STAGE / "rollouts", "train", step, part * (launch + task != "ax")), made)
    for path in steps_in(runs[0] / STAGE / "rollouts" / "train"):
        other = runs[1] / STAGE / "rollouts" / "train" / path.name
        assert len(read_records(path)) == 3
        assert sorted(read_records(other), key=lambda record: record["task_id"]) == read_records(path)
    tabled = [tables.table([run]) for run in runs]
    assert tabled[0] == tabled[1] and "[" in tabled[0]
    path = path_of(tmp_path / STAGE / "rollouts", "train", 1)  # the later play counts
    for launch, scores in (("first", [0.1, 0.2]), ("second", [0.3, 0.4])):  # dynamic sampling; and after a resume
        for score in scores:
            append(path, line(1, 0, 0, launch, score, uid=str(score)))
        assert [place.header["score"] for place in headers(path)] == scores
        assert [record["score"] for record in read_records(path)] == scores


def test_a_damaged_line_costs_no_other_and_the_page_is_made(tmp_path):
    run, whole = a_run(tmp_path / "run", [0.5] * 10), [json.dumps(line(1, task, 0)) for task in range(4)]
    for damaged in (
        *("", "\0" * 100, "null", "[" * 20_000),
        *(json.dumps(line(1, 9, 9))[:-60], json.dumps(line(1, 9, 9))[:100]),
        *(json.dumps(line(1, 9, 9, episode=None)), json.dumps(line(1, 9, 9) | {"step": "three"})),
    ):
        path = path_of(run / STAGE / "rollouts", "train", 1)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([*whole[:2], damaged, *whole[2:]]) + "\n" + damaged[:50])
        shown = [one for one in load(choose([run / STAGE], 20)) if one["session_id"] != 9]
        assert len(shown) == 4 and all(one["episode"] == RECORD for one in shown), damaged[:40]
    assert STAGE in page.write(run).read_text()
    for marks in ((",", ":"), None):  # another program has written the file anew
        lines = [json.dumps(line(1, task, 0), sort_keys=True, separators=marks) for task in range(4)]
        path.write_text("\n".join(lines) + "\n")
        assert [record["episode"] for record in read_records(path)] == [RECORD] * 4
    path = path_of(tmp_path / STAGE / "rollouts", "train", 1)
    append(path, line(1, 0, 0, score=float("nan"), episode={"turns": [{"user": "x" * (LONGEST_TEXT + 7)}]}))
    (cut,) = load(headers(path))
    assert cut["episode"]["turns"][0]["user"].endswith("... [7 more characters]")
    json.dumps(cut, allow_nan=False)


def test_failures_of_validation_are_chosen_first(tmp_path):
    stage = a_run(tmp_path, [0.5] * 14) / STAGE
    for step, n in itertools.product(range(1, 15), range(20)):
        append(path_of(stage / "rollouts", "train", step), line(step, 0, n, score=1.0))
    for n in range(30):
        append(path_of(stage / "rollouts", "val", 14), {**line(14, 0, n, score=0.0), "split": "val"})
    chosen = choose([stage], 200)
    assert len(chosen) == 200 and sum(place.split == "val" for place in chosen) == 30
    assert len({place.header["step"] for place in chosen if place.split == "train"}) == 12
