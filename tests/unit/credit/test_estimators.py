"""Estimators: golden vectors, verl's own GRPO as a limit, and a nested loop over steps as independent judge."""

import itertools
import math
import random

import pytest
import torch
from torch import Tensor
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

from recipe.credit import steps
from recipe.credit.estimators import gae_bad, gae_step, turn_grpo

MASK = torch.tensor([[1, 1, 1, 0, 0, 1, 1, 0, 1, 1]])
IDS = torch.tensor([[0, 0, 0, -1, -1, 1, 1, -1, 2, 2]])
REWARDS = torch.tensor([[0, 0, 0.2, 0, 0, 0, -0.1, 0, 0, 1]])
VALUES = torch.tensor([[0.5, 0.4, 0.3, 9, 9, 0.6, 0.5, 9, 0.7, 0.8]])

GOLDEN = {
    # gamma_token, lam_token, advantages
    "bad": (1.0, 1.0, [0.482764, 0.582764, 0.682764, 0, 0, 0.23575, 0.33575, 0, 0.3, 0.2]),
    "bad, lambda .95 inside": (1.0, 0.95, [0.400538, 0.526882, 0.659876, 0, 0, 0.210389, 0.326725, 0, 0.29, 0.2]),
    "naive": (0.95, 0.95, [0.254263, 0.414695, 0.58692, 0, 0, 0.129551, 0.282051, 0, 0.2405, 0.2]),
}


def test_advantages_are_the_golden_ones():
    for gamma, lam, expected in GOLDEN.values():
        inside = {"gamma_token": gamma, "lam_token": lam}
        advantages, returns = gae_bad(REWARDS, VALUES, MASK, IDS, gamma=0.95, lam=0.95, whiten=False, **inside)
        torch.testing.assert_close(advantages, torch.tensor([expected]), atol=2e-6, rtol=0)
        torch.testing.assert_close(returns, (advantages + VALUES) * MASK)
    advantages, returns = gae_step(REWARDS, VALUES, MASK, IDS, gamma=0.95, lam=0.95, whiten=False)
    expected = [0.482764] * 3 + [0, 0] + [0.23575] * 2 + [0] + [0.3] * 2
    torch.testing.assert_close(advantages, torch.tensor([expected]), atol=2e-6, rtol=0)
    value_at_first = torch.tensor([[0.5, 0.5, 0.5, 0, 0, 0.6, 0.6, 0, 0.7, 0.7]])
    torch.testing.assert_close(returns, advantages + value_at_first)


def batch(seed: int, rows: int) -> dict[str, Tensor]:
    """Random episodes of steps and environment tokens, rewards on last tokens only."""
    rng, width = random.Random(seed), 50
    ids = torch.full((rows, width), -1)
    rewards = torch.zeros(rows, width, dtype=torch.float64)
    for row in range(rows):
        end = 0
        for k in range(rng.randint(1, 5)):
            start = end + rng.randint(0 if k == 0 else 1, 4)
            end = start + rng.randint(1, 6)
            ids[row, start:end] = k
            rewards[row, end - 1] = rng.choice([0.0, rng.gauss(0, 1)])
    values = torch.randn(rows, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return {"rewards": rewards, "values": values, "mask": (ids >= 0).long(), "ids": ids}


def nested(data: dict[str, Tensor], row: int, gamma: float, lam: float, gamma_token: float, lam_token: float):
    """Advantages of one episode, step by step from the end: the definition, not the scan."""
    ids = data["ids"][row].tolist()
    positions = [[t for t, i in enumerate(ids) if i == k] for k in range(max(ids) + 1)]
    r, v = data["rewards"][row].tolist(), data["values"][row].tolist()
    tokens, of_steps = [0.0] * len(ids), [0.0] * len(ids)
    token_after = step_after = value_after = 0.0
    for step in reversed(positions):
        for j in reversed(range(len(step))):
            t = step[j]
            if j == len(step) - 1:
                tokens[t] = r[t] + gamma * value_after - v[t] + gamma * lam * token_after
            else:
                u = step[j + 1]
                tokens[t] = r[t] + gamma_token * v[u] - v[t] + gamma_token * lam_token * tokens[u]
        first = step[0]
        whole = sum(r[t] for t in step) + gamma * value_after - v[first] + gamma * lam * step_after
        for t in step:
            of_steps[t] = whole
        token_after, step_after, value_after = tokens[first], whole, v[first]
    return tokens, of_steps


def test_two_hundred_random_episodes_agree_with_a_nested_loop_over_steps():
    data = batch(seed=7, rows=200)
    options = {"gamma": 0.97, "lam": 0.9, "gamma_token": 0.99, "lam_token": 0.8}
    tokens, _ = gae_bad(**data, **options, whiten=False)
    whole, _ = gae_step(**data, gamma=0.97, lam=0.9, whiten=False)
    for row in range(200):
        expected = nested(data, row, **options)
        assert tokens[row].tolist() == pytest.approx(expected[0], abs=1e-9)
        assert whole[row].tolist() == pytest.approx(expected[1], abs=1e-9)


ESTIMATORS = {
    "gae_bad": lambda data: gae_bad(**data, gamma=0.95, lam=0.9),
    "gae_step": lambda data: gae_step(**data, gamma=0.95, lam=0.9),
    "turn_grpo": lambda data: turn_grpo(data["rewards"], data["mask"], data["ids"], [0] * len(data["mask"]), gamma=0.9),
}


def test_values_of_the_environment_and_empty_episodes_change_nothing_and_its_rewards_are_refused():
    data = batch(seed=3, rows=2)
    others = data["mask"] == 0
    for estimate, garbage in itertools.product(ESTIMATORS.values(), (1e6, math.inf, math.nan)):
        dirty = estimate(data | {"values": data["values"].masked_fill(others, garbage)})
        for before, after in zip(estimate(data), dirty, strict=True):
            assert torch.equal(before, after) and not after[others].any()
    lost = data | {"rewards": data["rewards"].clone()}
    lost["rewards"][1, others[1].nonzero()[0]] = 0.5
    pad = torch.nn.functional.pad
    padding = {name: pad(value, (0, 0, 0, 1), value=-1 if name == "ids" else 0) for name, value in data.items()}
    for name, estimate in ESTIMATORS.items():
        with pytest.raises(ValueError, match="episode 1 .* reward of 0.5 on tokens that are not the model's"):
            estimate(lost)
        assert not estimate(padding)[0][-1].any(), name


def test_steps_are_whitened_each_with_the_same_weight():
    data = batch(seed=11, rows=20)
    advantages, _ = gae_step(**data, gamma=0.95, lam=0.95)
    of_steps = advantages[steps.firsts(data["ids"])]
    assert of_steps.mean().item() == pytest.approx(0, abs=1e-6)
    assert of_steps.std().item() == pytest.approx(1, abs=1e-6)


def episodes(*turns: list[float]) -> tuple[Tensor, Tensor, Tensor]:
    """rewards, mask, ids of episodes given by the rewards of their turns; one environment token between turns."""
    width = max(len(turn) for turn in turns) * 3
    rewards, ids = torch.zeros(len(turns), width), torch.full((len(turns), width), -1)
    for row, values in enumerate(turns):
        for k, value in enumerate(values):
            ids[row, 3 * k : 3 * k + 2] = k
            rewards[row, 3 * k + 1] = value
    return rewards, (ids >= 0).long(), ids


def test_with_one_turn_it_is_verls_grpo():
    rewards, mask, ids = episodes([0.3], [-1.5], [2.0], [0.3], [1.0], [1.0])
    ours, _ = turn_grpo(rewards, mask, ids, list("aaaabb"))
    theirs, _ = compute_grpo_outcome_advantage(rewards, mask, list("aaaabb"))
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_going_on_or_stopping_is_judged_by_what_it_brings_not_by_the_number_of_turns():
    advantages, _ = turn_grpo(*episodes([1.0], [0.0], [9.0], [9.0]), ["a", "a", "b", "b"])
    assert advantages[0, 0] > 0 > advantages[1, 0] and advantages[2:].abs().max() == 0, "groups do not mix"
    advantages, _ = turn_grpo(*episodes([1.0], [1.0], [0.5, 0.5], [0.5, 0.5]), [0] * 4)
    assert advantages.abs().max() == 0, "stopping and going on bring the same"
    advantages, _ = turn_grpo(*episodes([1.0], [1.0], [1.0, 0.5], [1.0, 0.5]), [0] * 4)
    assert advantages[2:, 0].min() > 0 > advantages[:2, 0].max(), "what going on earns is in the mean of its turn"
    assert advantages[:, 3:].abs().max() == 0
