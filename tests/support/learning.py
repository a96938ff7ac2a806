"""A short training that stores its episodes with their tokens, and one that learns from what is stored."""

import re
from pathlib import Path

from support.short_training import prepared, start, train

REWARD = '''
def compute_score(data_source, solution_str, ground_truth, extra_info):
    """Not ours: pays for even messages, which an untrained policy writes half of the time."""
    steps = [step for turn in extra_info["episode"]["turns"] for step in turn["steps"]]
    scores = [1.0 - 2.0 * (len(step["text"]) % 2) for step in steps]
    return {"score": sum(scores), "step_scores": scores, "even": scores.count(1.0)}
'''


def play(folder: Path) -> tuple[Path, Path]:
    """Rollouts with their tokens, 16 of two steps, and the model that played them."""
    stage = train(
        prepared(folder, REWARD),
        "interaction.record_tokens=true",
        f"reward.custom_reward_function.path={folder}/my_reward.py",
        "actor_rollout_ref.actor.optim.lr=1e-6",
        "trainer.test_freq=-1",
    )
    return stage / "rollouts" / "train", folder / "model"


def learn(run: Path, played: Path, model: Path, *overrides: str) -> Path:
    """A start of the offline stage on the CPU profile; returns its folder."""
    done = start(
        *("recipe.train", "--config-name", "offline", f"offline.files={played}", f"paths.run={run}"),
        *(f"actor_rollout_ref.model.path={model}", "trainer.save_freq=3", *overrides),
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-5000:]
    assert "nothing is validated by playing" in said
    assert not re.search(r"vLLMHttpServer|EngineCore|AgentLoopWorker", said)
    return run / "offline"
