"""The data of a real model on a CPU: mixed batches, nothing held out, and tasks that are not asked twice."""

from collections import Counter

import pyarrow.parquet as pq
from support.entries import write

from bfcl_env.synthesis import Shape, generate
from data_prep.__main__ import main
from data_prep.laptop import HELD_OUT, OWN, TRAIN, WARM_START
from interaction.environment import load_tasks


def test_every_batch_has_each_category_in_its_share_no_task_twice_and_no_cluster_that_is_held_out(tmp_path):
    assert main(["--out", str(tmp_path), "--laptop"]) == 0
    known, tasks = {**load_tasks("bfcl_single"), **load_tasks("bfcl")}, {}
    for name in (*TRAIN, *HELD_OUT, "sft_all.parquet"):
        rows = pq.read_table(tmp_path / name).to_pylist()
        tasks[name] = [known[row.get("task_id") or row["extra_info"]["task_id"]] for row in rows]
    for name in TRAIN.keys() - {WARM_START}:
        categories = [task.category for task in tasks[name]]
        assert Counter(categories) == TRAIN[name]
        share = {category: 8 * count / len(categories) for category, count in TRAIN[name].items()}
        for start in range(0, len(categories), 8):
            batch = Counter(categories[start : start + 8])
            assert all(batch[category] > 0 and abs(batch[category] - mean) < 1 for category, mean in share.items())
    trained = [task for name in TRAIN for task in tasks[name]]
    assert len({task.id for task in trained}) == len(trained) == 184 + 64 + 64 + 32
    trained += tasks["sft_all.parquet"]
    held_out = [task for name in HELD_OUT for task in tasks[name]]
    assert {task.part for task in trained} == {"train"}
    clusters = [{(task.environment, task.cluster) for task in those} for those in (trained, held_out)]
    assert clusters[0].isdisjoint(clusters[1])
    assert Counter(task.part for task in held_out) == {"dev": 96 + 6, "test": 200 + 12}


def test_a_file_of_the_users_own_takes_the_place_of_training_tasks_and_stands_beside_held_out_ones(tmp_path, capsys):
    shape = Shape(turns=(1, 1), operations=1, forms=("multi_turn_base",), classes=("GorillaFileSystem", "MathAPI"))
    entries = [*generate("train", 20, 1, shape), *generate("test", 6, 1, shape)]
    file = write(tmp_path, entries, "few.json")
    assert main(["--out", str(tmp_path / "few"), "--laptop", "--json", str(file)]) != 0
    assert f"few has 20 tasks to train on; --laptop takes more than {sum(OWN.values())}" in capsys.readouterr().err
    copies = [{**entries[number % 20], "id": f"multi_turn_base_{5000 + number}"} for number in range(180)]
    file = write(tmp_path, [*copies, *entries[20:]], "made.json")
    assert main(["--out", str(tmp_path / "data"), "--laptop", "--json", str(file)]) == 0
    rows = {name: pq.read_table(tmp_path / "data" / name).num_rows for name in (WARM_START, *OWN)}
    assert rows == {WARM_START: 20, **OWN}
    held_out = pq.read_table(tmp_path / "data" / "val.parquet").to_pylist()
    assert Counter(row["extra_info"]["environment"] for row in held_out) == {"made": 6, "bfcl": 30}
