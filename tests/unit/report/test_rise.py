"""The error that a report claims is the one there is: simulated many times over, intervals cover what they say.

Each simulation makes episodes of two windows of five steps as a run stores them, from chances that are known, and asks
how often the claimed 95 % interval holds the true difference. The report's former method, the spread of the five step
means of a window, is put to the same question and fails it.
"""

from statistics import NormalDist, fmean, variance

import numpy as np
import pytest
from mpmath import betainc

from recipe.evaluation.intervals import t_interval, t_quantile
from recipe.report.rise import Difference, Rise, compare

TIMES = 2000  # 0.5 % of coverage is one standard error of it
ENOUGH = (0.93, 0.97)


def every_step_the_same_tasks(rng):
    """The CPU demo: 4 tasks x 16 rollouts a step, and nothing changes."""
    chances = np.array([0.05, 0.3, 0.6, 0.9])
    tasks = [np.arange(4)] * 5
    return tasks, chances, tasks, chances, 0.0


def a_window_repeats_few_tasks(rng):
    """Steps of a window are alike because they play the same tasks, and the other window has mostly others."""
    chances = rng.beta(0.5, 0.5, size=60)
    windows = [[rng.permutation(60)[:30]] * 5 for _ in range(2)]
    return windows[0], chances, windows[1], chances, 0.0


def some_tasks_rise_and_others_fall(rng):
    """16 tasks a step of 200, shuffled each epoch, as on 8 GPUs; tasks move, but not on the whole."""
    before, moves = rng.uniform(0.2, 0.8, size=200), rng.uniform(-0.2, 0.2, size=200)
    moves -= moves.mean()
    windows = [np.split(rng.permutation(200)[:80], 5) for _ in range(2)]
    return windows[0], before, windows[1], before + moves, 0.0


def all_tasks_rise(rng):
    chances = np.array([0.05, 0.3, 0.6, 0.8])
    tasks = [np.arange(4)] * 5
    return tasks, chances, tasks, chances + 0.1, 0.1


DESIGNS = [
    every_step_the_same_tasks,
    a_window_repeats_few_tasks,
    some_tasks_rise_and_others_fall,
    all_tasks_rise,
]


def windows_of(design, rng, rollouts=16):
    """Two windows, each a list of steps, each a pair of tasks and their rewards, and the true difference."""
    first, before, last, after, truth = design(rng)

    def play(steps, chances):
        return [(step, (rng.random((len(step), rollouts)) < chances[step][:, None]).astype(float)) for step in steps]

    return play(first, before), play(last, after), truth


def by_task(window):
    found = {}
    for tasks, rewards in window:
        for task, values in zip(tasks.tolist(), rewards, strict=True):
            found.setdefault(task, []).append(values)
    return {f"multi_turn_base_{task}": np.concatenate(values) for task, values in found.items()}


def by_episodes(first, last):
    found = compare(by_task(first), by_task(last))
    assert found is not None
    return found.interval


def by_step_means(first, last):
    """The former method: the spread of five step means, quoted as if it were known and not estimated from five."""
    means = [[float(rewards.mean()) for _, rewards in window] for window in (first, last)]
    difference = fmean(means[1]) - fmean(means[0])
    half = NormalDist().inv_cdf(0.975) * ((variance(means[0]) + variance(means[1])) / 5) ** 0.5
    return difference - half, difference + half


def coverage(method, design, times=TIMES):
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(times):
        first, last, truth = windows_of(design, rng)
        low, high = method(first, last)
        held += low <= truth <= high
    return held / times


@pytest.mark.parametrize("design", DESIGNS, ids=lambda design: design.__name__)
def test_intervals_of_one_run_hold_the_true_difference_as_often_as_they_claim(design):
    found = coverage(by_episodes, design)
    print(f"{design.__name__}: {found:.3f}")
    assert ENOUGH[0] <= found <= ENOUGH[1]


@pytest.mark.parametrize("design", DESIGNS[:2], ids=lambda design: design.__name__)
def test_the_spread_of_step_means_does_not(design):
    found = coverage(by_step_means, design)
    print(f"{design.__name__}: {found:.3f}")
    assert not ENOUGH[0] <= found <= ENOUGH[1]


def three_runs(rng):
    """Differences of three runs that differ by more than their episodes say, with what each claims for itself."""
    own = 0.02
    return rng.normal(0.0, 0.06, size=3) + rng.normal(0.0, own, size=3), own


def test_the_interval_over_runs_holds_the_true_difference_and_pooling_them_does_not():
    rng = np.random.default_rng(0)
    held = pooled = 0
    for _ in range(TIMES):
        values, own = three_runs(rng)
        interval = Rise(tuple(Difference(0.0, value, own) for value in values)).interval
        assert interval is not None
        held += interval[0] <= 0 <= interval[1]
        pooled += abs(fmean(values)) <= 1.96 * own / 3**0.5
    print(f"t over runs {held / TIMES:.3f}, pooled {pooled / TIMES:.3f}")
    assert ENOUGH[0] <= held / TIMES <= ENOUGH[1]
    assert pooled / TIMES < ENOUGH[0]


def test_tasks_are_compared_with_themselves():
    easy, hard = [1.0, 1.0, 1.0, 0.9], [0.0, 0.0, 0.0, 0.1]
    found = compare({"a": hard, "b": hard, "c": easy}, {"b": hard, "c": easy, "d": easy})
    assert found is not None
    assert (found.value, found.tasks, found.all_tasks) == (0.0, 2, False)


def test_the_variance_is_that_of_each_task_weighted_with_the_square_of_its_share():
    first, last = {"a": [0.0, 1.0], "b": [0.5, 0.5]}, {"a": [1.0, 1.0], "b": [0.0, 1.0]}
    found = compare(first, last)
    assert found is not None and found.all_tasks
    assert found.standard_error == pytest.approx((0.25 * 0.5 / 2 + 0.25 * 0.5 / 2) ** 0.5)
    assert found.value == pytest.approx(0.25)


def test_lost_episodes_of_one_task_do_not_make_the_others_count_more():
    found = compare({"a": [0.0] * 16, "b": [1.0] * 16}, {"a": [0.0] * 4, "b": [1.0] * 16})
    assert found is not None and found.value == 0.0


def test_an_error_that_cannot_be_told_is_none():
    assert compare({"a": [1.0, 0.0]}, {"b": [1.0, 0.0]}) is None
    one = compare({"a": [1.0, 0.0], "b": [1.0]}, {"a": [1.0, 0.0]})
    assert one is not None and one.standard_error is None and one.interval is None


def test_one_episode_a_task_takes_the_spread_between_tasks():
    found = compare({"a": [0.0], "b": [0.0], "c": [1.0]}, {"a": [1.0], "b": [0.0], "c": [1.0]})
    assert found is not None and found.degrees == 2
    assert found.standard_error == pytest.approx((variance([1.0, 0.0, 0.0]) / 3) ** 0.5)


def test_a_reward_that_never_differs_has_no_error():
    found = compare({"a": [0.0] * 4}, {"a": [0.0] * 4})
    assert found is not None and found.interval == (0.0, 0.0)


def test_one_run_has_no_interval_over_runs():
    assert Rise((Difference(0.0, 1.0, 0.1),)).interval is None
    with pytest.raises(ValueError, match="two values"):
        t_interval([1.0])


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12.5, 20, 33.3, 100, 200])
def test_students_t_is_that_of_its_distribution(degrees):
    t = t_quantile(degrees)
    outside = betainc(degrees / 2, 0.5, 0, degrees / (degrees + t * t), regularized=True)
    assert float(outside) == pytest.approx(0.05, abs=2e-6)


def test_students_t_never_falls_short_and_comes_to_the_normal_one():
    found = [t_quantile(degrees) for degrees in np.arange(1, 60, 0.25)]
    assert all(a >= b for a, b in zip(found, found[1:], strict=False))
    assert t_quantile(float("inf")) == pytest.approx(NormalDist().inv_cdf(0.975))
    with pytest.raises(ValueError, match="degree of freedom"):
        t_quantile(0.5)


def test_the_interval_of_three_values_is_the_textbooks():
    assert t_interval([1.0, 2.0, 3.0]) == pytest.approx((2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5))
