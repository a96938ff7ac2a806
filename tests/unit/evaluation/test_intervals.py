"""Intervals against published values, and on data whose truth is known."""

import itertools
from statistics import NormalDist, fmean

import numpy as np
import pytest

from recipe.evaluation.intervals import (
    effective_trials,
    mean_interval,
    pass_all_k,
    pass_at_k,
    proportion_interval,
    wilson,
)


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_gives_the_values_published_by_newcombe(successes, trials, low, high):
    """R. G. Newcombe, Statistics in Medicine 17, 1998, table I, method 3."""
    assert wilson(successes, trials) == pytest.approx((low, high), abs=5e-5)


def test_one_result_for_each_cluster_gives_the_ordinary_interval():
    values = [1.0] * 81 + [0.0] * 182
    assert proportion_interval(values, range(263)) == pytest.approx(wilson(81, 263))
    low, high = mean_interval(values, range(263))
    half = NormalDist().inv_cdf(0.975) * float(np.std(values)) / 263**0.5
    assert (low, high) == pytest.approx((fmean(values) - half, fmean(values) + half), abs=0.005)


def test_results_that_are_copies_of_each_other_count_once():
    values = [1.0, 0.0, 0.0, 1.0, 0.0] * 10
    fourfold = [value for value in values for _ in range(4)]
    clusters = [index for index in range(50) for _ in range(4)]
    assert effective_trials(fourfold, clusters) == pytest.approx(50)
    assert proportion_interval(fourfold, clusters) == pytest.approx(wilson(20, 50))
    assert mean_interval(fourfold, clusters) == pytest.approx(mean_interval(values, range(50)))


def test_when_nothing_passes_the_interval_is_that_of_the_number_of_clusters():
    assert proportion_interval([0.0] * 400, [index // 4 for index in range(400)]) == wilson(0, 100)


@pytest.mark.parametrize("interval", [proportion_interval, mean_interval])
def test_about_95_of_100_intervals_hold_the_truth_for_clustered_results(interval, monkeypatch):
    monkeypatch.setattr("recipe.evaluation.intervals.RESAMPLES", 400)
    rng = np.random.default_rng(1)
    held, runs = 0, 200
    clusters = np.repeat(np.arange(100), 4).tolist()
    for _ in range(runs):
        chances = np.repeat(rng.beta(0.6, 1.4, size=100), 4)  # mean 0.3, strongly alike within a cluster
        low, high = interval((rng.random(400) < chances).astype(float).tolist(), clusters)
        held += low <= 0.3 <= high
    assert 0.92 <= held / runs <= 0.98


def test_pass_at_k_and_pass_all_k_are_means_over_all_choices_of_k_samples():
    for estimate, holds in ((pass_at_k, any), (pass_all_k, all)):
        for k in range(1, 8):
            choices = list(itertools.combinations([1, 0, 0, 1, 0, 1, 0], k))
            assert estimate(7, 3, k) == pytest.approx(fmean(float(holds(choice)) for choice in choices))
        with pytest.raises(ValueError, match="at least 8"):
            estimate(7, 5, 8)
