"""The data of a real model on a CPU: mixed batches, nothing held out, and tasks that are not asked twice."""

import json
from collections import Counter

import pyarrow.parquet as pq
import pytest

from bfcl_env.synthesis import Shape, generate
from data_prep.__main__ import main
from data_prep.laptop import HELD_OUT, OWN, TRAIN, WARM_START
from interaction.environment import load_tasks

STAGES = [name for name in TRAIN if name != WARM_START]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("laptop")
    assert main(["--out", str(out), "--laptop"]) == 0
    return out


def tasks_of(path):
    """In the order of the rows."""
    tasks = {**load_tasks("bfcl_single"), **load_tasks("bfcl")}
    return [tasks[row.get("task_id") or row["extra_info"]["task_id"]] for row in pq.read_table(path).to_pylist()]


def test_every_batch_of_a_stage_has_each_category_in_its_share(made):
    for name in STAGES:
        categories = [task.category for task in tasks_of(made / name)]
        assert Counter(categories) == TRAIN[name]
        share = {category: 8 * count / len(categories) for category, count in TRAIN[name].items()}
        for start in range(0, len(categories), 8):
            batch = Counter(categories[start : start + 8])
            assert all(batch[category] > 0 and abs(batch[category] - mean) < 1 for category, mean in share.items())


def test_no_cluster_is_both_trained_on_and_held_out_and_no_task_is_trained_on_twice(made):
    trained = [task for name in TRAIN for task in tasks_of(made / name)]
    assert len({task.id for task in trained}) == len(trained) == 184 + 64 + 64 + 32
    shown = tasks_of(made / "sft_all.parquet")
    held_out = [task for name in HELD_OUT for task in tasks_of(made / name)]
    assert {task.part for task in trained + shown} == {"train"}
    clusters = [{(task.environment, task.cluster) for task in those} for those in (trained + shown, held_out)]
    assert clusters[0].isdisjoint(clusters[1])
    assert Counter(task.part for task in held_out) == {"dev": 96 + 6, "test": 200 + 12}


def test_a_file_of_the_users_own_takes_the_place_of_training_tasks_and_stands_beside_held_out_ones(tmp_path, capsys):
    shape = Shape(turns=(1, 1), operations=1, forms=("multi_turn_base",), classes=("GorillaFileSystem", "MathAPI"))
    entries = [*generate("train", 20, 1, shape), *generate("test", 6, 1, shape)]
    file = tmp_path / "few.json"
    file.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    assert main(["--out", str(tmp_path / "few"), "--laptop", "--json", str(file)]) != 0
    assert f"few has 20 tasks to train on; --laptop takes more than {sum(OWN.values())}" in capsys.readouterr().err
    copies = [{**entries[number % 20], "id": f"multi_turn_base_{5000 + number}"} for number in range(180)]
    file = tmp_path / "made.json"
    file.write_text("".join(json.dumps(entry) + "\n" for entry in [*copies, *entries[20:]]))
    assert main(["--out", str(tmp_path / "data"), "--laptop", "--json", str(file)]) == 0
    rows = {name: pq.read_table(tmp_path / "data" / name).num_rows for name in (WARM_START, *OWN)}
    assert rows == {WARM_START: 20, **OWN}
    held_out = pq.read_table(tmp_path / "data" / "val.parquet").to_pylist()
    assert Counter(row["extra_info"]["environment"] for row in held_out) == {"made": 6, "bfcl": 30}
