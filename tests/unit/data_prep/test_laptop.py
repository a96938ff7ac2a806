"""The data of a real model on a CPU: mixed batches, nothing held out, and tasks that are not asked twice."""

from collections import Counter

import pyarrow.parquet as pq
from support.entries import write

from bfcl_env.synthesis import Shape, generate
from data_prep.__main__ import main
from data_prep.laptop import HELD_OUT, OWN, STAGES, WARM_START
from interaction.environment import load_tasks


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
    forms = [{task.category for task in tasks[name] if task.environment.endswith("words")} for name in long]
    assert forms[0] == forms[1] == {"multi_turn_base"} and len(forms[2]) == 4
    assert not warm & {f"{task.environment}/{task.cluster}" for task in fresh}
    trained = {(task.environment, task.cluster) for name in long for task in tasks[name]}
    held_out = [task for name in HELD_OUT for task in tasks[name]]
    assert trained.isdisjoint((task.environment, task.cluster) for task in held_out)
    assert warm.isdisjoint(f"{task.environment}/{task.cluster}" for task in held_out)
    counts = {name: Counter((task.environment, task.part) for task in tasks[name]) for name in HELD_OUT}
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
    rows = {
        name: pq.read_table(tmp_path / "data" / name).num_rows
        for name in (WARM_START, *(f"{stage}.parquet" for stage in OWN))
    }
    assert [*rows.values()] == [20, *OWN.values()]
    held_out = pq.read_table(tmp_path / "data" / "val.parquet").to_pylist()
    assert Counter(row["extra_info"]["environment"] for row in held_out) == {"made": 6, "bfcl": 16}
