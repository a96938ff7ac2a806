"""A reward that fails in a real training: samples are lost and the others train, or training stops and says why.

Four starts of all processes, about a minute each on two cores.
"""

import math
import subprocess
from pathlib import Path

import pytest
from safetensors.torch import load_file
from support.short_training import STAGE, command, prepared, start

from recipe.stage.end import read_done
from recipe.stage.metrics_log import read_steps

REWARD = """
import math, os, time
calls = []
def compute_score(data_source, solution_str, ground_truth, extra_info):
    calls.append(1)
    score = float(len(solution_str) % 11)
    if "num_turns" not in extra_info:  # the trial before the start
        return score
    {body}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("reward"))


def train(folder: Path, name: str, body: str, *overrides: str) -> tuple[subprocess.CompletedProcess[str], Path]:
    (folder / f"{name}.py").write_text(REWARD.format(body=body))
    given = [f"reward.custom_reward_function.path={folder}/{name}.py", "trainer.test_freq=-1", *overrides]
    done = start(*command(folder, *given, "actor_rollout_ref.rollout.n=4", rows=2, run=name))
    return done, folder / name / STAGE


@pytest.mark.slow
def test_samples_whose_reward_is_nan_are_lost_and_counted_and_the_others_train(folder: Path) -> None:
    body = "return math.nan if len(calls) % 8 == 3 else score"
    done, stage = train(folder, "part", body, "stage.max_lost_share=0.5")
    assert done.returncode == 0, done.stdout[-5000:]
    assert f"the reward compute_score of {folder}/part.py returned nan; expected a finite" in done.stdout
    steps = read_steps(stage)
    assert sorted(steps) == [1, 2]
    for numbers in steps.values():
        assert numbers["train/lost_samples"] == pytest.approx(1 / 8)
        assert numbers["train/failed_rewards"] > 0
        assert all(map(math.isfinite, numbers.values())), "NaN has reached the metrics"
    weights = load_file(stage / "hf" / "model.safetensors")
    assert all(tensor.isfinite().all() for tensor in weights.values())


@pytest.mark.slow
def test_a_reward_that_always_fails_stops_training_before_the_update(folder: Path) -> None:
    for name, body, said, given in (
        ("nan", "return math.nan", "returned nan", ()),
        ("hang", "time.sleep(10_000)", "has not returned within 2 s", ("reward.timeout=2",)),
        ("exit", "os._exit(0)", "failed for 2 prompts", ()),
    ):
        done, stage = train(folder, name, body, *given)
        reward = f"the reward compute_score of {folder}/{name}.py"
        assert done.returncode == 1 and said in done.stdout
        assert f"8 of 8 samples of step 1 were lost because {reward} failed for 2 prompts" in done.stdout
        assert read_steps(stage) == {}
        assert read_done(stage) is None and not (stage / "hf").exists()
