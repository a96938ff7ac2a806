"""Which steps compute the old log-probabilities with the trainer, and what the others are trained with."""

from math import nan
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from support.queue import Store, nested
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from recipe.training import old_log_probs
from recipe.training.old_log_probs import DIFFERENCE, TOLERANCE
from recipe.training.trainer import Curriculum, CurriculumTrainer

SHORT = torch.tensor([[-0.5, -20.0, -1.0, 0.0], [-3.0, -0.1, 0.0, 0.0]])
MASK = torch.tensor([[1, 1, 0, 0], [1, 0, 0, 0]])
"""Two rows of three tokens of the model's; the rest are the environment's, or padding."""

TRAINERS = {
    "agrees": SHORT + 0.9 * TOLERANCE * MASK + 5.0 * (1 - MASK),
    "differs": SHORT + 4 * TOLERANCE * torch.tensor([[0, 0, 0, 0], [1, 0, 0, 0]]),
    "unlikely": SHORT + torch.tensor([[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]),  # a probability of 1e-9
    "nan": SHORT + torch.tensor([[nan, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]),
    "nothing": SHORT.clone(),  # of no token of the model's
}
"""What the trainer computes where the engine has SHORT."""
CONFIG = {
    "algorithm": {"rollout_correction": {"rollout_is": None, "rollout_rs": None, "bypass_mode": False}},
    "actor_rollout_ref": {"rollout": {"calculate_log_probs": True}},
    "stage": {"old_log_probs_every": 3},
}


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs steps of the trainer, given what it computes: a letter for whose are stored of each, and what is logged."""
    store = Store()
    monkeypatch.setattr(old_log_probs, "tq", store)

    def run(computes: str, *settings: str) -> tuple[str, list[dict[str, float]]]:
        trainer = CurriculumTrainer.__new__(CurriculumTrainer)
        trainer.config = OmegaConf.merge(CONFIG, OmegaConf.from_dotlist(list(settings)))
        whose, logged = "", list[dict[str, float]]()

        def computed(self: Any, batch: Any, metrics: dict) -> Any:
            store.columns["old_log_probs"] = nested(TRAINERS[computes.split()[len(logged)]])
            return batch

        def advantage(self: Any, batch: Any, metrics: dict) -> Any:
            metrics.update({"rollout_corr/kl": 0.0, "critic/score/mean": 1.0})
            return batch

        monkeypatch.setattr(PPOTrainer, "_compute_old_log_prob", computed)
        monkeypatch.setattr(Curriculum, "_compute_advantage", advantage)
        for what in computes.split():
            mask = MASK * 0 if what == "nothing" else MASK
            store.columns, store.written = {"rollout_log_probs": nested(SHORT), "response_mask": nested(mask)}, {}
            metrics: dict[str, float] = {}
            batch = KVBatchMeta(partition_id="train", keys=["a_0_0", "a_1_0"], tags=[{}, {}])
            trainer._compute_advantage(trainer._compute_old_log_prob(batch, metrics), metrics)
            whose += "e" if "old_log_probs" in store.written else "t"
            logged.append(metrics)
        return whose, logged

    return run


def test_of_so_many_steps_one_is_measured_after_a_disagreement_the_next_and_each_where_the_two_differ(steps, capfd):
    every_third = "stage.old_log_probs_every=3"
    for setting, computes, expected in (
        (every_third, "agrees agrees agrees agrees agrees", "teete"),
        (every_third, "differs differs differs differs", "tttt"),
        (every_third, "differs agrees agrees agrees agrees", "tteet"),
        (every_third, "agrees agrees agrees differs agrees", "teett"),
        (every_third, "unlikely agrees agrees", "tte"),
        (every_third, "nan nan nan", "ttt"),
        (every_third, "nothing agrees agrees", "tte"),
        ("stage.old_log_probs_every=1", "agrees agrees agrees", "ttt"),
        ("algorithm.rollout_correction.rollout_is=token", "agrees agrees", "tt"),
        ("algorithm.rollout_correction.rollout_rs=token_k1", "agrees agrees", "tt"),
        ("algorithm.rollout_correction.bypass_mode=true", "agrees agrees", "tt"),
        ("actor_rollout_ref.rollout.calculate_log_probs=false", "agrees agrees", "tt"),
        ("offline.files=rollouts", "agrees agrees", "tt"),
    ):
        assert steps(computes, setting)[0] == expected, (setting, computes)
        why = capfd.readouterr().out.count(f"more than {TOLERANCE:g}")
        assert why == ({*computes.split()} != {"agrees"}), "once"


def test_a_step_that_takes_the_engines_logs_no_comparison_of_the_two(steps):
    _, (first, second) = steps("agrees agrees")
    assert first.pop(DIFFERENCE) == pytest.approx(0.9 * TOLERANCE, rel=1e-3)
    assert first == {"rollout_corr/kl": 0.0, "critic/score/mean": 1.0}
    assert second == {"critic/score/mean": 1.0}
