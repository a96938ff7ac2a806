"""Sums over steps: a step is one message of the model, a stretch of tokens that one decision produced. It is the action
of the decision process.

Tokens carry the number of their step; tokens of the environment carry -1. All functions take rows of a padded batch,
shape (B, T), and give one number a step, shape (B, K), where K is the largest number of steps in a row. With the
numbers of user turns on the tokens they sum over turns.
"""

import torch
from torch import Tensor


def runs(mask: Tensor) -> Tensor:
    """Numbers of the runs of ones in `mask` (B, T), from 0 in each row, and -1 where the mask is 0.

    These are the steps only where two steps never touch. Between two steps of the agent loop stand always
    tokens of the environment, if only those that close the first one and open the second.
    """
    mask = mask.bool()
    starts = mask & ~torch.nn.functional.pad(mask, (1, 0))[:, :-1]
    return torch.where(mask, starts.long().cumsum(1) - 1, -1)


def sums(values: Tensor, ids: Tensor) -> Tensor:
    """Sum of `values` (B, T) over the tokens of each step, (B, K). Other tokens, NaN included, are left out."""
    return values.new_zeros(len(values), max(int(ids.max()), 0) + 2).scatter_add(1, ids + 1, values)[:, 1:]


def sizes(ids: Tensor) -> Tensor:
    """Number of tokens of each step, (B, K); 0 for a number that no token has."""
    return sums(torch.ones_like(ids), ids)


def firsts(ids: Tensor) -> Tensor:
    """Whether a token is the first one of its step, (B, T)."""
    before = torch.nn.functional.pad(ids, (1, 0), value=-1)[:, :-1].cummax(1).values
    return ids > before


def spread(values: Tensor, ids: Tensor) -> Tensor:
    """The number of its step, of `values` (B, K), on every token, (B, T); 0 on tokens of no step."""
    return torch.where(ids >= 0, values.gather(1, ids.clamp(min=0)), 0.0)
