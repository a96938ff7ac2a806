"""Two steps of the real trainer on the CPU profile, in a process of their own: for the tests of other things."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from data_prep.__main__ import main as prepare_data
from recipe.cpu.tiny_policy import make_tiny_policy

ROOT = Path(__file__).parents[2]
STAGE = "stage2_base"
SHORT = (
    *("trainer.save_freq=1", "trainer.test_freq=-1", "trainer.val_before_train=false", "data.train_batch_size=2"),
    *("data.max_response_length=300", "actor_rollout_ref.actor.ppo_mini_batch_size=2", "actor_rollout_ref.rollout.n=4"),
    "launcher.needs.disk_gb=0",
)
"""Settings with which a step takes seconds: two rows, four episodes each, a checkpoint."""


def environment(**variables: str) -> dict[str, str]:
    """That of a start with the tiny policy's profile, without what a shell has set for a run."""
    kept = {name: value for name, value in os.environ.items() if name not in ("MODEL", "RUN", "SEED")}
    return {**kept, "HARDWARE": "tiny", **variables}


def start(module: str, *arguments: str, timeout: float = 900, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m module` in this checkout, with these variables."""
    command, given = [sys.executable, "-m", module, *arguments], environment(**variables)
    return subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, timeout=timeout)


def prepared(folder: Path, reward: str = "") -> Path:
    """The same folder, with the tiny data in `data`, an untrained policy in `model`, and `my_reward.py`."""
    assert prepare_data(["--out", str(folder / "data"), "--tiny"]) == 0
    make_tiny_policy(folder / "model")
    (folder / "my_reward.py").write_text(reward)
    return folder


def command(folder: Path, *overrides: str, config: str = "stage2", run: str = "run", rows: int = 4) -> tuple[str, ...]:
    """Two steps of so many rows, two episodes each, that train the model in `folder/model`: module and arguments."""
    return (
        *("recipe.train", "--config-name", config, f"paths.run={folder}/{run}", f"paths.data={folder}/data"),
        f"actor_rollout_ref.model.path={folder}/model",
        *("trainer.total_training_steps=2", "trainer.save_freq=2", "trainer.test_freq=2"),
        *(f"data.train_batch_size={rows}", f"actor_rollout_ref.actor.ppo_mini_batch_size={rows}"),
        *("actor_rollout_ref.rollout.n=2", "data.max_response_length=300"),
        *overrides,
    )


def train(folder: Path, *overrides: str, config: str = "stage2", run: str = "run", rows: int = 4) -> Path:
    """Trains by `command`; returns the folder of the stage."""
    done = start(*command(folder, *overrides, config=config, run=run, rows=rows))
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    return folder / run / (STAGE if config == "stage2" else config)


def episodes(stage: Path, split: str = "train") -> list[dict[str, Any]]:
    """Lines of all stored episodes."""
    return [
        json.loads(line) for path in stage.glob(f"rollouts/{split}/*.jsonl") for line in path.read_text().splitlines()
    ]
