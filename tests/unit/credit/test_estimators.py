"""Estimators: golden vectors, verl's own GAE and GRPO as limits, and a nested loop over steps as independent
judge."""

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from verl.trainer.ppo.core_algos import compute_gae_advantage_return, compute_grpo_outcome_advantage

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


def batch(seed: int, rows: int = 1) -> dict[str, Tensor]:
    """Random episodes of steps and environment tokens, rewards on last tokens only."""
    rng = random.Random(seed)
    widths = []
    for _ in range(rows):
        ids, rewards = [], []
        for k in range(rng.randint(1, 5)):
            ids += [-1] * rng.randint(0 if k == 0 else 1, 4)
            rewards += [0.0] * (len(ids) - len(rewards))
            ids += [k] * rng.randint(1, 6)
            rewards += [0.0] * (len(ids) - len(rewards) - 1) + [rng.choice([0.0, rng.gauss(0, 1)])]
        tail = rng.randint(0, 3)
        widths.append((ids + [-1] * tail, rewards + [0.0] * tail))
    width = max(len(ids) for ids, _ in widths)
    ids = torch.tensor([row + [-1] * (width - len(row)) for row, _ in widths])
    rewards = torch.tensor([row + [0.0] * (width - len(row)) for _, row in widths], dtype=torch.float64)
    values = torch.tensor([[rng.gauss(0, 1) for _ in range(width)] for _ in range(rows)], dtype=torch.float64)
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


@pytest.mark.parametrize("name", ESTIMATORS)
@given(seed=st.integers(0, 10_000), garbage=st.sampled_from([1e6, -3.0, math.inf, math.nan]))
@settings(max_examples=30, deadline=None)
def test_values_on_the_environments_tokens_change_nothing(name: str, seed: int, garbage: float):
    data = batch(seed, rows=3)
    clean = ESTIMATORS[name](data)
    dirty = ESTIMATORS[name](data | {"values": data["values"].masked_fill(data["mask"] == 0, garbage)})
    for before, after in zip(clean, dirty, strict=True):
        assert torch.equal(before, after)
        assert torch.equal(after[data["mask"] == 0], torch.zeros_like(after[data["mask"] == 0]))


@given(seed=st.integers(0, 10_000), gamma=st.floats(0.5, 1), lam=st.floats(0, 1))
@settings(max_examples=30, deadline=None)
def test_with_one_discount_for_all_tokens_it_is_verls_gae(seed: int, gamma: float, lam: float):
    data = batch(seed, rows=4)
    ours = gae_bad(**data, gamma=gamma, lam=lam, gamma_token=gamma, lam_token=lam)
    theirs = compute_gae_advantage_return(data["rewards"], data["values"], data["mask"], gamma, lam)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other * data["mask"], atol=1e-6, rtol=1e-6)


def test_a_reward_on_an_environment_token_is_refused_and_an_episode_without_tokens_of_the_model_gives_zeros():
    data = batch(seed=3, rows=2)
    lost = data | {"rewards": data["rewards"].clone()}
    lost["rewards"][1, (data["mask"][1] == 0).nonzero()[0]] = 0.5
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


# Without a critic.


def episodes(*turns: list[float], length: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """rewards, mask, ids of episodes given by the rewards of their turns; one environment token between turns."""
    width = max(len(turn) for turn in turns) * (length + 1)
    rewards, ids = torch.zeros(len(turns), width), torch.full((len(turns), width), -1)
    for row, values in enumerate(turns):
        for k, value in enumerate(values):
            start = k * (length + 1)
            ids[row, start : start + length] = k
            rewards[row, start + length - 1] = value
    return rewards, (ids >= 0).long(), ids


@given(scores=st.lists(st.floats(-2, 2), min_size=2, max_size=8))
@settings(max_examples=40, deadline=None)
def test_with_one_turn_it_is_verls_grpo(scores: list[float]):
    rewards, mask, ids = episodes(*[[score] for score in scores])
    ours, _ = turn_grpo(rewards, mask, ids, ["a"] * len(scores))
    theirs, _ = compute_grpo_outcome_advantage(rewards, mask, ["a"] * len(scores))
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_going_on_or_stopping_is_judged_by_what_it_brings_not_by_the_number_of_turns():
    advantages, _ = turn_grpo(*episodes([1.0], [0.0], [9.0], [9.0]), ["a", "a", "b", "b"])
    assert advantages[0, 0] > 0 > advantages[1, 0] and advantages[2:].abs().max() == 0, "groups do not mix"
    advantages, _ = turn_grpo(*episodes([1.0], [1.0], [0.5, 0.5], [0.5, 0.5]), [0] * 4)
    assert advantages.abs().max() == 0, "stopping and going on bring the same"
    advantages, _ = turn_grpo(*episodes([1.0], [1.0], [1.0, 0.5], [1.0, 0.5]), [0] * 4)
    assert advantages[2:, 0].min() > 0 > advantages[:2, 0].max(), "what going on earns is in the mean of its turn"
    assert advantages[:, 3:].abs().max() == 0
