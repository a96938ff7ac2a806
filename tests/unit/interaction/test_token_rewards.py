"""Whatever a reward returns is on tokens of the model, and adds up to the score that is logged."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interaction.token_rewards import Rewards, Span, rewards_of

SCORE = st.floats(-10, 10)


@st.composite
def episodes(draw: st.DrawFn) -> tuple[list[Span], list[int]]:
    spans, mask = [], [0] * draw(st.integers(0, 2))
    for turn in range(draw(st.integers(1, 5))):
        length = draw(st.integers(1, 4))
        spans.append(Span(turn, len(mask), len(mask) + length))
        mask += [1] * length + [0] * draw(st.integers(1, 3))
    return spans, mask


@given(episode=episodes(), by_step=st.booleans(), penalty=st.none() | st.floats(0, 5), data=st.data())
def test_the_tokens_carry_what_the_reward_gave_less_the_price(episode, by_step, penalty, data):
    spans, mask = episode
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


def test_without_a_reward_or_without_a_step_there_is_nothing_on_tokens():
    assert rewards_of(None, None, steps=1, spans=[Span(0, 0, 1)], mask=[1]) == Rewards(None, None, None)
    assert rewards_of(0.5, None, steps=0, spans=[], mask=[0], penalty=0.2) == Rewards(0.5, None, None)


def test_an_episode_whose_record_has_no_step_still_pays_for_its_length():
    found = rewards_of(0.0, [], steps=0, spans=[Span(0, 0, 2)], mask=[1, 1], penalty=0.5)
    assert found == Rewards(-0.5, [], [0.0, -0.5])


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_not_finite_is_refused(score: float):
    with pytest.raises(ValueError, match="trained on, it would make every weight NaN"):
        rewards_of(score, None, steps=1, spans=[Span(0, 0, 1)], mask=[1])
