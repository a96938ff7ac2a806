"""The data set of docs/your_data.md in a real training: two steps, about two minutes on two cores."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.own_data import write_example

from data_prep.__main__ import main as prepare_data
from recipe.cpu.tiny_policy import make_tiny_policy
from recipe.stage.metrics_log import read_steps

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_it_trains(tmp_path: Path) -> None:
    path = write_example(tmp_path)
    assert prepare_data(["--json", str(path), "--out", str(tmp_path / "data"), "--docs", "signature"]) == 0
    make_tiny_policy(tmp_path / "model")
    command = [
        *(sys.executable, "-m", "recipe.train", "--config-name", "stage2"),
        f"paths.run={tmp_path}/run",
        f"paths.data={tmp_path}/data",
        f"data.train_files={tmp_path}/data/office_train.parquet",
        f"data.val_files={tmp_path}/data/office_val.parquet",
        f"+interaction.environments.office={path}",
        "+interaction.train.environments.office.augment=true",
        f"actor_rollout_ref.model.path={tmp_path}/model",
        "trainer.total_training_steps=2",
        "trainer.save_freq=2",
        "trainer.test_freq=2",
        "data.train_batch_size=2",
        "data.max_response_length=300",
        "actor_rollout_ref.actor.ppo_mini_batch_size=2",
        "actor_rollout_ref.rollout.n=2",
        "stage.max_lost_share=1.0",
    ]
    environment = {name: value for name, value in os.environ.items() if name != "MODEL"} | {"HARDWARE": "cpu"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    stage = tmp_path / "run" / "stage2_base"
    assert {1, 2} <= set(read_steps(stage))
    lines = [
        json.loads(line) for file in stage.glob("rollouts/train/*.jsonl") for line in file.read_text().splitlines()
    ]
    assert {line["environment"] for line in lines} == {"office"} and len(lines) == 2 * 2 * 2
    held_out = [json.loads(line) for line in next(stage.glob("rollouts/val/*.jsonl")).read_text().splitlines()]
    assert {line["part"] for line in held_out} == {"choose", "report"}
    told = [*lines, *held_out]
    assert {line["episode"]["task_id"] for line in told if line["episode"]["facts"]} == {"multi_turn_base_1"}
