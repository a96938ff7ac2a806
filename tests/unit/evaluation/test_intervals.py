"""Intervals against published values, on data that have to give one, and as they were recorded."""

import itertools
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


def test_students_t_is_that_of_its_distribution():
    for degrees, most in ((0.9999999, 1e-6), (1.5, 0.02), (2.9, 0.01), *((count, 0) for count in (*range(1, 13), 200))):
        t = t_quantile(degrees)
        outside = float(betainc(degrees / 2, 0.5, 0, degrees / (degrees + t * t), regularized=True))
        assert 0.05 - most - 2e-6 <= outside <= 0.05 + 2e-6, degrees
    expanded = [2.262157, 2.2281308968121527, 2.2138340827849525, 2.021075382995337, 1.9599639869123249]
    assert [t_quantile(degrees) for degrees in (9, 10, 10.5, 40, 1e9)] == pytest.approx(expanded, rel=1e-12)


A, B, ONE, TWO = (
    np.array([[*map(float, row)] for row in rows.split()])
    for rows in ("01101100 01001110 11101000", "11101101 01111110 11101011", "111010", "011000 011111")
)


def test_intervals_are_as_they_were_found_and_none_is_of_no_width():
    for values, clusters, seeds, bounds, expected in (
        # values in halves, their clusters and seeds, the bounds, and the interval as it was found
        ("02112202", "aabbccdd", None, SHARE, (0.26316267246876335, 0.8860734621201586)),
        ("02112202", "aabbccdd", None, None, (0.22719425, 1.02280575)),
        ("0211220221", "aaaabbcdef", None, SHARE, (0.25292908422010235, 0.9106119125528502)),
        ("0211220221", "aabbccddaa", "0000011111", CHANGE, (0.22904362009165968, 0.8661402612664266)),
        ("0211220221", "abcdeabcde", "0000011111", None, (0.47997816127745896, 0.8200218387225411)),
        ("021122022110", "aabbccddeeff", "000011112222", SHARE, (0.32575376144227586, 0.8022470523984258)),
        ("022222222020", "abbadbbabdba", "000111122222", None, (-0.9631417201868874, 2.4742528312979983)),
        ("1212220022", "abcbdcaaba", "0111112222", None, (-0.2793823810526558, 1.5460490477193223)),
        ("202100", "aaaaaa", "001122", None, (-0.5319791513171661, 1.3653124846504994)),
        ("222222", "aabbcc", "010212", SHARE, (0.13945171317284302, 1.0)),
        ("2" * 12, "abc" * 4, "000111222333", SHARE, (0.3338014588824641, 1.0)),
        ("2" * 9, "aaaabbbbb", "111111112", SHARE, (0.012236334110883361, 1.0)),
    ):
        found = interval([int(value) / 2 for value in values], clusters, seeds, bounds)
        assert found == pytest.approx(expected, rel=1e-9), (values, clusters, seeds)
    for a, b, clusters, expected in (
        # seeds of two recipes, clusters of tasks, and the interval as it was found
        (A, B, "aabbccdd", (-0.1017692061381017, 0.5461992018260535)),
        (A[:1], B, "abcdefgg", (-0.17149533492604074, 0.5941347086436726)),
        (A, B[:1], "aabbccdd", (0.0925415811389747, 0.3952598157111964)),
        (ONE, TWO, "aabbcd", (-0.9866734485482211, 0.9814359527124077)),
        (A[:1], B[:1], "abcdefgg", (-0.12219583161402037, 0.5605502308515113)),
        (A[:2], B, "abcdefgg", (-0.06710088748817022, 0.5212302921064931)),
        (A, A, "aabbccdd", None),
        (A, B, "a" * 8, None),
    ):
        assert intervals.of_difference(a, b, clusters) == (expected and pytest.approx(expected, rel=1e-9)), clusters
    assert wilson(0, 9)[0] == 0 and wilson(1, 9)[1] == 1, "where rounding passes the bounds"
    none = wilson(0, 100, t_quantile(99))
    assert interval([0.0] * 400, [index // 4 for index in range(400)], bounds=SHARE) == pytest.approx(none)
    for seeds, bounds in itertools.product((None, [0, 1, 2] * 4), (None, CHANGE)):
        for step, rounding in ((1e-11, True), (1e-8, False)):
            found = interval([0.25 + step * n for n in range(12)], range(12), seeds, bounds)
            assert (found is None) is rounding, step
    assert interval([0.5, 1.0], "aa") is None and interval([0.5, 1.0], "aa", "xy") is not None


def test_pass_at_k_and_pass_all_k_are_means_over_all_choices_of_k_samples():
    for estimate, holds in ((pass_at_k, any), (pass_all_k, all)):
        for k in range(1, 8):
            choices = list(itertools.combinations([1, 0, 0, 1, 0, 1, 0], k))
            assert estimate(7, 3, k) == pytest.approx(fmean(float(holds(choice)) for choice in choices))
