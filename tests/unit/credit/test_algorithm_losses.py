"""The losses of docs/algorithms.md with the values of their files: verl's own functions, one property each."""

from functools import cache
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.workers.config import FSDPActorConfig, PolicyLossConfig

from recipe.settings import CONFIG_DIR

LOSSES = ["vanilla", "gspo", "cispo"]


@cache
def settings_of(name: str) -> dict[str, Any]:
    """What the file of an algorithm says about the actor; the recipe's default where there is none."""
    path = CONFIG_DIR / "algorithm" / f"{name}.yaml"
    actor = yaml.safe_load(path.read_text())["actor_rollout_ref"]["actor"] if path.is_file() else {}
    bounds = {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28}
    return {key: float(actor.get(key, value)) for key, value in bounds.items()}


def gradient(
    name: str, new: Tensor, old: Tensor, advantages: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, dict]:
    """Of the loss by the log-probabilities, as a mean over episodes and their tokens; and verl's metrics."""
    config = FSDPActorConfig(
        strategy="fsdp2",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        clip_ratio_c=10.0,
        policy_loss=PolicyLossConfig(loss_mode=name),
        **settings_of(name),
    )
    mask = torch.ones_like(new) if mask is None else mask
    log_prob = new.clone().requires_grad_(True)
    loss, metrics = get_policy_loss_fn(name)(old, log_prob, advantages, mask.bool(), "seq-mean-token-mean", config)
    loss.backward()
    assert log_prob.grad is not None
    return log_prob.grad, metrics


def test_with_one_update_a_step_they_are_all_the_same():
    """Every ratio is 1 then: what docs/algorithms.md calls inert."""
    generator = torch.Generator().manual_seed(0)
    old, advantages = -torch.rand(3, 8, generator=generator), torch.randn(3, 1, generator=generator).expand(3, 8)
    plain, _ = gradient("vanilla", old, old, advantages)
    for name in LOSSES[1:]:
        same, metrics = gradient(name, old, old, advantages)
        torch.testing.assert_close(same, plain)
        assert metrics["actor/pg_clipfrac"] == 0


def test_gspo_clips_a_whole_episode_by_its_mean_and_ppo_one_token():
    old, up = torch.zeros(2, 100), torch.ones(2, 100)
    new = torch.zeros(2, 100)
    new[0] += 0.001  # all tokens a little: a mean of .001, above the bound of .0004
    new[1, 0] = 0.03  # one token much: a mean of .0003
    whole, metrics = gradient("gspo", new, old, up)
    assert not whole[0].any() and whole[1].all()
    assert metrics["actor/pg_clipfrac"] == pytest.approx(0.5)
    new[1, 0] = 0.3
    token, metrics = gradient("vanilla", new, old, up)
    assert token[0].all() and not token[1, 0] and token[1, 1:].all()
    assert metrics["actor/pg_clipfrac"] == pytest.approx(1 / 200)


def test_cispo_bounds_the_weight_of_a_token_and_keeps_its_gradient():
    new, old, up = torch.tensor([[2.0, 0.1, 0.0, -2.0]]), torch.zeros(1, 4), torch.ones(1, 4)
    kept, metrics = gradient("cispo", new, old, up)
    weights = kept / kept[0, 2]
    torch.testing.assert_close(weights, torch.tensor([[1.2, 0.1, 0.0, -2.0]]).where(new > 1, new.exp()))
    assert metrics["actor/pg_clipfrac"] == 0.25, "no lower bound"
    dropped, _ = gradient("vanilla", new, old, up)
    assert dropped[0, 0] == 0


def test_what_the_environment_says_moves_no_ratio():
    """Its tokens have the mask 0; a mean over them too would be another ratio."""
    mask = torch.tensor([[1, 1, 0, 0, 0, 0, 1, 1]])
    old, up = torch.zeros(1, 8), torch.ones(1, 8)
    noisy = torch.where(mask.bool(), torch.tensor(2e-4), torch.tensor(5.0))
    silent = torch.where(mask.bool(), torch.tensor(2e-4), torch.tensor(0.0))
    for name in LOSSES:
        with_noise, metrics = gradient(name, noisy, old, up, mask)
        without, same = gradient(name, silent, old, up, mask)
        torch.testing.assert_close(with_noise, without)
        assert metrics == pytest.approx(same) and not with_noise[0, 2:6].any()
