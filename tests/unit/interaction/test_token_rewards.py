"""Whatever a reward returns is on tokens of the model, and adds up to the score that is logged."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interaction.token_rewards import Rewards, Span, number_tokens, place, rewards_of

SCORE = st.floats(-10, 10)
GAPS = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=5)
"""Tokens of each step, and of the environment behind it."""


@given(gaps=GAPS, by_step=st.booleans(), penalty=st.none() | st.floats(0, 5), data=st.data())
def test_the_tokens_carry_what_the_reward_gave_less_the_price(gaps, by_step, penalty, data):
    spans, mask = [], list[int]()
    for turn, (said, behind) in enumerate(gaps):
        spans.append(Span(turn, len(mask), len(mask) + said))
        mask += [1] * said + [0] * behind
    given_scores = [data.draw(SCORE) for _ in spans] if by_step else None
    score = math.fsum(given_scores) if given_scores is not None else data.draw(SCORE)
    found = rewards_of(score, given_scores, steps=len(spans), spans=spans, mask=mask, penalty=penalty)
    assert found.score == pytest.approx(score - (penalty or 0))
    assert found.tokens is not None and len(found.tokens) == len(mask)
    assert math.fsum(found.tokens) == pytest.approx(found.score, abs=1e-9)
    ends = [span.end - 1 for span in (spans if by_step else spans[-1:])]
    assert {place for place, value in enumerate(found.tokens) if value} <= set(ends)
    if given_scores is None:
        assert found.step_scores is None
    else:
        assert [found.tokens[end] for end in ends] == found.step_scores
        assert found.step_scores[:-1] == given_scores[:-1]


def test_without_a_reward_or_a_step_nothing_is_on_tokens_but_a_price_and_what_is_not_finite_is_refused():
    one = {"spans": [Span(0, 0, 1)], "mask": [1]}
    assert rewards_of(None, None, steps=1, **one) == Rewards(None, None, None)
    assert rewards_of(0.5, None, steps=0, spans=[], mask=[0], penalty=0.2) == Rewards(0.5, None, None)
    assert rewards_of(0.0, [], steps=0, penalty=0.5, **one) == Rewards(-0.5, [], [-0.5])
    for score in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match="trained on, it would make every weight NaN"):
            rewards_of(score, None, steps=1, **one)


def test_scores_of_steps_are_a_finite_number_each_that_add_up_to_the_score():
    two = {"steps": 2, "spans": [Span(0, 0, 1), Span(0, 2, 3)], "mask": [1, 0, 1]}
    for scores, score in (([1], 1.0), ([1, 1, 1], 3.0), ("11", 2.0), ({0: 1, 1: 1}, 2.0), (3, 3.0)):
        with pytest.raises(ValueError, match="the episode has 2 steps"):
            rewards_of(score, scores, **two)
    for place_of, scores in enumerate(([math.nan, 1.0], [1.0, math.inf], ["1", 1.0], [1.0, None])):
        with pytest.raises(ValueError, match=rf"step_scores\[{place_of % 2}\] is .*; expected a finite number"):
            rewards_of(1.0, scores, **two)
    for score in (0.99, 0.9999, 1.0001, -1.0):
        with pytest.raises(ValueError, match="step_scores sum to 1, its score is"):
            rewards_of(score, [0.25, 0.75], **two)
    assert rewards_of(1.0000001, (0.25, 0.75), **two).tokens == [0.25, 0.0, 0.75]
    assert rewards_of(0.0, [0, 0.0], **two, penalty=0.5) == Rewards(-0.5, [0.0, -0.5], [0.0, 0.0, -0.5])


def test_a_response_that_is_cut_within_a_step_or_before_it_carries_what_it_can():
    spans = [Span(0, 1, 3), Span(2, 4, 9)]
    assert place([0.5, 0.25], spans, [0, 1, 1, 0, 1]) == [0, 0, 0.5, 0, 0.25]
    assert place([0.5], spans, [0, 1, 1, 0, 1]) == [0, 0, 0.5, 0, 0]
    assert place([0.5, 0.25], spans, [0, 1]) == [0, 0.75]
    assert number_tokens(spans, [0, 1, 1, 0, 1]) == ([-1, 0, 0, -1, 1], [-1, 0, 0, -1, 2])
    assert number_tokens(spans, [0, 1]) == ([-1, 0], [-1, 0])
    for start in (1, 3):
        with pytest.raises(ValueError, match=f"step 1 begins at token {start} without"):
            number_tokens([Span(0, 0, start), Span(1, start, 4)], [1] * start)
    with pytest.raises(ValueError, match="no token of the model that could carry a reward"):
        place([0.5], spans, [0])
