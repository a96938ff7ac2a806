"""Which steps compute the old log-probabilities with the trainer, and what the others are trained with."""

from math import nan

import pytest
import torch
from omegaconf import OmegaConf
from support.queue import Store, nested
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from recipe.training import old_log_probs
from recipe.training.trainer import Curriculum, CurriculumTrainer

SHORT = torch.tensor([[-0.5, -20.0, -1.0, 0.0], [-3.0, -0.1, 0.0, 0.0]])
MASK = torch.tensor([[1, 1, 0, 0], [1, 0, 0, 0]])
"""Two rows of three tokens of the model's; the rest are the environment's, or padding."""

TRAINERS = {
    "agrees": SHORT + 0.9 * old_log_probs.TOLERANCE * MASK + 5.0 * (1 - MASK),
    "differs": SHORT + 4 * old_log_probs.TOLERANCE * torch.tensor([[0, 0, 0, 0], [1, 0, 0, 0]]),
    "unlikely": SHORT + torch.tensor([[0.0, 0.2, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]),  # a probability of 1e-9
    "nan": SHORT + torch.tensor([[nan, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]),
    "nothing": SHORT.clone(),  # of no token of the model's
}
"""What the trainer computes where the engine has SHORT."""
EVERY_THIRD = "stage.old_log_probs_every=3"
CORRECTION = {"rollout_is": None, "rollout_rs": None, "bypass_mode": False}
POLICY = {"actor": {"ppo_mini_batch_size": 2, "ppo_epochs": 1}, "rollout": {"calculate_log_probs": True}}
CONFIG = {"algorithm": {"rollout_correction": CORRECTION, "use_kl_in_reward": False}, "actor_rollout_ref": POLICY}
CONFIG["data"] = {"train_batch_size": 2}


def run(patch, setting, computes):
    """Steps of the trainer, given what it computes: a letter for whose are stored of each, and what is logged."""
    store, trainer = Store(), CurriculumTrainer.__new__(CurriculumTrainer)
    trainer.config = OmegaConf.merge(CONFIG, OmegaConf.from_dotlist([setting]))
    patch.setattr(old_log_probs, "tq", store)
    whose, logged = "", list[dict[str, float]]()
    for what in computes.split():

        def computed(self, batch, metrics, what=what):
            store.columns["old_log_probs"] = nested(TRAINERS[what])
            return batch

        def advantage(self, batch, metrics):
            metrics.update({"rollout_corr/kl": 0.0, "critic/score/mean": 1.0})
            return batch

        patch.setattr(PPOTrainer, "_compute_old_log_prob", computed)
        patch.setattr(Curriculum, "_compute_advantage", advantage)
        mask = MASK * 0 if what == "nothing" else MASK
        store.columns, store.written = {"rollout_log_probs": nested(SHORT), "response_mask": nested(mask)}, {}
        batch = KVBatchMeta(partition_id="train", keys=["a_0_0", "a_1_0"], tags=[{}, {}])
        logged.append({})
        trainer._compute_advantage(trainer._compute_old_log_prob(batch, logged[-1]), logged[-1])
        whose += "e" if "old_log_probs" in store.written else "t"
    return whose, logged


def test_one_of_so_many_steps_is_measured_after_a_disagreement_the_next_and_some_settings_need_each(monkeypatch):
    for setting, computes, expected in (
        (EVERY_THIRD, "differs differs differs differs", "tttt"),
        (EVERY_THIRD, "differs agrees agrees agrees agrees", "tteet"),
        (EVERY_THIRD, "agrees agrees agrees differs agrees", "teett"),
        (EVERY_THIRD, "unlikely agrees agrees", "tte"),
        (EVERY_THIRD, "nan nan nan", "ttt"),
        (EVERY_THIRD, "nothing agrees agrees", "tte"),
        ("stage.old_log_probs_every=1", "agrees agrees agrees", "ttt"),
        ("algorithm.rollout_correction.rollout_is=token", "agrees agrees", "tt"),
        ("algorithm.rollout_correction.rollout_rs=token_k1", "agrees agrees", "tt"),
        ("algorithm.rollout_correction.bypass_mode=true", "agrees agrees", "tt"),
        ("actor_rollout_ref.rollout.calculate_log_probs=false", "agrees agrees", "tt"),
        ("actor_rollout_ref.actor.ppo_mini_batch_size=1", "agrees agrees", "tt"),
        ("algorithm.use_kl_in_reward=true", "agrees agrees", "tt"),
        ("offline.files=rollouts", "agrees agrees", "tt"),
    ):
        whose, logged = run(monkeypatch, setting, computes)
        measured = old_log_probs.DIFFERENCE in logged[0]
        assert (whose, measured) == (expected, setting == EVERY_THIRD), (setting, computes)
    _, (first, second) = run(monkeypatch, EVERY_THIRD, "agrees agrees")
    assert first.pop(old_log_probs.DIFFERENCE) == pytest.approx(0.9 * old_log_probs.TOLERANCE, rel=1e-3)
    assert first == {"rollout_corr/kl": 0.0, "critic/score/mean": 1.0}
    assert second == {"critic/score/mean": 1.0}, "the two are the same numbers"
