"""A short training that stores its episodes with their tokens, and one that learns from what is stored."""

import os
import re
import subprocess
import sys
from pathlib import Path

from data_prep.__main__ import main as prepare_data
from recipe.cpu.tiny_policy import make_tiny_policy
from support.short_training import ROOT, train

REWARD = '''
def compute_score(data_source, solution_str, ground_truth, extra_info):
    """Not ours: pays for even messages, which an untrained policy writes half of the time."""
    steps = [step for turn in extra_info["episode"]["turns"] for step in turn["steps"]]
    scores = [1.0 - 2.0 * (len(step["text"]) % 2) for step in steps]
    return {"score": sum(scores), "step_scores": scores, "even": scores.count(1.0)}
'''


def play(folder: Path) -> tuple[Path, Path]:
    """Rollouts with their tokens, 16 of two steps, and the model that played them."""
    assert prepare_data(["--out", str(folder / "data"), "--tiny"]) == 0
    make_tiny_policy(folder / "model")
    (folder / "my_reward.py").write_text(REWARD)
    stage = train(
        folder,
        f"paths.data={folder}/data",
        "interaction.record_tokens=true",
        f"reward.custom_reward_function.path={folder}/my_reward.py",
        "actor_rollout_ref.actor.optim.lr=1e-6",
        "trainer.test_freq=-1",
    )
    return stage / "rollouts" / "train", folder / "model"


def learn(run: Path, played: Path, model: Path, *overrides: str) -> Path:
    """A start of the offline stage on the CPU profile; returns its folder."""
    command = [
        *(sys.executable, "-m", "recipe.train", "--config-name", "offline", f"offline.files={played}"),
        *(f"paths.run={run}", f"actor_rollout_ref.model.path={model}", "trainer.save_freq=3", *overrides),
    ]
    environment = {name: value for name, value in os.environ.items() if name != "MODEL"} | {"HARDWARE": "tiny"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-5000:]
    assert "nothing is validated by playing" in said
    assert not re.search(r"vLLMHttpServer|EngineCore|AgentLoopWorker", said)
    return run / "offline"
