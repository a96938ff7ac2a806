"""A stage learns from what another one has played, for real: no engine, the same batches whatever else is drawn, a
resume in the middle of an epoch, and what was rewarded becomes more probable.

About five minutes on two cores.
"""

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.learning import learn, play
from support.short_training import ROOT

from recipe.stage.metrics_log import read_steps

GROUPS = (
    "algorithm=grpo",
    "actor_rollout_ref.rollout.n=2",
    "data.train_batch_size=4",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4",
)


def batches(stage: Path) -> list[list[str]]:
    """Names of the trajectories of each step; of a step that was repeated the later ones."""
    lines = map(json.loads, (stage / "batches.jsonl").read_text().splitlines())
    return [*{line["step"]: line["trajectories"] for line in lines}.values()]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return play(tmp_path_factory.mktemp("played"))


@pytest.mark.slow
def test_three_epochs_with_a_resume_are_those_without_one_and_teach_what_was_rewarded(
    played: tuple[Path, Path], tmp_path: Path
) -> None:
    files, model = played
    three = "trainer.total_epochs=3"  # in groups, without a critic, whose head begins with random weights
    at_once = learn(tmp_path / "once", files, model, *GROUPS, three, "actor_rollout_ref.rollout.seed=11")
    learn(tmp_path / "twice", files, model, *GROUPS, "trainer.total_training_steps=3")
    resumed = learn(tmp_path / "twice", files, model, *GROUPS, three)
    steps = read_steps(at_once)
    assert list(steps) == [*range(1, 7)]
    assert batches(resumed) == batches(at_once)
    one, other, third, fourth, *_ = batches(at_once)
    assert sorted(one + other) == sorted(third + fourth) and one + other != third + fourth
    far = [abs(numbers["actor/ppo_kl"]) for numbers in steps.values()]
    assert far[0] < 1e-6 < min(far[1:])  # old log-probabilities are the start model's in every step
    for step, numbers in read_steps(resumed).items():
        assert numbers["actor/grad_norm"] == pytest.approx(steps[step]["actor/grad_norm"], rel=1e-3), step
    command = [sys.executable, "-m", "benchmarks.offline_shift", "--temperature", "0.7", str(files)]
    command += ["--start", str(model), "--trained", str(at_once / "hf")]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert shown.returncode == 0, shown.stderr[-3000:]
    moved = dict(re.findall(r"^(rewarded|punished) .*? ([+-][\d.]+) \+- ", shown.stdout, re.MULTILINE))
    assert float(moved["rewarded"]) > float(moved["punished"]), shown.stdout  # mean of a trajectory, in nats


ADAPTER = ("algorithm=appo", "actor_rollout_ref.model.lora_rank=8", "algorithm.rollout_correction.rollout_is=token")


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [(), ADAPTER], ids=["a reward for every step", "an adapter"])
def test_other_ways_to_learn_take_the_same_files(played: tuple[Path, Path], tmp_path: Path, overrides: tuple) -> None:
    files, model = played
    stage = learn(tmp_path / "run", files, model, "trainer.total_training_steps=2", *overrides)
    steps = read_steps(stage)
    assert list(steps) == [1, 2]
    for numbers in steps.values():
        assert numbers["actor/grad_norm"] > 0 and numbers["rollout_corr/rollout_is_mean"] > 0
        for name in ("actor/grad_norm", "actor/pg_loss", "critic/grad_norm", "critic/vf_loss"):
            assert math.isfinite(numbers[name]), name
    assert (stage / "hf" / "model.safetensors").is_file()
