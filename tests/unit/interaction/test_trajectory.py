"""However an episode grows, ids, mask, log-probabilities and spans say the same about every token."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interaction.token_rewards import Span, number_tokens
from interaction.trajectory import Trajectory

IDS = st.lists(st.integers(0, 50), min_size=1, max_size=6)
EXCHANGES = st.lists(st.tuples(IDS, IDS, st.integers(0, 2)), max_size=6)
"""What the model says, what the environment says to it, and by how much the user turn rises."""


def require_aligned(trajectory: Trajectory, with_log_probs: bool) -> None:
    """All that the class promises, looked at token by token."""
    size, mask = len(trajectory), trajectory.mask
    assert len(trajectory.response) == len(mask) == size
    assert trajectory.ids == trajectory.prompt + trajectory.response
    if with_log_probs and trajectory.spans:
        assert trajectory.log_probs is not None and len(trajectory.log_probs) == size
        assert [value != 0 for value in trajectory.log_probs] == [*map(bool, mask)]
    else:
        assert trajectory.log_probs is None
    covered = [position for span in trajectory.spans for position in range(span.start, span.end)]
    assert covered == [position for position, value in enumerate(mask) if value], "each in one step"
    number_tokens(trajectory.spans, mask)


@given(prompt=IDS, exchanges=EXCHANGES, with_log_probs=st.booleans(), whole=st.booleans(), data=st.data())
def test_whatever_is_appended_in_whatever_order_stays_aligned(prompt, exchanges, with_log_probs, whole, data):
    trajectory, turn, expected, spans = Trajectory(prompt), 0, list(prompt), []
    require_aligned(trajectory, with_log_probs)
    for said, answer, rise in exchanges:
        turn += rise
        log_probs = [-0.5 - position for position in range(len(said))] if with_log_probs else None
        span = trajectory.add_step(turn, said, log_probs)
        require_aligned(trajectory, with_log_probs)
        assert trajectory.last_step == trajectory.response[span.start : span.end] == said
        expected += said
        removed = data.draw(st.integers(0, len(said) - 1)) if whole else 0
        expected = expected[: len(expected) - removed] + answer
        if whole:
            trajectory.go_on(expected, removed=removed)
        else:
            trajectory.add_context(answer)
        require_aligned(trajectory, with_log_probs)
        spans.append((turn, said[: len(said) - removed]))
    assert trajectory.ids == expected
    assert [(span.turn, trajectory.response[span.start : span.end]) for span in trajectory.spans] == spans


def test_what_would_break_it_is_refused_and_leaves_it_as_it_was():
    trajectory = Trajectory([1])
    for said, log_probs, words in (([], [], "step 0 has no tokens"), ([2, 3], [-1.0], "2 tokens and 1 log-prob")):
        with pytest.raises(ValueError, match=words):
            trajectory.add_step(0, said, log_probs)
    trajectory.add_step(0, [2, 3], None)
    with pytest.raises(ValueError, match="does not go on from the token ids that it had"):
        trajectory.go_on([1, 2, 99, 4])
    with pytest.raises(ValueError, match="step 1 begins at token 2 without a token of the environment before it"):
        trajectory.add_step(0, [4], None)
    with pytest.raises(ValueError, match="2 tokens removed that are not the last ones of a longer step"):
        trajectory.go_on([1, 9], removed=2)
    trajectory.add_context([5])
    with pytest.raises(ValueError, match="step 1 has some log-probabilities, the steps before it had none"):
        trajectory.add_step(0, [4], [-1.0])
    assert trajectory.spans == [Span(0, 0, 2)] and trajectory.mask == [1, 1, 0]
