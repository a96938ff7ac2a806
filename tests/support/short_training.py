"""Two steps of the real trainer on the CPU profile, in a process of their own: for the tests of other things."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
STAGE = "stage2_base"


def train(folder: Path, *overrides: str, rows: int = 4) -> Path:
    """Trains the model in `folder/model` with stage 2's configuration; returns the folder of the stage.

    Args:
        overrides: at least the files of data.
        rows: of a step, two episodes each.
    """
    command = [
        *(sys.executable, "-m", "recipe.train", "--config-name", "stage2"),
        f"paths.run={folder}/run",
        f"actor_rollout_ref.model.path={folder}/model",
        "trainer.total_training_steps=2",
        "trainer.save_freq=2",
        "trainer.test_freq=2",
        f"data.train_batch_size={rows}",
        "data.max_response_length=300",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={rows}",
        "actor_rollout_ref.rollout.n=2",
        *overrides,
    ]
    environment = {name: value for name, value in os.environ.items() if name != "MODEL"} | {"HARDWARE": "tiny"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    return folder / "run" / STAGE


def episodes(stage: Path, split: str = "train") -> list[dict[str, Any]]:
    """Lines of all stored episodes."""
    return [
        json.loads(line) for path in stage.glob(f"rollouts/{split}/*.jsonl") for line in path.read_text().splitlines()
    ]
