"""How sure a measured number is: 95 % intervals that respect clusters, Student's t, and the unbiased pass@k.

The four categories are the same 200 tasks in four dresses, and samples of one task are even more alike, so results
come in clusters: one per scenario index. An interval that takes them for independent is too narrow. Where each cluster
has one result, as for one category and one sample, everything here is the ordinary formula.
"""

from collections.abc import Hashable, Sequence
from math import comb, sqrt
from statistics import NormalDist, fmean

import numpy as np

Interval = tuple[float, float]

Z = NormalDist().inv_cdf(0.975)
RESAMPLES = 10_000
T_BELOW_10 = (12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157)
"""The 97.5 % points of Student's t with 1 to 9 degrees of freedom."""


def wilson(successes: float, trials: float) -> Interval:
    """Wilson's score interval for a proportion (E. B. Wilson, 1927), 95 %. `trials` may be an effective number."""
    share = successes / trials
    centre = share + Z**2 / (2 * trials)
    half = Z * sqrt(share * (1 - share) / trials + Z**2 / (4 * trials**2))
    scale = 1 + Z**2 / trials
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def effective_trials(values: Sequence[float], clusters: Sequence[Hashable]) -> float:
    """How many independent 0/1 results would be as informative as these, which are alike within a cluster.

    The variance of a simple random sample over that of the clustered one, linearised over clusters (Kish's design
    effect). It lies between the number of clusters and of values; where all values are equal it is that of clusters.
    """
    mean, groups = fmean(values), _sums(values, clusters)
    count = len(groups)
    if count == len(values) or mean in (0.0, 1.0) or count < 2:
        return float(count)
    spread = sum((total - mean * size) ** 2 for total, size in groups)
    variance = spread * count / (count - 1) / len(values) ** 2
    informative = mean * (1 - mean) / variance if variance else len(values)
    return min(float(len(values)), max(float(count), informative))


def proportion_interval(values: Sequence[float], clusters: Sequence[Hashable]) -> Interval:
    """95 % interval for the share of ones in `values`: Wilson's, at the effective number of trials."""
    trials = effective_trials(values, clusters)
    return wilson(fmean(values) * trials, trials)


def mean_interval(values: Sequence[float], clusters: Sequence[Hashable]) -> Interval:
    """95 % interval for the mean of `values` between 0 and 1 that are no proportion, such as progress.

    Percentile bootstrap over whole clusters, with a fixed seed so that the same results give the same interval.
    """
    groups = np.asarray(_sums(values, clusters), dtype=float)
    drawn = np.random.default_rng(0).integers(len(groups), size=(RESAMPLES, len(groups)))
    totals = groups[drawn].sum(axis=1)
    low, high = np.quantile(totals[:, 0] / totals[:, 1], [0.025, 0.975])
    return float(low), float(high)


def t_quantile(degrees: float) -> float:
    """The value that Student's t with `degrees` degrees of freedom, 1 or more, stays below with probability 0.975.

    Below 10 from the table, a fraction rounded down; from 10 on by the expansion in 1 / degrees (Abramowitz and
    Stegun, Handbook of Mathematical Functions, 26.7.5), right to 5 digits.
    """
    if degrees < 10:
        return T_BELOW_10[int(degrees) - 1]
    terms = (
        (Z**3 + Z) / 4,
        (5 * Z**5 + 16 * Z**3 + 3 * Z) / 96,
        (3 * Z**7 + 19 * Z**5 + 17 * Z**3 - 15 * Z) / 384,
        (79 * Z**9 + 776 * Z**7 + 1482 * Z**5 - 1920 * Z**3 - 945 * Z) / 92160,
    )
    return Z + sum(term / degrees**power for power, term in enumerate(terms, 1))


def t_interval(values: Sequence[float], clusters: Sequence[Hashable] | None = None) -> Interval:
    """95 % interval for the mean of `values`, by Student's t over clusters; without clusters each value is one.

    Raises:
        ValueError: fewer than two clusters, which say nothing about their spread.
    """
    mean = fmean(values)
    groups = _sums([value - mean for value in values], range(len(values)) if clusters is None else clusters)
    count = len(groups)
    if count < 2:
        raise ValueError("an interval needs at least two values, of two clusters")
    spread = sum(total**2 for total, _ in groups) * count / (count - 1)
    half = t_quantile(count - 1) * sqrt(spread) / len(values)
    return mean - half, mean + half


def pass_at_k(samples: int, passed: int, k: int) -> float:
    """Chance that at least one of `k` samples of a task passes, from `passed` of `samples` that did: unbiased.

    1 - C(n - c, k) / C(n, k), by M. Chen et al., Evaluating Large Language Models Trained on Code, 2021.
    """
    return 1.0 - pass_all_k(samples, samples - passed, k)


def pass_all_k(samples: int, passed: int, k: int) -> float:
    """Chance that all of `k` samples of a task pass: unbiased; pass^k.

    C(c, k) / C(n, k), by S. Yao et al., tau-bench, 2024.
    """
    if not 0 < k <= samples:
        raise ValueError(f"k={k} needs at least {k} samples of each task, there are {samples}")
    return comb(passed, k) / comb(samples, k)


def _sums(values: Sequence[float], clusters: Sequence[Hashable]) -> list[tuple[float, int]]:
    """Sum and number of the values of each cluster."""
    groups: dict[Hashable, list[float]] = {}
    for value, cluster in zip(values, clusters, strict=True):
        groups.setdefault(cluster, []).append(value)
    return [(sum(items), len(items)) for items in groups.values()]
