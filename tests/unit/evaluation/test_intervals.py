"""Intervals against published values, and on data whose truth is known."""

import itertools
from statistics import NormalDist, fmean

import numpy as np
import pytest

from recipe.evaluation import intervals
from recipe.evaluation.intervals import mean_interval, pass_all_k, pass_at_k, proportion_interval, wilson

NEWCOMBE = {(81, 263): (0.2553, 0.3662), (15, 148): (0.0624, 0.1605), (0, 20): (0, 0.1611), (1, 29): (0.0061, 0.1718)}
"""R. G. Newcombe, Statistics in Medicine 17, 1998, table I, method 3."""


def test_independent_results_give_the_ordinary_intervals_and_copies_count_once():
    for (successes, trials), expected in NEWCOMBE.items():
        assert wilson(successes, trials) == pytest.approx(expected, abs=5e-5)
    values = [1.0] * 81 + [0.0] * 182
    assert proportion_interval(values, range(263)) == pytest.approx(wilson(81, 263))
    half = NormalDist().inv_cdf(0.975) * float(np.std(values)) / 263**0.5
    expected = fmean(values) - half, fmean(values) + half
    assert mean_interval(values, range(263)) == pytest.approx(expected, abs=0.005)
    values = [1.0, 0.0, 0.0, 1.0, 0.0] * 10
    fourfold = [value for value in values for _ in range(4)]
    clusters = [index for index in range(50) for _ in range(4)]
    assert proportion_interval(fourfold, clusters) == pytest.approx(wilson(20, 50))
    assert mean_interval(fourfold, clusters) == pytest.approx(mean_interval(values, range(50)))
    assert proportion_interval([0.0] * 400, [index // 4 for index in range(400)]) == wilson(0, 100)


def test_about_95_of_100_intervals_hold_the_truth_for_clustered_results(monkeypatch):
    monkeypatch.setattr(intervals, "RESAMPLES", 400)
    clusters, runs = np.repeat(np.arange(100), 4).tolist(), 200
    for interval in (proportion_interval, mean_interval):
        rng, held = np.random.default_rng(1), 0
        for _ in range(runs):
            chances = np.repeat(rng.beta(0.6, 1.4, size=100), 4)  # mean 0.3, strongly alike within a cluster
            low, high = interval((rng.random(400) < chances).astype(float).tolist(), clusters)
            held += low <= 0.3 <= high
        assert 0.92 <= held / runs <= 0.98, interval


def test_pass_at_k_and_pass_all_k_are_means_over_all_choices_of_k_samples():
    for estimate, holds in ((pass_at_k, any), (pass_all_k, all)):
        for k in range(1, 8):
            choices = list(itertools.combinations([1, 0, 0, 1, 0, 1, 0], k))
            assert estimate(7, 3, k) == pytest.approx(fmean(float(holds(choice)) for choice in choices))
        with pytest.raises(ValueError, match="at least 8"):
            estimate(7, 5, 8)
