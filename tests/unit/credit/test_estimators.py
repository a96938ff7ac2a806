"""Estimators against their definitions, written as nested loops, and verl's own GRPO as a limit."""

import itertools
import math
import random
from statistics import fmean

import numpy as np
import pytest
import torch
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

from recipe.credit import steps
from recipe.credit.estimators import gae_bad, gae_step, turn_grpo


def batch(seed, rows):
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


def nested(data, row, gamma, lam, gamma_token, lam_token):
    """Advantages and returns of one episode's tokens, then of its steps: the definition, from the end, not the scan."""
    ids, r, v = (data[name][row].tolist() for name in ("ids", "rewards", "values"))
    tokens, returns, of_steps, step_returns = found = [[0.0] * len(ids) for _ in range(4)]
    token = whole = value = 0.0
    for k in reversed(range(max(ids) + 1)):
        step = [t for t, i in enumerate(ids) if i == k]
        whole = sum(r[t] for t in step) + gamma * value - v[step[0]] + gamma * lam * whole
        discount, trace = gamma, gamma * lam
        for t in reversed(step):
            token = r[t] + discount * value - v[t] + trace * token
            discount, trace, value = gamma_token, gamma_token * lam_token, v[t]
            tokens[t], returns[t] = token, token + v[t]
            of_steps[t], step_returns[t] = whole, whole + v[step[0]]
    return found


def test_random_episodes_agree_with_a_nested_loop_over_steps():
    data = batch(seed=7, rows=100)
    options = {"gamma": 0.97, "lam": 0.9, "gamma_token": 0.99, "lam_token": 0.8}
    found = *gae_bad(**data, **options, whiten=False), *gae_step(**data, gamma=0.97, lam=0.9, whiten=False)
    for row in range(100):
        for ours, expected in zip(found, nested(data, row, **options), strict=True):
            assert ours[row].tolist() == pytest.approx(expected, abs=1e-9)


def compared(data, groups, gamma, norm_by_std):
    """The return from each turn on, less its mean over the group's episodes that reached the turn: the definition."""
    ids, rewards = data["ids"].tolist(), data["rewards"].tolist()
    futures, found = list[list[float]](), list[list[float]]()
    for numbers, row in zip(ids, rewards, strict=True):
        earned = [sum(r for r, i in zip(row, numbers, strict=True) if i == k) for k in range(max(numbers) + 1)]
        futures.append([sum(r * gamma**n for n, r in enumerate(earned[k:])) for k in range(len(earned))])
    for number, group in enumerate(groups):
        siblings = [future for future, other in zip(futures, groups, strict=True) if other == group]
        reached = [[one[k] for one in siblings if k < len(one)] for k in range(max(map(len, siblings)))]
        apart = [[r - fmean(turn) for r in turn] for turn in reached]
        spread = sum(d * d for turn in apart for d in turn) / max(sum(len(turn) - 1 for turn in reached), 1)
        scale = math.sqrt(spread) + 1e-6 if norm_by_std else 1.0
        found.append([(futures[number][k] - fmean(reached[k])) / scale if k >= 0 else 0.0 for k in ids[number]])
    return found


def test_turns_are_compared_within_their_group_and_single_ones_as_by_verls_grpo():
    groups = "abbcccdddddee"
    for seed, gamma, norm_by_std in itertools.product(range(8), (1.0, 0.8), (True, False)):
        data = batch(seed, len(groups))
        rewards, mask, ids = data["rewards"], data["mask"], data["ids"]
        rewards[-2:] *= 0  # equal ones
        found, _ = turn_grpo(rewards, mask, ids, groups, gamma=gamma, norm_by_std=norm_by_std)
        torch.testing.assert_close(found, torch.tensor(compared(data, groups, gamma, norm_by_std)), check_dtype=False)
        assert not found[[0, -2, -1]].any(), "one alone is compared with nothing"
        ours, _ = turn_grpo(rewards, mask, ids.clamp(max=0), groups)
        theirs, _ = compute_grpo_outcome_advantage(rewards, mask, np.array([*groups]))
        torch.testing.assert_close(ours[1:], theirs[1:], atol=1e-5, rtol=1e-5, check_dtype=False)


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
        for rows in (padding, {key: value[-1:] for key, value in padding.items()}):
            assert not estimate(rows)[0][-1].any(), name


def test_tokens_or_steps_are_whitened_each_with_the_same_weight_and_a_single_one_stays():
    data = batch(seed=11, rows=20)
    tokens, whole = (ESTIMATORS[name](data)[0] for name in ("gae_bad", "gae_step"))
    for values in (tokens[data["mask"] > 0], whole[steps.firsts(data["ids"])]):
        assert (values.mean().item(), values.std().item()) == pytest.approx((0, 1), abs=1e-6)
    for rewards, expected in (([0.3], [0.3]), ([0.3, 0.9], [-math.sqrt(0.5), math.sqrt(0.5)]), ([0.5, 0.5], [0, 0])):
        row = torch.tensor([rewards])
        few = row, 0 * row, torch.ones_like(row).long(), torch.arange(row.shape[1])[None]
        for estimate in (gae_bad, gae_step):
            assert estimate(*few, gamma=0.0, lam=0.0)[0][0].tolist() == pytest.approx(expected)
