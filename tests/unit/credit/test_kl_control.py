"""The adaptive KL coefficient follows its target in nats an episode, as TRL's does, and survives a resume."""

from pathlib import Path
from typing import Any

import pytest
import torch
import verl.trainer.ppo.v1.trainer_base as trainer_base
from omegaconf import OmegaConf
from support.queue import Store, nested
from tensordict import NonTensorStack
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

import recipe.training.trainer
from recipe.training.trainer import CurriculumTrainer

LENGTHS = [50, 10, 200, 20]
"""Tokens of the episodes; the environment's are in between, every third one."""
CONFIG = {
    "algorithm": {
        **{"use_kl_in_reward": True, "kl_penalty": "kl", "adv_estimator": "grpo", "gamma": 1.0, "lam": 1.0},
        "credit": {"grouped": None},
        "kl_ctrl": {"type": "adaptive", "kl_coef": 0.3, "target_kl": 6.0, "horizon": 10},
    },
    "actor_rollout_ref": {"rollout": {"n": 2}},
    "interaction": {"overlong": {"train": True}},
    "stage": {"poll_interval": 0.1, "alarms": {}},
}


@pytest.fixture
def make_trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes the trainer as verl does, up to its controller; no workers."""

    def init(self: Any, config: Any) -> None:
        self.config, self.replay_buffer = config, OmegaConf.create({"poll_interval": None})
        self.kl_ctrl_in_reward = trainer_base.core_algos.get_kl_controller(config.algorithm.kl_ctrl)

    monkeypatch.setattr(PPOTrainerSync, "__init__", init)
    monkeypatch.setattr(recipe.training.trainer, "Alarms", lambda _: None)
    trainer = {"default_local_dir": str(tmp_path), "resume_mode": "auto", "resume_from_path": None}
    return lambda: CurriculumTrainer(OmegaConf.create({**CONFIG, "trainer": trainer}))


def play(trainer: Any, monkeypatch: pytest.MonkeyPatch, nats: list[float], padding: int = 0) -> dict[str, float]:
    """A step of four episodes with that KL in all, spread over the model's tokens; returns what is logged."""
    masks = [torch.tensor([int(place % 3 != 2) for place in range(length)]) for length in LENGTHS]
    policy = [nats[row] / mask.sum() * mask + 7.0 * (1 - mask) for row, mask in enumerate(masks)]
    masks += [torch.tensor([0])] * padding
    policy += [torch.tensor([9.0])] * padding

    columns = Store(
        uid=NonTensorStack(*[str(row // 2) for row in range(len(masks))]),
        response_mask=nested(masks),
        rm_scores=nested([torch.rand(len(mask)) for mask in masks]),
        old_log_probs=nested(policy),
        ref_log_prob=nested([torch.zeros(len(mask)) for mask in masks]),
    )
    for module in (recipe.training.trainer, trainer_base):
        monkeypatch.setattr(module, "tq", columns)
    metrics: dict[str, float] = {}
    keys = [f"u{row}_0_0" for row in range(len(masks))]
    assert trainer._compute_advantage(KVBatchMeta(keys=keys, tags=[{}] * len(keys), partition_id="train"), metrics)
    paid = columns.columns["rm_scores"].to_padded_tensor(0.0) - columns.written["token_level_rewards"]
    assert paid.sum().item() == pytest.approx(metrics["actor/reward_kl_penalty_coeff"] * sum(nats), rel=1e-3, abs=1e-3)
    return metrics


def test_the_coefficient_follows_the_kl_of_an_episode_as_trls_does(make_trainer, monkeypatch):
    # after one step of 4 episodes with horizon 10, worked out by hand
    for nats, expected in ((1.2, 0.276), (6.6, 0.312), (400.0, 0.324)):
        trainer = make_trainer()
        assert play(trainer, monkeypatch, [nats] * 4)["actor/reward_kl_penalty_coeff"] == pytest.approx(0.3)
        for _ in range(3):
            metrics = play(trainer, monkeypatch, [nats] * 4)
            assert metrics["actor/reward_kl_penalty_coeff"] == pytest.approx(expected)
            assert metrics["actor/reward_kl_per_episode"] == pytest.approx(nats, rel=1e-5)
            expected *= 1 + min(max(nats / 6.0 - 1, -0.2), 0.2) * 4 / 10  # TRL 0.10.1: AdaptiveKLController.update
    trainer = make_trainer()  # neither the length of an episode counts nor verl's padding
    metrics = play(trainer, monkeypatch, [2.0, 4.0, 6.0, 14.4], padding=2)
    assert metrics["actor/reward_kl_per_episode"] == pytest.approx(6.6)
    trainer.kl_ctrl_in_reward.observe(float("nan"), 4)
    assert trainer.kl_ctrl_in_reward.value == pytest.approx(0.312), "NaN would stay in it"


def test_on_stored_trajectories_the_coefficient_rises_whichever_way_the_policy_has_gone(make_trainer, monkeypatch):
    """There the mean of the log-ratio is below 0 the further the policy is from the start."""
    for nats, coefficient in ((-400.0, 0.324), (0.0, 0.276), (60.0, 0.324)):
        trainer = make_trainer()
        trainer.config.offline = {"files": "rollouts"}
        assert play(trainer, monkeypatch, [nats] * 4)["actor/reward_kl_per_episode"] >= 0
        assert trainer.kl_ctrl_in_reward.value == pytest.approx(coefficient)


def test_a_resumed_run_goes_on_with_the_coefficient_it_had(make_trainer, monkeypatch):
    def load(self: Any) -> None:
        self.global_steps = getattr(self, "found", 0)

    def save(self: Any) -> None:
        folder = Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"
        assert (folder / "kl_coefficient.json").is_file(), "a kill after verl's last file would lose the coefficient"

    monkeypatch.setattr(PPOTrainerSync, "_load_checkpoint", load)
    monkeypatch.setattr(PPOTrainerSync, "_save_checkpoint", save)
    monkeypatch.setattr(recipe.training.trainer, "prune", lambda _: None)
    before, unbroken = make_trainer(), make_trainer()
    for trainer in (before, unbroken):
        for _ in range(3):
            play(trainer, monkeypatch, [400.0] * 4)
    before.global_steps = 3
    before._save_checkpoint()
    play(before, monkeypatch, [400.0] * 4)  # of a step that is lost

    after = make_trainer()
    after.found = 3
    after._load_checkpoint()
    logged = [play(trainer, monkeypatch, [1.2] * 4) for trainer in (after, unbroken)]
    assert logged[0] == logged[1] and logged[0]["actor/reward_kl_penalty_coeff"] == pytest.approx(0.3 * 1.08**3)
