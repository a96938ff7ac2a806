"""Single-turn tasks in a real training: rows of a mixture, episodes of one message, metrics by category.

One start of all processes, two steps: about two minutes on two cores.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from data_prep.__main__ import main as prepare_data
from recipe.cpu.tiny_policy import make_tiny_policy
from recipe.stage.metrics_log import read_steps

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_mixture_of_categories_trains_and_each_has_metrics_of_its_own(tmp_path: Path) -> None:
    mixed = ["bfcl_single/simple_python=1", "bfcl_single/irrelevance=1", "--rows", "4", "--val-rows", "4"]
    assert prepare_data(["--out", str(tmp_path / "data"), "--docs", "signature", "--mixture", *mixed]) == 0
    make_tiny_policy(tmp_path / "model")
    command = [
        *(sys.executable, "-m", "recipe.train", "--config-name", "stage2"),
        f"paths.run={tmp_path}/run",
        f"data.train_files={tmp_path}/data/mixture_train.parquet",
        f"data.val_files={tmp_path}/data/mixture_val.parquet",
        f"actor_rollout_ref.model.path={tmp_path}/model",
        "trainer.total_training_steps=2",
        "trainer.save_freq=2",
        "trainer.test_freq=2",
        "data.train_batch_size=4",
        "data.max_response_length=300",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
        "actor_rollout_ref.rollout.n=2",
    ]
    environment = {name: value for name, value in os.environ.items() if name != "MODEL"} | {"HARDWARE": "cpu"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    stage = tmp_path / "run" / "stage2_base"
    lines = [
        json.loads(line) for path in stage.glob("rollouts/train/*.jsonl") for line in path.read_text().splitlines()
    ]
    assert len(lines) == 2 * 4 * 2 and {line["category"] for line in lines} == {"simple_python", "irrelevance"}
    for line in lines:
        (turn,) = line["episode"]["turns"]
        assert len(turn["steps"]) == 1 and turn["facts"]["has_gold"] == (line["category"] == "simple_python")
    metrics = read_steps(stage)[2]
    for category in ("simple_python", "irrelevance"):
        assert {f"train/bfcl_single/{category}/acc", f"val/bfcl_single/{category}/acc"} <= metrics.keys(), sorted(
            metrics
        )
