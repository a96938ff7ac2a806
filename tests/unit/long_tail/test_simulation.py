"""The simulated training step against what can be worked out by hand, and against the same done plainly."""

from dataclasses import replace
from math import erf, log, sqrt
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.long_tail import plainly

from benchmarks.long_tail.load import SCORE, Load
from benchmarks.long_tail.modes import SYNC, Mode, simulate
from benchmarks.long_tail.simulate import main

ONE = Load(
    replicas=1,
    concurrency=8,
    tokens_a_second=100.0,
    tokens_a_second_alone=25.0,
    messages=3,
    tokens=50.0,
    user_median=0.0,
    prompts=1,
    rollouts=1,
    log_probs=3.0,
    update=7.0,
    weights=2.0,
)
AHEAD = Mode("async", 1, 4)


@pytest.mark.parametrize(
    ("change", "seconds"),
    [
        ({}, 3 * 50 / 25),
        ({"environment": 1.5}, 3 * (50 / 25 + 1.5)),
        ({"user_median": 30.0, "user_p99": 30.0}, 3 * 50 / 25 + 30),
        ({"rollouts": 2}, 3 * 50 / 25),
        ({"rollouts": 4}, 3 * 50 / 25),
        ({"rollouts": 8}, 3 * 50 * 8 / 100),
        ({"prompts": 4, "rollouts": 4}, 3 * 50 * 16 / 100),
        ({"prompts": 3, "rollouts": 3, "concurrency": 3}, 3 * 50 * 9 / 75),
        ({"rollouts": 8, "replicas": 2}, 3 * 50 / 25),
        ({"rollouts": 8, "replicas": 3}, 3 * 50 / 25),
        ({"prompts": 4, "rollouts": 8, "replicas": 4}, 3 * 50 * 8 / 100),
        ({"reading": 9.0}, 3 * 50 / 25),
    ],
    ids=str,
)
def test_without_a_tail_a_step_takes_what_is_worked_out_by_hand(change: dict[str, float], seconds: float) -> None:
    """Reading again costs nothing where nothing is interrupted."""
    for step in simulate(replace(ONE, **change), SYNC, 3, 0):
        assert step.rollout == pytest.approx(seconds)
        assert not step.staleness.any()


def moments_of_the_longest(median: float, p99: float, number: int) -> tuple[float, float]:
    """Mean and standard deviation of the maximum of so many log-normal times, by quadrature."""
    sigma = log(p99 / median) / SCORE
    at = np.linspace(-9, 9, 20_001)
    below = np.array([(1 + erf(one / sqrt(2))) / 2 for one in at]) ** number
    share, times = np.diff(below), median * np.exp(sigma * (at[1:] + at[:-1]) / 2)
    mean = float((share * times).sum())
    return mean, sqrt(float((share * (times - mean) ** 2).sum()))


@pytest.mark.parametrize("factor", [3.0, 10.0])
@pytest.mark.parametrize("episodes", [1, 64])
def test_where_users_dominate_a_step_takes_the_expected_longest_of_their_times(factor: float, episodes: int) -> None:
    load = replace(ONE, messages=1, tokens=1e-6, user_median=20.0, user_p99=20.0 * factor, rollouts=episodes)
    seen = [step.rollout for seed in range(4) for step in simulate(load, SYNC, 60, seed)]
    mean, deviation = moments_of_the_longest(20.0, 20.0 * factor, episodes)
    assert abs(fmean(seen) - mean) < 4 * deviation / sqrt(len(seen))


LOADS = st.builds(
    Load,
    replicas=st.integers(1, 3),
    concurrency=st.integers(1, 5),
    tokens_a_second=st.sampled_from([25.0, 60.0, 200.0]),
    tokens_a_second_alone=st.just(25.0),
    messages=st.integers(1, 3),
    tokens=st.just(50.0),
    user_median=st.sampled_from([0.5, 5.0, 40.0]),
    prompts=st.integers(1, 3),
    rollouts=st.integers(1, 3),
    log_probs=st.just(1.013),  # not in whole messages, or one ends with an update, and rounding says which is first
    update=st.sampled_from([0.537, 9.071]),
    weights=st.just(0.25),
    environment=st.sampled_from([0.0, 1.1]),
    reading=st.sampled_from([0.0, 0.7]),
)
MODES = st.one_of(
    st.just(SYNC),
    st.tuples(st.integers(0, 2), st.integers(1, 3), st.booleans()).map(
        lambda one: Mode("ahead", one[0], one[0] + one[1], one[2])
    ),
)


@settings(max_examples=30, deadline=None)
@given(LOADS, MODES, st.integers(0, 99))
def test_it_is_what_comes_out_plainly(load: Load, mode: Mode, seed: int) -> None:
    quick, plain = simulate(load, mode, 5, seed), plainly(load, mode, 5, seed)
    assert [step.trained.tolist() for step in quick] == [groups for _, groups in plain]
    assert [step.rollout for step in quick] == pytest.approx([rollout for rollout, _ in plain], abs=1e-6)


@settings(max_examples=30, deadline=None)
@given(LOADS, MODES.filter(lambda mode: mode.warmup < 2), st.integers(0, 99))  # with more the threshold bounds nothing
def test_every_group_is_trained_on_once_none_is_lost_or_too_old_and_no_engine_writes_more_than_it_can(
    load: Load, mode: Mode, seed: int
) -> None:
    number = 8
    steps = simulate(load, mode, number, seed)
    trained = [int(group) for step in steps for group in step.trained]
    assert all(len(step.trained) == load.prompts for step in steps) and len({*trained}) == len(trained)
    for step, played in enumerate(steps, 1):
        handed = np.maximum(1, played.trained // load.prompts + 1 - mode.warmup)
        assert (played.staleness == step - handed).all() and (handed <= step).all()
        assert played.staleness.max() < mode.threshold
        assert played.written <= played.playing * load.replicas * load.tokens_a_second * (1 + 1e-9)
        must = {group for group in range((mode.warmup + 1) * load.prompts) if step >= mode.threshold}
        assert must <= {*trained[: step * load.prompts]}
    batch = load.prompts * load.rollouts * load.messages * load.tokens
    written = sum(step.written for step in steps)
    assert number * batch * (1 - 1e-9) <= written <= (number + mode.warmup) * batch * (1 + 1e-9)


@pytest.mark.parametrize("warmup", [0, 1, 3])
def test_where_engines_are_full_all_the_time_playing_ahead_gains_nothing(warmup: int) -> None:
    """The devices that play are those that train: what is not waited for is not saved."""
    load, number = replace(ONE, prompts=6, rollouts=8), 12
    sync, ahead = (simulate(load, mode, number, 0) for mode in (SYNC, Mode("async", warmup, warmup + 4)))
    batch = 6 * 8 * 3 * 50 / 100
    assert [step.rollout for step in sync] == pytest.approx([batch] * number)
    took = sum(step.rollout for step in ahead)
    assert number * batch <= took + 1e-6 <= (number + warmup) * batch + 1e-3
    assert sum(step.written for step in ahead) == pytest.approx(took * 100)


@pytest.mark.parametrize(("pause", "second"), [(0.0, 1.0), (0.25, 0.75), (30.0, 0.0)])
def test_users_go_on_while_the_policy_is_updated(pause: float, second: float) -> None:
    """The first of two prompts is over after 1 + 20 s; the other, a second later, is for the second step."""
    load = replace(ONE, concurrency=1, messages=1, tokens=25.0, user_median=20.0, user_p99=20.0)
    load = replace(load, log_probs=0.0, update=pause, weights=0.0)
    assert [step.rollout for step in simulate(load, AHEAD, 2, 0)] == pytest.approx([21.0, second])


def test_what_is_interrupted_is_read_again() -> None:
    """Each of the two prompts has written a message of two when the first step ends, and the other one is begun."""
    load = replace(ONE, messages=2, user_median=1e-3, user_p99=1e-3, concurrency=1, weights=0.0)
    first, second = simulate(replace(load, reading=5.0), Mode("async", 1, 2), 2, 0)
    assert first.rollout == pytest.approx(6.0, abs=1e-2)  # the messages take turns: 1, 2, 1, 2
    assert second.rollout == pytest.approx(2.0 + 5.0, abs=1e-2)


def test_on_devices_of_their_own_engines_play_while_others_train() -> None:
    """A message a second, 10 s of training: the second prompt is over at 2 s, and nothing is waited for later."""
    load = replace(ONE, concurrency=1, messages=1, tokens=25.0, weights=0.0)
    steps = simulate(load, Mode("separate", 1, 4, beside=True), 4, 0)
    assert [step.rollout for step in steps] == pytest.approx([1.0, 0.0, 0.0, 0.0])
    assert [step.playing for step in steps] == pytest.approx([11.0, 10.0, 10.0, 10.0])
    assert sum(step.written for step in steps) == pytest.approx(5 * 25)


def test_half_of_the_devices_train_for_twice_as_long() -> None:
    load = replace(ONE, replicas=8)
    assert load.apart(0.5) == replace(load, replicas=4, log_probs=6.0, update=14.0)
    assert load.apart(0.25) == replace(load, replicas=2, log_probs=4.0, update=8 / 6 * 7.0)
    assert load.apart(0.99).replicas == 7 and load.apart(0.01).replicas == 1


COMMAND = (
    "--replicas 1 --concurrency 8 --tokens-a-second 100 --tokens-a-second-alone 25 --messages 3 --tokens 50 "
    "--user-median 0 --prompts 1 --rollouts 2 --log-probs 3 --update 7 --weights 2 --steps 4 --seeds 2"
).split()


def test_the_command_says_where_the_time_goes(capsys: pytest.CaptureFixture[str]) -> None:
    """6 s at half the rate and 12 s of training; ahead, two batches are played at the full rate, for two steps."""
    main(COMMAND)
    first, header, sync, ahead, ratio = capsys.readouterr().out.splitlines()
    assert sync.split() == ["sync", "18.0", "17%", "17%", "17%", "39%", "11%", "0.00", "0", "50%"]
    assert ahead.split() == ["async", "15.0", "20%", "0%", "20%", "47%", "13%", "1.00", "1", "100%"]
    assert "1.20 times" in ratio and len(header.split()) == len(sync.split())


def test_with_two_engines_it_says_what_dividing_them_would_do(capsys: pytest.CaptureFixture[str]) -> None:
    """One of two plays, and the other trains for twice as long: 20 s, and 2 s for weights, with nothing to wait for."""
    main([*COMMAND, "--replicas", "2"])
    *_, separate, _, ratio = capsys.readouterr().out.splitlines()
    assert separate.split() == ["separate", "22.0", "beside", "0%", "27%", "64%", "9%", "1.00", "1", "15%"]
    assert "separate is 0.82 times as fast" in ratio


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        *((name, value, "expected a") for name in ("replicas", "rollouts", "steps", "seeds") for value in ("0", "-1")),
        *((name, value, "finite") for name in ("update", "tokens", "user-median") for value in ("nan", "inf", "-1")),
        ("tokens", "0", "above 0"),
        ("replicas", "1.5", "invalid int"),
        ("tokens-a-second-alone", "101", "--tokens-a-second 100"),
        ("user-p99", "-1", "--user-p99"),
        ("warmup", "-1", "from 0"),
        ("threshold", "1", "Set --threshold to 2"),
        ("replicas", "1000001", "to 1,000,000"),
        ("prompts", "1000000", "lower --steps"),
        *(("playing", value, "between 0 and 1") for value in ("0", "1", "nan", "-1")),
    ],
)
def test_a_number_that_cannot_be_is_refused_with_its_option(
    capsys: pytest.CaptureFixture[str], option: str, value: str, words: str
) -> None:
    with pytest.raises(SystemExit) as error:
        main([*COMMAND, f"--{option}", value])
    said = capsys.readouterr().err.splitlines()[-1]
    assert error.value.code == 2 and f"--{option}" in said and words in said
