"""Intervals against published values, and on data whose truth is known."""

import itertools
from collections.abc import Callable
from statistics import fmean

import numpy as np
import pytest
from mpmath import betainc

from recipe.evaluation import intervals
from recipe.evaluation.intervals import CHANGE, SHARE, interval, pass_all_k, pass_at_k, t_quantile, wilson

NEWCOMBE = {(81, 263): (0.2553, 0.3662), (15, 148): (0.0624, 0.1605), (0, 20): (0, 0.1611), (1, 29): (0.0061, 0.1718)}
"""R. G. Newcombe, Statistics in Medicine 17, 1998, table I, method 3."""


def test_independent_results_give_the_ordinary_intervals_and_copies_count_once():
    for (successes, trials), expected in NEWCOMBE.items():
        assert wilson(successes / trials, trials) == pytest.approx(expected, abs=5e-5)
    values = [1.0] * 81 + [0.0] * 182
    assert interval(values, range(263), bounds=SHARE) == pytest.approx(NEWCOMBE[81, 263], abs=1e-3)
    half = t_quantile(262) * float(np.std(values, ddof=1)) / 263**0.5
    assert interval(values, range(263)) == pytest.approx((fmean(values) - half, fmean(values) + half))
    fourfold = [value for value in values for _ in range(4)]
    clusters = [index for index in range(263) for _ in range(4)]
    assert interval(fourfold, clusters, bounds=SHARE) == pytest.approx(interval(values, range(263), bounds=SHARE))
    thrice = interval(values * 3, [*range(263)] * 3, [seed for seed in range(3) for _ in range(263)], SHARE)
    assert thrice == pytest.approx(interval(values, range(263), bounds=SHARE)), "seeds that agree add nothing"


def test_students_t_is_that_of_its_distribution() -> None:
    for degrees, most in ((1, 0), (0.9999999, 1e-6), (1.5, 0.02), (2.9, 0.01), (4, 0), (12.5, 0), (200, 0)):
        t = t_quantile(degrees)
        outside = float(betainc(degrees / 2, 0.5, 0, degrees / (degrees + t * t), regularized=True))
        assert 0.05 - most - 2e-6 <= outside <= 0.05 + 2e-6, degrees


def test_no_interval_is_of_no_width_or_beyond_its_bounds() -> None:
    low, high = interval([0.0] * 12, range(12), bounds=SHARE) or (1, 0)
    assert low == 0 and 0.2 < high < 0.35, "none of twelve"
    assert interval([0.0] * 400, [index // 4 for index in range(400)], bounds=SHARE) == pytest.approx(
        wilson(0, 100, t_quantile(99))
    )
    for seeds, bounds in itertools.product((None, [0, 1, 2] * 4), (None, CHANGE)):
        assert interval([0.25 + 1e-17 * n for n in range(12)], range(12), seeds, bounds) is None
    for values in ([1.0, 1.0, 1.0, 0.0], [1.0] * 3 + [-1.0], [0.9, 1.0, 1.0, 1.0]):
        low, high = interval(values, range(4), bounds=CHANGE) or (1, 0)
        assert -1 <= low < fmean(values) < high <= 1
    assert interval([0.5, 1.0], "aa") is None and interval([0.5, 1.0], "aa", "xy") is not None


def clustered_shares(rng: np.random.Generator) -> tuple:
    chances = np.repeat(rng.beta(0.6, 1.4, size=100), 4)  # mean 0.3, strongly alike within a cluster
    return (rng.random(400) < chances).astype(float), np.repeat(np.arange(100), 4), None, SHARE, 0.3


def clusters_of_unequal_size(rng: np.random.Generator) -> tuple:
    sizes = [38, 8, 5, 4, 3, 3, *[1] * 89]  # those of BFCL's 150 held-out simple_python tasks, nearly
    chances = np.repeat(rng.beta(1.2, 0.3, size=len(sizes)), sizes)
    return (rng.random(150) < chances).astype(float), np.repeat(np.arange(len(sizes)), sizes), None, SHARE, 0.8


def moves_of_seeds(same_tasks: bool) -> Callable[[np.random.Generator], tuple]:
    """Three seeds that play the same 60 scenarios in two dresses, or each scenarios of its own; a rise of .2."""

    def draw(rng: np.random.Generator) -> tuple:
        moves, clusters = [], []
        for seed in range(3):
            if seed == 0 or not same_tasks:
                before, up = rng.beta(0.5, 1.5, size=60) / 2, rng.choice([0.0, 0.5], p=[0.6, 0.4], size=60)
            after = before + up + rng.normal(0, 0.04)
            for _ in range(2):
                moves += [*((rng.random(60) < after) * 1.0 - (rng.random(60) < before))]
                clusters += [*(np.arange(60) + 60 * seed * (not same_tasks))]
        return moves, clusters, [seed for seed in range(3) for _ in range(120)], CHANGE, 0.2

    return draw


DRAWS = (clustered_shares, clusters_of_unequal_size, moves_of_seeds(True), moves_of_seeds(False))


@pytest.mark.parametrize("draw", DRAWS)
def test_about_95_of_100_intervals_hold_the_truth(draw) -> None:
    rng, held, runs = np.random.default_rng(1), 0, 800
    for _ in range(runs):
        values, clusters, seeds, bounds, truth = draw(rng)
        low, high = interval(values, clusters, seeds, bounds)
        held += low <= truth <= high
    assert 0.925 <= held / runs <= 0.98


@pytest.mark.parametrize("seeds", [(3, 3), (1, 3), (4, 2)])
def test_about_95_of_100_intervals_of_a_difference_hold_it_whatever_the_numbers_of_seeds(seeds) -> None:
    rng, held, runs, clusters = np.random.default_rng(1), 0, 800, np.repeat(np.arange(50), 4)
    for _ in range(runs):
        tasks, a_and_b = rng.uniform(0.25, 0.55, 50)[clusters], []
        for number, up in zip(seeds, (0.0, 0.05), strict=True):
            chances = tasks + up + rng.uniform(-0.1, 0.1, 50)[clusters] + rng.normal(0, 0.05, (number, 1))
            a_and_b.append((rng.random(chances.shape) < chances) * 1.0)
        low, high = intervals.of_difference(*a_and_b, clusters)
        held += low <= 0.05 <= high
    assert 0.915 <= held / runs <= 0.98
    a, b = (group[:1] for group in a_and_b)
    assert intervals.of_difference(a, b, clusters) == pytest.approx(interval([*(b - a)[0]], clusters, None, CHANGE))


def test_pass_at_k_and_pass_all_k_are_means_over_all_choices_of_k_samples():
    for estimate, holds in ((pass_at_k, any), (pass_all_k, all)):
        for k in range(1, 8):
            choices = list(itertools.combinations([1, 0, 0, 1, 0, 1, 0], k))
            assert estimate(7, 3, k) == pytest.approx(fmean(float(holds(choice)) for choice in choices))
        with pytest.raises(ValueError, match="at least 8"):
            estimate(7, 5, 8)
