"""Advantages of tokens from rewards and values, for episodes of several steps. Pure functions of tensors.

verl's own GAE has one discount for all tokens, so credit for a reward shrinks with the length of a step, and its
GRPO gives every step of an episode the same credit. Here a step, one message of the model, is an action.

Shapes: B episodes, T response tokens. `rewards`, `values` and the results are float (B, T); `mask` is 1 on tokens of
the model; `ids` (B, T) number each token's step, rising in a row, -1 where the mask is 0. `values[:, t]` is the
value before token t. Tokens with mask 0 are transparent: no discount, no error of the value there, whatever stands
on them. A reward on one of them would be lost, so each estimator raises ValueError for it.

After the last token the value is 0, also for an episode that was cut: verl has no value for the state after it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from recipe.credit import steps

ROUNDING = 1e-6
"""What differs by a smaller share of the rewards is equal: so far apart are sums in float32 that should be the same."""


def scores_of(rewards: Tensor, groups: Sequence[object]) -> Tensor:
    """Scores of episodes, (B, 1), in float64: the mean of equal ones is exact. Equal ones are their group's first."""
    first = dict[object, int]()
    others = [first.setdefault(group, row) for row, group in enumerate(groups)]
    scores, sizes = rewards.double().sum(1, keepdim=True), rewards.double().abs().sum(1, keepdim=True)
    equal = (scores - scores[others]).abs() <= ROUNDING * torch.maximum(sizes, sizes[others])
    return torch.where(equal, scores[others], scores)


def gae_bad(
    rewards: Tensor,
    values: Tensor,
    mask: Tensor,
    ids: Tensor,
    *,
    gamma: float,
    lam: float,
    gamma_token: float = 1.0,
    lam_token: float = 1.0,
    whiten: bool = True,
) -> tuple[Tensor, Tensor]:
    """Token advantages by Bellman backup with action decomposition (POAD, arXiv 2405.15821, equations 13 and 14).

    From a token to the next of the same step `gamma_token` and `lam_token` hold, from the last token of a step
    to the first of the next one `gamma` and `lam`. With `gamma_token=gamma`, `lam_token=lam` this is verl's GAE.

    Returns:
        advantages and returns (targets of the values), both 0 where the mask is 0. Whitened over tokens, the returns
        not.
    """
    mask = _checked(rewards, mask)
    across = rewards.new_tensor([gamma, gamma * lam])
    within = rewards.new_tensor([gamma_token, gamma_token * lam_token])
    next_value, last = rewards.new_zeros(2, len(rewards))
    next_id, columns = ids.new_full((len(ids),), -1), []
    for t in reversed(range(rewards.shape[1])):
        here, crosses = mask[:, t], ids[:, t] != next_id
        discount, trace = torch.where(crosses, across[:, None], within[:, None])
        advantage = rewards[:, t] + discount * next_value - values[:, t] + trace * last
        next_value = torch.where(here, values[:, t], next_value)
        last = torch.where(here, advantage, last)
        next_id = torch.where(here, ids[:, t], next_id)
        columns.append(torch.where(here, advantage, 0.0))
    advantages = torch.stack(columns[::-1], dim=1)
    returns = torch.where(mask, advantages + values, 0.0)
    return (_whitened(advantages, mask) if whiten else advantages), returns


def gae_step(
    rewards: Tensor, values: Tensor, mask: Tensor, ids: Tensor, *, gamma: float, lam: float, whiten: bool = True
) -> tuple[Tensor, Tensor]:
    """GAE over whole steps: each is one action of the decision process, with the value before its first token.

    All tokens of a step have its advantage, and as target of their values its advantage plus that value. Whitened
    over steps: over tokens, long ones would decide mean and variance.

    Returns:
        advantages and returns, both 0 where the mask is 0.
    """
    _checked(rewards, mask)
    reward, there = steps.sums(rewards, ids), steps.sizes(ids) > 0
    value = steps.sums(torch.where(steps.firsts(ids), values, 0.0), ids)
    advantages, returns = gae_bad(reward, value, there, _numbers(there), gamma=gamma, lam=lam, whiten=whiten)
    return steps.spread(advantages, ids), steps.spread(returns, ids)


def turn_grpo(
    rewards: Tensor,
    mask: Tensor,
    ids: Tensor,
    groups: Sequence[object],
    *,
    gamma: float = 1.0,
    norm_by_std: bool = True,
    epsilon: float = 1e-6,
) -> tuple[Tensor, Tensor]:
    """Advantages without a critic: what came from a turn on, against the same turn in the group's other episodes.

    The return from turn k on is compared with its mean over the episodes of the group that reached turn k; a turn
    that one episode alone reached gets 0. Comparing the rewards of single turns and adding the differences up would be
    biased: the number of baselines depends on where the episode itself stopped, which rewards or punishes stopping
    (verl issue 7244). Differences are divided by one standard deviation for the whole group, so a turn in which nothing
    differed much stays small. With a single turn this is verl's GRPO.

    Args:
        ids: turn of each token; the same number is the same turn in all episodes of a group.
        groups: for each episode, what tells its group.

    Returns:
        advantages (B, T), twice: verl asks for returns too, and nothing reads them without a critic.
    """
    _checked(rewards, mask)
    reward, there = steps.sums(rewards, ids), steps.sizes(ids) > 0
    # without values, a GAE with lam=1 is the return
    future, _ = gae_bad(reward, torch.zeros_like(reward), there, _numbers(there), gamma=gamma, lam=1.0, whiten=False)
    advantages = torch.zeros_like(future)
    members: dict[object, list[int]] = {}
    for row, group in enumerate(groups):
        members.setdefault(group, []).append(row)
    for rows in members.values():
        reached = there[rows].to(future.dtype)
        number = reached.sum(0)
        mean = (future[rows] * reached).sum(0) / number.clamp(min=1)
        difference = (future[rows] - mean) * reached
        difference = difference.masked_fill(difference.abs() <= ROUNDING * rewards[rows].abs().sum(1).max(), 0)
        if norm_by_std:
            freedom = (number - 1).clamp(min=0).sum().clamp(min=1)
            difference = difference / ((difference.square().sum() / freedom).sqrt() + epsilon)
        advantages[rows] = difference
    spread = steps.spread(advantages, ids)
    return spread, spread


def _numbers(there: Tensor) -> Tensor:
    """The number of each step or turn, (B, K): for `gae_bad` each is a step of one token."""
    return torch.arange(there.shape[1], device=there.device).expand_as(there)


def _checked(rewards: Tensor, mask: Tensor) -> Tensor:
    """The mask as booleans, after a look that no reward would be lost."""
    mask = mask.bool()
    lost = torch.where(mask, torch.zeros_like(rewards), rewards)
    if lost.any():
        row = int(lost.abs().sum(1).argmax())
        there = f"a reward of {lost[row].sum().item():.4g} on tokens that are not the model's"
        raise ValueError(f"episode {row} of the batch has {there}. Put each on the last token of a step.")
    return mask


def _whitened(values: Tensor, mask: Tensor) -> Tensor:
    """Mean 0 and variance 1 over `mask`, as verl whitens; 0 elsewhere. A single value has no variance and stays."""
    number = mask.sum()
    if number < 2:
        return values
    mean = values.masked_fill(~mask, 0).double().sum() / number
    centred = (values - mean).masked_fill(~mask, 0)
    return centred * torch.rsqrt(centred.square().sum() / (number - 1) + 1e-8)
