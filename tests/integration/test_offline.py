"""A stage learns from what another one has played, for real; about eleven minutes on two cores."""

import json
import math
import re
from pathlib import Path

import pytest
from support.short_training import prepared, succeed, train

from recipe.report.tables import CORRELATION
from recipe.stage.metrics_log import read_steps

pytestmark = pytest.mark.slow

REWARD = '''
def compute_score(data_source, solution_str, ground_truth, extra_info):
    """Not ours: pays for even messages, which an untrained policy writes half of the time."""
    steps = [step for turn in extra_info["episode"]["turns"] for step in turn["steps"]]
    scores = [1.0 - 2.0 * (len(step["text"]) % 2) for step in steps]
    return {"score": sum(scores), "step_scores": scores, "even": scores.count(1.0)}
'''
ROLLOUT = "actor_rollout_ref.rollout"
GROUPS = ("algorithm=grpo", f"{ROLLOUT}.n=2", "data.train_batch_size=4")
GROUPS += ("actor_rollout_ref.actor.ppo_mini_batch_size=4",)


def batches(stage: Path) -> list[list[str]]:
    """Names of the trajectories of each step; of a step that was repeated the later ones."""
    lines = map(json.loads, (stage / "batches.jsonl").read_text().splitlines())
    return [*{line["step"]: line["trajectories"] for line in lines}.values()]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Rollouts with their tokens, 16 of two steps, and the model that played them."""
    folder = prepared(tmp_path_factory.mktemp("played"), REWARD)
    stage = train(
        folder,
        *("interaction.record_tokens=true", f"reward.custom_reward_function.path={folder}/my_reward.py"),
        *("actor_rollout_ref.actor.optim.lr=1e-6", "trainer.test_freq=-1"),
    )
    return stage / "rollouts" / "train", folder / "model"


def learn(run: Path, played: Path, model: Path, *overrides: str) -> Path:
    """A start of the offline stage on the CPU profile; returns its folder."""
    said = succeed(
        *("recipe.train", "--config-name", "offline", f"offline.files={played}", f"paths.run={run}"),
        *(f"actor_rollout_ref.model.path={model}", "trainer.save_freq=3", *overrides),
    )
    assert "nothing is validated by playing" in said
    assert not re.search(r"vLLMHttpServer|EngineCore|AgentLoopWorker", said)
    return run / "offline"


def test_three_epochs_with_a_resume_are_those_without_one_and_teach_what_was_rewarded(played, tmp_path) -> None:
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
    assert far[0] < 1e-6 < min(far[2:])  # the start model's are old in every step; a step's groups may all be alike
    for step, numbers in read_steps(resumed).items():
        assert numbers["actor/grad_norm"] == pytest.approx(steps[step]["actor/grad_norm"], rel=1e-3), step
    models = ("--start", str(model), "--trained", str(at_once / "hf"))
    shown = succeed("benchmarks.offline_shift", "--temperature", "0.7", str(files), *models)
    moved = dict(re.findall(r"^(rewarded|punished) .* ([+-][\d.]+) +\d+%", shown, re.MULTILINE))
    assert float(moved["rewarded"]) > float(moved["punished"]), shown  # mean of a trajectory, in nats


ADAPTER = ("algorithm=appo", "actor_rollout_ref.model.lora_rank=8", "algorithm.rollout_correction.rollout_is=token")


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


SAME = ("actor/pg_loss", "actor/grad_norm", "actor/entropy", "actor/ppo_kl")
TWO = ["trainer.n_gpus_per_node=2"]
FOUR = [f"actor_rollout_ref.{part}.log_prob_micro_batch_size_per_gpu=4" for part in ("rollout", "ref")]
"""Rows of a forward pass: what each of two processes has of a batch of eight."""
IN_PARTS = [f"{ROLLOUT}.tensor_model_parallel_size=2", f"{ROLLOUT}.engine_kwargs.vllm.distributed_executor_backend=mp"]


def test_two_data_parallel_trainers_have_loss_and_gradients_of_one(played: tuple[Path, Path], tmp_path: Path) -> None:
    files, model = played  # in groups: a critic's head begins with random weights, which are others in each start
    given = [*GROUPS, *FOUR, "trainer.total_training_steps=2"]
    one = read_steps(learn(tmp_path / "one", files, model, *given))
    two = read_steps(learn(tmp_path / "two", files, model, *given, *TWO))
    assert list(one) == list(two) == [1, 2]
    for step in one:
        for name in SAME:
            assert two[step][name] == pytest.approx(one[step][name], rel=1e-4, abs=1e-6), (step, name)


@pytest.mark.parametrize("engine", [[], IN_PARTS], ids=["two engines", "an engine of two processes"])
def test_engines_beside_each_other_or_in_parts_sample_what_is_trained(played, tmp_path, engine) -> None:
    _, model = played
    (tmp_path / "model").symlink_to(model)
    given = [f"paths.data={model.parent}/data", "stage.old_log_probs_every=1", *FOUR, *TWO, *engine]
    steps = read_steps(train(tmp_path, *given))
    assert list(steps) == [1, 2]
    for numbers in steps.values():
        assert numbers[CORRELATION] > 0.9999 and math.isfinite(numbers["actor/grad_norm"])
