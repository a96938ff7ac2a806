"""How sure a measured number is: the one 95 % interval of this project, and the unbiased pass@k and pass^k.

The four categories of BFCL are the same 200 tasks in four dresses, and samples of one task are even more alike, so
results come in clusters. Several runs of one experiment are seeds. An interval that takes either for independent is
too narrow.
"""

from collections.abc import Hashable, Iterable, Sequence
from math import comb, sqrt
from statistics import NormalDist

import numpy as np

Interval = tuple[float, float]
SHARE, CHANGE = (0.0, 1.0), (-1.0, 1.0)
"""The bounds of a share, and of the difference of two."""

Z = NormalDist().inv_cdf(0.975)
T_TO_10 = (12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157, 2.228139)
"""The 97.5 % points of Student's t with 1 to 10 degrees of freedom."""
NOTHING = 1e-9
"""A difference that is rounding and no more."""


def brackets(sure: Interval | None, form: str = "+.3f", times: float = 1) -> str:
    """An interval in brackets, its bounds so many times as large; nothing where there is none."""
    return "" if sure is None else f" [{times * sure[0]:{form}}, {times * sure[1]:{form}}]"


def wilson(share: float, trials: float, quantile: float = Z) -> Interval:
    """Wilson's score interval for a share (E. B. Wilson, 1927), 95 %. `trials` may be an effective number."""
    centre = share + quantile**2 / (2 * trials)
    half = quantile * sqrt(share * (1 - share) / trials + quantile**2 / (4 * trials**2))
    scale = 1 + quantile**2 / trials
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def t_quantile(degrees: float) -> float:
    """The value that Student's t with `degrees` degrees of freedom, 1 or more, stays below with probability 0.975.

    Below 10 from the table, between two of its numbers a little too large; from 10 on by the expansion in 1 / degrees
    (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5), right to 5 digits.
    """
    if degrees < 10:
        return float(np.interp(-1 / degrees, [-1 / known for known in range(1, 11)], T_TO_10))
    terms = (
        (Z**3 + Z) / 4,
        (5 * Z**5 + 16 * Z**3 + 3 * Z) / 96,
        (3 * Z**7 + 19 * Z**5 + 17 * Z**3 - 15 * Z) / 384,
        (79 * Z**9 + 776 * Z**7 + 1482 * Z**5 - 1920 * Z**3 - 945 * Z) / 92160,
    )
    return Z + sum(term / degrees**power for power, term in enumerate(terms, 1))


def interval(
    values: Sequence[float],
    clusters: Iterable[Hashable],
    seeds: Iterable[Hashable] | None = None,
    bounds: Interval | None = None,
) -> Interval | None:
    """95 % interval for a mean of `values` that covers other tasks and, where there are several seeds, other seeds.

    Each seed's mean counts the same. The variance is that over clusters, plus that over seeds, minus that over their
    cells, which is in both (A. C. Cameron, J. B. Gelbach and D. L. Miller, Robust Inference with Multiway Clustering,
    2011), and at least the larger of the two. Degrees of freedom are Satterthwaite's.

    Args:
        clusters: of each value. Clusters of one name are one cluster in all seeds.
        seeds: of each value; None where there is one.
        bounds: the least and the largest that a value can be. With them the interval is Wilson's, at the number of
            trials that would have this variance (E. L. Korn and B. I. Graubard, 1998), and never passes them; without
            them Student's t.

    Returns:
        None where the values do not show how far they spread: they are of one cluster and one seed, or all alike
        within the bounds.
    """
    cluster, seed = _numbered(clusters), _numbered([0] * len(values) if seeds is None else seeds)
    weights = 1 / (np.bincount(seed)[seed] * (seed.max() + 1))
    mean = float(weights @ values)
    cells = np.zeros((cluster.max() + 1, seed.max() + 1))
    np.add.at(cells, (cluster, seed), weights * (np.asarray(values) - mean))
    shares = np.bincount(cluster, weights), np.bincount(seed, weights)
    parts = [_variance(cells.sum(1 - axis), shares[axis]) for axis in (0, 1) if cells.shape[axis] > 1]
    if not parts:
        return None
    if len(parts) == 2:
        there = np.zeros(cells.shape, bool)
        there[cluster, seed] = True
        parts.append(_variance_of_cells(cells, there))
    return _around(mean, parts, len(cells), bounds)


def of_difference(a: np.ndarray, b: np.ndarray, clusters: Iterable[Hashable]) -> Interval | None:
    """95 % interval for how far the mean share of recipe `b` is above that of `a`, (seeds, tasks) of the same tasks.

    As `interval`: the variance is that over clusters of the differences, plus that over the seeds of each, minus those
    over their cells. Assumed: all seeds are independent, and a recipe with one seed spreads over seeds as the other
    does. With one seed each, the interval is over tasks alone. None where the tasks are of one cluster, too.
    """
    cluster = _numbered(clusters)
    cells = [np.stack([np.bincount(cluster, row) for row in one - one.mean()], 1) / one.size for one in (a, b)]
    if len(cells[0]) == 1:
        return None
    parts = [_variance(cells[1].sum(1) - cells[0].sum(1), np.bincount(cluster) / len(cluster))]
    if several := [one for one in cells if one.shape[1] > 1]:
        over_seeds = _sum([_variance(one.sum(0), np.full(one.shape[1], 1 / one.shape[1])) for one in several])
        over_cells = _sum([_variance_of_cells(one, np.ones(one.shape, bool)) for one in several])
        scale = 1 if len(several) == 2 else 1 + several[0].shape[1]  # of one seed: as often that of a mean over these
        parts += [(scale * variance, free) for variance, free in (over_seeds, over_cells)]
    return _around(float(b.mean() - a.mean()), parts, len(cells[0]), CHANGE)


def _around(mean: float, parts: list[tuple[float, float]], clusters: int, bounds: Interval | None) -> Interval | None:
    if sum(variance for variance, _ in parts) <= max(parts)[0] * (1 + NOTHING):
        parts = [max(parts)]
    variance, free = _sum(parts)
    moved, quantile = variance > NOTHING**2, t_quantile(free)
    if bounds is None:
        return (mean - quantile * sqrt(variance), mean + quantile * sqrt(variance)) if moved else None
    low, width = bounds[0], bounds[1] - bounds[0]
    share = min(1.0, max(0.0, (mean - low) / width))
    inside = share * (1 - share) > NOTHING
    if inside and not moved:
        return None
    trials = share * (1 - share) * width**2 / variance if inside else clusters
    return tuple(low + width * end for end in wilson(share, trials, quantile))  # type: ignore[return-value]


def _sum(parts: list[tuple[float, float]]) -> tuple[float, float]:
    """Of variances with their degrees of freedom; those of the sum are Satterthwaite's."""
    variance = sum(part for part, _ in parts)
    moved = abs(variance) > NOTHING**2
    return variance, variance**2 / sum(part**2 / free for part, free in parts) if moved else parts[0][1]


def _numbered(names: Iterable[Hashable]) -> np.ndarray:
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in names])


def _variance(totals: np.ndarray, shares: np.ndarray) -> tuple[float, float]:
    """Variance of the sum of independent totals, each with this share of the weight, and its degrees of freedom."""
    return float((totals**2 / (1 - shares)).sum()), 1 / float((shares**2).sum()) - 1


def _variance_of_cells(cells: np.ndarray, there: np.ndarray) -> tuple[float, float]:
    """Minus the variance over cells, (clusters, seeds): around the mean of a cluster that several seeds have."""
    seeds = there.sum(1, keepdims=True)
    apart = np.where(seeds > 1, there * (cells - cells.sum(1, keepdims=True) / seeds), cells)
    variance = float((apart**2 * np.where(seeds > 1, seeds / np.maximum(seeds - 1, 1), 1)).sum())
    return -variance, max(there.sum() - len(cells) - cells.shape[1] + 1, len(cells) - 1)


def pass_at_k(samples: int, passed: int, k: int) -> float:
    """Chance that at least one of `k` samples of a task passes, from `passed` of `samples` that did: unbiased.

    1 - C(n - c, k) / C(n, k), by M. Chen et al., Evaluating Large Language Models Trained on Code, 2021.
    """
    return 1.0 - pass_all_k(samples, samples - passed, k)


def pass_all_k(samples: int, passed: int, k: int) -> float:
    """Chance that all of `k` samples of a task pass: unbiased; pass^k.

    C(c, k) / C(n, k), by S. Yao et al., tau-bench, 2024.
    """
    return comb(passed, k) / comb(samples, k)
