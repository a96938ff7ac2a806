"""Data of several environments, or of some categories: by weight, reproducible, and nothing held out is trained on.

Also the data of a real model on a CPU: mixed batches, and tasks that are not asked twice.
"""

import hashlib
import json
import re
import subprocess
import sys
from collections import Counter
from random import Random

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.entries import write
from support.phone import write_phone

from bfcl_env.synthesis import Shape, generate
from data_prep.__main__ import main
from data_prep.laptop import HELD_OUT, OWN, STAGES, WARM_START
from data_prep.mixture import shares
from interaction.environment import load_tasks


def made(out, *arguments):
    """The rows of each file, and the manifest."""
    assert main(["--out", str(out), *arguments]) == 0
    rows = {path.stem: pq.read_table(path).to_pylist() for path in out.glob("*.parquet")}
    return rows, json.loads((out / "manifest.json").read_text())


def sources(rows):
    return Counter(row["data_source"] for row in rows)


def test_weights_become_rows_of_all_names_in_one_file_each_of_its_part_the_same_in_every_process(tmp_path):
    weights = "bfcl/base=1 bfcl_single/live_simple=2 bfcl_single/irrelevance=1"
    arguments = f"--docs signature --rows 40 --val-rows 16 --mixture {weights}".split()
    rows, manifest = made(tmp_path / "first", *arguments)
    assert manifest["mixture"]["bfcl_single/live_simple"] == {"weight": 2.0, "train": 20, "val": 8}
    assert manifest["made_from"].keys() == {"bfcl", "bfcl_single"} and manifest["mixture"]["seed"]
    keys = {name: [row["extra_info"]["task_id"] for row in rows[name]] for name in ("mixture_train", "mixture_val")}
    assert hashlib.sha256(str(keys).encode()).hexdigest()[:16] == "a4634357a67a208c"
    assert sorted(row["task_id"] for row in rows["mixture_sft"]) == sorted(keys["mixture_train"])
    places = [row["extra_info"]["index"] for row in rows["mixture_train"] if row["data_source"] != "bfcl/base"]
    assert places == [*range(10, 40)], "of tasks without a number of their own"
    command = manifest["command"].replace("DIR", str(tmp_path / "again")).split()
    subprocess.run([sys.executable, *command[1:]], check=True, capture_output=True)
    assert json.loads((tmp_path / "again" / "manifest.json").read_text()) == manifest
    path = write_phone(tmp_path)
    weights = f"{path}=1 bfcl/base=1 --rows 2 --val-rows 2 --option {path.stem}.greeting=Hurry!"
    rows, _ = made(tmp_path / "own", "--docs", "signature", "--mixture", *weights.split())
    assert [sum("Hurry!" in str(row) for row in rows[f"mixture_{kind}"]) for kind in ("train", "val", "sft")] == [1] * 3


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 5000), st.dictionaries(st.text(max_size=3), st.floats(1e-6, 1e6), min_size=1, max_size=9))
def test_shares_add_up_and_each_is_less_than_one_off(total, weights):
    found = shares(total, weights)
    assert sum(found.values()) == total
    for name, weight in weights.items():
        assert abs(found[name] - total * weight / sum(weights.values())) < 1 + 1e-6


TWO = "bfcl_single/simple_java=1 bfcl_single/simple_javascript=2"


def test_there_are_as_many_rows_as_the_shares_allow_and_not_one_more_than_there_are_tasks(tmp_path, capsys):
    for more, counts in (("", [12, 25]), ("--rows 38 --val-rows 1", [13, 25])):
        rows, _ = made(tmp_path / str(len(more)), "--docs", "signature", "--mixture", *f"{TWO} {more}".split())
        assert sorted(sources(rows["mixture_train"]).values()) == counts
        assert len(rows["mixture_val"]) == (1 if more else 37)
    capsys.readouterr()
    most = {f"{TWO} --rows 39": "has 25 train tasks, and 26 are its share of 39 rows; at most 37 rows"}
    for words, said in (most | {"bfcl=1 bfcl_single=9 --rows 3000": "2700 are its share of 3000 rows"}).items():
        assert main(["--out", str(tmp_path), "--mixture", *words.split()]) == 1
        assert said in capsys.readouterr().err


def test_a_mixture_that_cannot_be_made_is_one_line(tmp_path, capsys):
    for words in (
        *("bfcl/simple=1", "nowhere=1", "bfcl=nan", "bfcl=1 bfcl/base=1", "bfcl/base=1 bfcl=1", "bfcl=0", "bfcl=inf"),
        *("bfcl/base=1 bfcl/multi_turn_base=1", "bfcl=-1"),
        *("bfcl=1 --tiny", "bfcl=1 --option augment=true", "bfcl=1 --option bfcl.augmnt=true"),
        *("bfcl=1 --environment tau", "bfcl=1 --categories base", "bfcl=1 --laptop"),
        *(f"--laptop {more}" for more in ("--tiny", "--categories base", "--option augment=true")),
    ):
        given = words.split() if words.startswith("--") else ["--mixture", *words.split()]
        assert main(["--out", str(tmp_path / "out"), *given]) == 1, words
        said = capsys.readouterr().err
        assert said.startswith("data_prep: ") and said.count("\n") == 1 and not (tmp_path / "out").exists(), said
    tool = ("--steptool a --max-context 9", "--steptool a --seed 2", "--max-result-chars 0")
    for words in ("--mixture bfcl", "--rows 5", "--val-rows 0", "--skip-bad", *tool):
        with pytest.raises(SystemExit):
            main(["--out", str(tmp_path), *words.split()])
    assert main(["--out", str(tmp_path), "--environment", "bfcl_single", "--categories", "java"]) == 1
    assert "'java' is no category of environment bfcl_single; known: simple_python" in capsys.readouterr().err


def test_categories_that_are_named_are_in_the_files_without_what_the_protocol_cannot_write(tmp_path, capsys):
    categories = ("--categories", "simple_java,live_relevance")
    arguments = ("--environment", "bfcl_single", *categories, "--protocol", "python_calls", "--docs", "signature")
    rows, manifest = made(tmp_path, *arguments)
    train, val = (rows[f"bfcl_single_{part}"] for part in ("train", "val"))
    assert sources(train + val) == {"bfcl_single/simple_java": 98, "bfcl_single/live_relevance": 16}
    assert len(rows["bfcl_single_sft"]) == sources(train)["bfcl_single/simple_java"] == 49
    assert " ".join(categories) in manifest["command"]
    left_out = {"bfcl_single/simple_java_62", "bfcl_single/simple_java_63"}
    assert manifest["left_out"].keys() == left_out
    said = capsys.readouterr().out
    assert all(name in said for name in left_out) and "'from'" in said
    assert left_out.isdisjoint(f"bfcl_single/{row['extra_info']['task_id']}" for row in train + val)


def test_every_batch_has_fresh_tasks_in_other_words_and_what_must_not_be_forgotten_and_nothing_held_out(tmp_path):
    assert main(["--out", str(tmp_path), "--laptop", "--seed", "3"]) == 0
    environments = ("bfcl", "bfcl_single", "plain_words", "other_words", "unseen_words")
    known = {(name, task.id): task for name in environments for task in load_tasks(name).values()}
    tasks = {}
    long = [f"{stage}_long.parquet" for stage in STAGES]
    for name in (*long, *(f"{stage}.parquet" for stage in STAGES), *HELD_OUT):
        infos = [row["extra_info"] for row in pq.read_table(tmp_path / name).to_pylist()]
        tasks[name] = [known[info["environment"], info["task_id"]] for info in infos]
    warm = {row["query_id"] for row in pq.read_table(tmp_path / WARM_START).to_pylist()}
    for name, few, other in zip(long, STAGES, (23, 23, 21), strict=True):
        assert tasks[f"{few}.parquet"] == tasks[name][:64], "the default run begins as the longer one"
        for start in range(0, len(tasks[name]), 32):
            batch = tasks[name][start : start + 32]
            assert Counter(task.environment for task in batch)["other_words"] == other
            assert sum(task.environment == "plain_words" for task in batch) == 4
            single = Counter(task.category for task in batch if task.environment == "bfcl_single")
            assert single == {"irrelevance": 2, "simple_python": 2, "multiple": 1}
    fresh = [task for name in long for task in tasks[name] if task.environment.endswith("words")]
    assert len({*fresh}) == len(fresh) == 27 * (20 + 48) // 4 + 25 * 40 // 4, "each is played once"
    assert {int(task.id.rpartition("_")[2]) // 100_000 for task in fresh} == {2}, "no other seed has these ids"
    forms = [{task.category for task in tasks[name] if task.environment.endswith("words")} for name in long]
    assert forms[0] == forms[1] == {"multi_turn_base"} and len(forms[2]) == 4
    lines = [json.loads(line) for line in (tmp_path / "other_words.json").read_text().splitlines()]
    later = {entry["id"]: str(entry["question"][1]) for entry in lines if len(entry["question"]) == 2}
    for name, share in ((long[1], 0.5), (long[2], 0.2)):
        words = [later[task.id] for task in tasks[name] if task.environment == "other_words" and task.id in later]
        left = "that result|last result|the new ticket|that ticket|ticket I just"
        meant = [said for said in words if re.search(left, said)]
        assert len(meant) / len(words) >= share, "the second turn means what the first has left"
    assert not warm & {f"{task.environment}/{task.cluster}" for task in fresh}
    trained = {(task.environment, task.cluster) for name in long for task in tasks[name]}
    held_out = [task for name in HELD_OUT for task in tasks[name]]
    assert trained.isdisjoint((task.environment, task.cluster) for task in held_out)
    shown = {row["query_id"] for row in pq.read_table(tmp_path / "sft_all.parquet").to_pylist()}
    assert warm < shown and shown.isdisjoint(f"{task.environment}/{task.cluster}" for task in held_out)
    gold = {row["task_id"] for row in pq.read_table(tmp_path / WARM_START).to_pylist()}
    assert gold.isdisjoint(task.id for name in long for task in tasks[name] if task.environment.startswith("bfcl"))
    shape = Shape(("MathAPI", "TicketAPI"), (1, 1), 1, ("multi_turn_base",), "other")
    assert lines[0]["question"] == next(generate("train", 1, 30, shape))["question"], "the seed draws tasks"
    pool = [task for task in load_tasks("bfcl_single").values() if task.category == "simple_python"]
    pool = [task for task in pool if task.part == "train"]
    assert {f"bfcl_single/{task.cluster}" for task in Random("3 simple_python").sample(pool, len(pool))[:50]} <= warm
    counts = {name: Counter((task.environment, task.part) for task in tasks[name]) for name in HELD_OUT}
    assert all({part for _, part in counts[name]} == {HELD_OUT[name]} for name in HELD_OUT)
    assert all(counts["val.parquet"][f"{words}_words", "test"] == 100 for words in ("plain", "other", "unseen"))
    assert counts["val_all.parquet"]["other_words", "test"] == counts["val_all.parquet"]["unseen_words", "test"] == 300
    assert counts["val_all.parquet"]["bfcl", "test"] == 60 and counts["val_dev.parquet"]["bfcl", "dev"] == 8


def test_a_file_of_the_users_own_takes_the_place_of_training_tasks_and_stands_beside_held_out_ones(tmp_path, capsys):
    shape = Shape(turns=(1, 1), operations=1, forms=("multi_turn_base",), classes=("GorillaFileSystem", "MathAPI"))
    entries = [*generate("train", 20, 1, shape), *generate("test", 6, 1, shape)]
    file = write(tmp_path, entries, "few.json")
    assert main(["--out", str(tmp_path / "few"), "--laptop", "--json", str(file)]) != 0
    assert f"few has 20 tasks to train on; --laptop takes more than {sum(OWN.values())}" in capsys.readouterr().err
    copies = [{**entries[number % 20], "id": f"multi_turn_base_{5000 + number}"} for number in range(180)]
    file = write(tmp_path, [*copies, *entries[20:]], "made.json")
    assert main(["--out", str(tmp_path / "data"), "--laptop", "--json", str(file)]) == 0
    names = [WARM_START, *(f"{stage}.parquet" for stage in OWN)]
    rows = [pq.read_table(tmp_path / "data" / name).to_pylist() for name in names]
    assert [len(some) for some in rows] == [20, *OWN.values()]
    assert len({row.get("task_id") or row["extra_info"]["task_id"] for some in rows for row in some}) == 180
    held_out = pq.read_table(tmp_path / "data" / "val.parquet").to_pylist()
    assert Counter(row["extra_info"]["environment"] for row in held_out) == {"made": 6, "bfcl": 16}
