"""Trains with what docs/algorithms.md offers, and looks at what only that moves; twelve minutes on two cores."""

import math
from collections import Counter, defaultdict
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from support import short_training

from data_prep.__main__ import main as prepare_data
from interaction.token_rewards import overlong_penalty
from recipe.cpu.tiny_policy import make_tiny_policy
from recipe.preflight.teacher import PATH
from recipe.stage import state
from recipe.stage.metrics_log import read_steps

pytestmark = pytest.mark.slow

N, BUDGET = 4, 400

REWARD = '''
def compute_score(data_source, solution_str, ground_truth, extra_info):
    """Rewards length in steps, so that rollouts differ; `rare` seldom differs, so that groups are filtered."""
    length = len(solution_str)
    return {"score": (length % 11) / 10, "acc": 0.0, "rare": float(length % 5 == 0)}
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, a reward, and a tiny policy that was shown gold conversations: an untrained one never ends a message."""
    path = tmp_path_factory.mktemp("algorithms")
    assert prepare_data(["--out", str(path / "data"), "--tiny"]) == 0
    (path / "my_reward.py").write_text(REWARD)
    warm = path / "warm"
    short = ("trainer.total_epochs=6", f"paths.stage={warm}", f"paths.run={warm}", f"paths.data={path}/data")
    short_training.succeed("recipe.sft", *short)
    (path / "model").symlink_to(warm / "hf")
    return path


def train(folder: Path, name: str, *overrides: str) -> Path:
    given = [f"reward.custom_reward_function.path={folder}/my_reward.py", "trainer.test_freq=-1", *overrides]
    given += [f"actor_rollout_ref.rollout.n={N}", f"data.max_response_length={BUDGET}"]
    return short_training.train(folder, *given, "actor_rollout_ref.actor.ppo_mini_batch_size=2", run=name)


def groups(stage: Path, step: int) -> list[list[dict[str, Any]]]:
    found = defaultdict(list)
    for episode in short_training.episodes(stage):
        if episode["step"] == step:
            found[episode["uid"]].append(episode)
    return list(found.values())


DAPO = (
    *("algorithm=dapo", "algorithm.filter_groups.metric=rare", "stage.max_gen_batches=20"),
    *("interaction.overlong.train=false", "interaction.overlong.window=0.9"),
    "algorithm.rollout_correction.rollout_is=token",
)


def test_dynamic_sampling_correction_overlong_and_several_updates_in_one_run(folder: Path):
    stage = train(folder, "dapo", *DAPO)
    steps = read_steps(stage)
    assert sorted(steps) == [1, 2]
    for step, numbers in steps.items():
        played = groups(stage, step)
        alike = [group for group in played if len({episode["reward"]["rare"] for episode in group}) == 1]
        assert numbers["train/played_groups"] == len(played)
        assert numbers["train/filtered_groups"] == pytest.approx(len(alike) / len(played))
        assert numbers["train/lost_samples"] == 0, "filtered is not lost"
        for episode in chain.from_iterable(played):
            cut = episode["episode"]["stop_reason"] == "max_tokens"
            price = overlong_penalty(episode["response_tokens"], BUDGET, cut, window=0.9, penalty=0.5)
            assert episode["reward"]["overlong_penalty"] == pytest.approx(price)
            assert episode["score"] == pytest.approx(episode["reward"]["score"] - price)
        assert numbers["critic/score/mean"] == pytest.approx(numbers["train/score"] - numbers["train/overlong_penalty"])
        assert 0 < numbers["train/overlong_penalty"] < 0.5
        assert numbers["train/overlong_left_out"] < 1
        assert numbers["rollout_corr/rollout_is_mean"] == pytest.approx(1.0, abs=1e-3)
        assert numbers["actor/pg_clipfrac"] > 0, "the second update of a step has a ratio"
        assert 0 < numbers["actor/grad_norm"] < math.inf
    assert any(numbers["train/filtered_groups"] > 0 for numbers in steps.values())
    assert any(numbers["train/overlong_left_out"] > 0 for numbers in steps.values())


ACTOR = "actor_rollout_ref.actor"
CISPO = (f"{ACTOR}.policy_loss.loss_mode=cispo", f"{ACTOR}.clip_ratio_low=10", f"{ACTOR}.clip_ratio_high=0.02")
OTHERS = {
    # algorithm, overrides, a factor of its advantages, and more than this share is clipped
    "gspo": (("algorithm.adv_estimator=rloo",), N / (N - 1), 0.01),  # bounds of a mean over an episode
    "dr_grpo": (CISPO, 1.0, 0.0),
}


@pytest.mark.parametrize("algorithm", OTHERS)
def test_other_losses_clip_and_other_estimators_divide_by_no_spread(folder: Path, algorithm: str):
    overrides, scale, clipped = OTHERS[algorithm]
    stage = train(folder, algorithm, f"algorithm={algorithm}", *overrides)
    for step, numbers in read_steps(stage).items():
        assert numbers["actor/pg_clipfrac"] > clipped and numbers["actor/grad_norm"] > 0
        scores = [[episode["score"] for episode in group] for group in groups(stage, step)]
        largest = max(scale * (max(group) - fmean(group)) for group in scores)
        assert numbers["critic/advantages/max"] == pytest.approx(largest, abs=1e-5)


GIVEN = (
    *("interaction.train.from_gold={share: 1.0, steps: 2}", "stage.gate=null"),
    *("data.max_response_length=1280", "interaction.max_tokens_per_reply=100"),
    "algorithm.rollout_correction.rollout_is=token",
)
LOSS = "actor/distillation/abs_loss"


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return short_training.prepared(tmp_path_factory.mktemp("distillation"))


@pytest.mark.parametrize(
    ("algorithm", "loss", "norm"), [("opd", LOSS, 1e-3), ("opd_topk", "actor/distillation/loss", 0.1)]
)
def test_a_teacher_that_is_the_model_changes_nothing_and_a_killed_run_asks_it_again(
    untrained: Path, algorithm: str, loss: str, norm: float
):
    """The loss is on what the model wrote alone: the teacher gives each of these tokens the model's own probability.

    With `opd_topk` what the teacher has beyond its most likely tokens moves to these.
    """
    given = (f"algorithm={algorithm}", f"{PATH}={untrained}/model", *GIVEN, "trainer.save_freq=1")
    stage = untrained / algorithm / short_training.STAGE
    short_training.kill_after(1, stage, *short_training.command(untrained, *given, run=algorithm))
    assert state.latest(stage / "checkpoints") == 1, "it was killed too late to show anything"
    short_training.train(untrained, *given, run=algorithm)
    steps, begun = read_steps(stage), defaultdict(set)
    assert sorted(steps) == [1, 2] and steps[1]["train/given_turns"] > 0
    assert steps[1][loss] < 1e-4 and steps[1]["actor/grad_norm"] < norm
    assert [numbers["train/lost_samples"] for numbers in steps.values()] == [0, 0]
    for line in short_training.episodes(stage):
        assert line["given_turns"] == len(line["episode"]["given"]) and len(line["episode"]["turns"]) >= 1
        begun[line["step"], line["uid"]].add(line["given_turns"])
    assert all(len(places) == 1 for places in begun.values()), "a group begins at one place"
    assert not any(line["episode"]["given"] for line in short_training.episodes(stage, "val"))


def test_another_teacher_is_learned_from_beside_the_reward(untrained: Path):
    make_tiny_policy(untrained / "other")
    weights = load_file(path := untrained / "other" / "model.safetensors")
    torch.manual_seed(1)
    save_file({name: value + 0.02 * torch.randn_like(value) for name, value in weights.items()}, path)
    stage = short_training.train(untrained, "algorithm=opd_grpo", f"{PATH}={untrained}/other", *GIVEN, run="other")
    for step in read_steps(stage).values():
        assert step[LOSS] > 0.01 and step["actor/grad_norm"] > 0.01


@pytest.mark.parametrize("algorithm", ["TPPO", "APPO"])
def test_the_command_trains_and_its_curves_are_found(algorithm: str, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing import io_wrapper
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = short_training.prepared(tmp_path)
    short_training.succeed(
        *("recipe.tools.train_fctncalling", "--algorithm_name", algorithm, "trainer.total_training_steps=2"),
        *("--dataset_path", "data/tiny_base.parquet", "--model_name_or_path", "model"),
        *("--n_rollout_threads", "4", "--gradient_cp_steps", "2", "--save_interval", "1"),
        **{"folder": folder, "timeout": 1800, "PYTHONPATH": str(short_training.ROOT)},
    )
    names = f"default/model/tiny_base/{algorithm}"
    stage = folder / "outputs" / "fctncalling" / names / "fctncalling"
    steps = read_steps(stage)
    assert sorted(steps) == [1, 2]
    for numbers in steps.values():
        assert numbers["actor/lr"] == pytest.approx(1e-7) and numbers["critic/lr"] == pytest.approx(5e-6)
        assert math.isfinite(numbers["critic/vf_loss"]) and numbers["actor/grad_norm"] > 0
    assert Counter(line["step"] for line in short_training.episodes(stage)) == {1: 4, 2: 4}, "one for each thread"
    assert state.latest(stage / "checkpoints") == 2
    results = folder / "results" / names
    assert "<html" in (results / "report.html").read_text()
    found = [path for path in io_wrapper.GetLogdirSubdirectories(str(folder / "results")) if algorithm in path]
    assert [Path(path) for path in found] == [results / "tensorboard"], "tensorboard --logdir results"
    curves = EventAccumulator(found[0]).Reload()
    assert [event.step for event in curves.Scalars("critic/score/mean")] == [1, 2]
