"""Trains with what docs/algorithms.md offers, a mini-batch smaller than the batch, and looks at what only that moves.

Three short trainings; about five minutes on two cores.
"""

import json
import math
from collections import defaultdict
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from support import short_training

from data_prep.__main__ import main as prepare_data
from interaction.token_rewards import overlong_penalty
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
    done = short_training.start("recipe.sft", *short)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    (path / "model").symlink_to(warm / "hf")
    return path


def train(folder: Path, name: str, *overrides: str) -> Path:
    given = [f"reward.custom_reward_function.path={folder}/my_reward.py", "trainer.test_freq=-1", *overrides]
    given += [f"actor_rollout_ref.rollout.n={N}", f"data.max_response_length={BUDGET}"]
    return short_training.train(folder, *given, "actor_rollout_ref.actor.ppo_mini_batch_size=2", run=name)


def groups(stage: Path, step: int) -> list[list[dict[str, Any]]]:
    found = defaultdict(list)
    for line in (stage / "rollouts" / "train" / f"{step:06d}.jsonl").read_text().splitlines():
        episode = json.loads(line)
        found[episode["uid"]].append(episode)
    return list(found.values())


DAPO = (
    "algorithm=dapo",
    "algorithm.filter_groups.metric=rare",
    "stage.max_gen_batches=20",
    "algorithm.rollout_correction.rollout_is=token",
    "interaction.overlong.train=false",
    "interaction.overlong.window=0.9",
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


CISPO = (
    "actor_rollout_ref.actor.policy_loss.loss_mode=cispo",
    "actor_rollout_ref.actor.clip_ratio_low=10",
    "actor_rollout_ref.actor.clip_ratio_high=0.02",
)


@pytest.mark.parametrize(
    ("overrides", "scale", "clipped"),
    [
        (["algorithm=gspo", "algorithm.adv_estimator=rloo"], N / (N - 1), 0.01),  # bounds of a mean over an episode
        (["algorithm=dr_grpo", *CISPO], 1.0, 0.0),
    ],
    ids=["gspo, rloo", "cispo, dr_grpo"],
)
def test_other_losses_clip_and_other_estimators_divide_by_no_spread(
    folder: Path, overrides: list[str], scale: float, clipped: float
):
    stage = train(folder, overrides[0].removeprefix("algorithm="), *overrides)
    for step, numbers in read_steps(stage).items():
        assert numbers["actor/pg_clipfrac"] > clipped and numbers["actor/grad_norm"] > 0
        scores = [[episode["score"] for episode in group] for group in groups(stage, step)]
        largest = max(scale * (max(group) - fmean(group)) for group in scores)
        assert numbers["critic/advantages/max"] == pytest.approx(largest, abs=1e-5)
