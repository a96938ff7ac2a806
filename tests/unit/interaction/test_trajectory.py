"""However an episode grows, ids, mask, log-probabilities and spans say the same about every token."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interaction.token_rewards import Span, number_tokens
from interaction.trajectory import Trajectory, closing_ids, missing_ids, stop_ids

IDS = st.lists(st.integers(0, 50), min_size=1, max_size=6)
EXCHANGES = st.lists(st.tuples(IDS, IDS, st.integers(0, 2)), max_size=6)
"""What the model says, what the environment says to it, and by how much the user turn rises."""


def require_aligned(trajectory: Trajectory, with_log_probs: bool) -> None:
    """All that the class promises, looked at token by token."""
    size, mask = len(trajectory), trajectory.mask
    assert len(trajectory.response) == len(mask) == size
    if with_log_probs and trajectory.spans:
        assert trajectory.log_probs is not None and len(trajectory.log_probs) == size
        assert [value != 0 for value in trajectory.log_probs] == [*map(bool, mask)]
    else:
        assert trajectory.log_probs is None
    number_tokens(trajectory.spans, mask)  # raises where they disagree


@given(IDS, IDS | st.just([]), EXCHANGES, st.booleans(), st.booleans(), st.data())
def test_whatever_is_appended_in_whatever_order_stays_aligned(prompt, first, exchanges, with_log_probs, whole, data):
    """Also behind words that gold has said before the first step."""
    trajectory, turn, expected, spans = Trajectory(prompt), 0, prompt + first, []
    trajectory.add_context(first)
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
    trajectory, sure = Trajectory([1]), Trajectory([1])
    sure.add_step(0, [2], [-1.0])
    sure.add_context([3])
    with pytest.raises(ValueError, match="step 1 has no log-probabilities, the steps before it had some"):
        sure.add_step(0, [4], None)
    with pytest.raises(ValueError, match="1 tokens removed that are not the last ones of a longer step"):
        trajectory.go_on([1], removed=1)
    for said in ([], [2, 3], [2, 3, 4, 5]):
        with pytest.raises(ValueError, match=f"step 0 has (no|{len(said)}) tokens"):
            trajectory.add_step(0, said, [-1.0] * 3)
    trajectory.add_step(0, [2, 3], None)
    for ids in ([1, 2, 99, 4], [9, 2, 3, 4], [1, 2]):
        with pytest.raises(ValueError, match="does not go on from the token ids that it had"):
            trajectory.go_on(ids)
    with pytest.raises(ValueError, match="step 1 begins at token 2 without a token of the environment before it"):
        trajectory.add_step(0, [4], None)
    with pytest.raises(ValueError, match="2 tokens removed that are not the last ones of a longer step"):
        trajectory.go_on([1, 9], removed=2)
    trajectory.add_context([5])
    with pytest.raises(ValueError, match="1 tokens removed that are not"):
        trajectory.go_on([1, 2, 3], removed=1)
    with pytest.raises(ValueError, match="step 1 has some log-probabilities, the steps before it had none"):
        trajectory.add_step(0, [4], [-1.0])
    assert trajectory.spans == [Span(0, 0, 2)] and trajectory.mask == [1, 1, 0]


CLOSINGS = (
    ([], [7, 8], (), [7, 8]),
    ([1, 7], [7, 8], (), [8]),
    ([7, 8], [7, 8], (), []),
    ([8], [7, 8], (), [7, 8]),
    ([7, 7], [7, 7, 8], (), [8]),
    ([1, 3, 8], [7, 8, 9], (8,), [9]),
    ([1, 7], [7, 8, 9], (8,), [8, 9]),
    ([1, 8], [7, 8, 9], (), [7, 8, 9]),
)
"""Ids of a message, what closes one, where the engine stops, and what is missing."""


def test_what_closes_a_message_is_read_off_the_template_and_written_once():
    def render(messages):
        return [0, *(len(message["content"]) for message in messages), 7, 8]

    assert closing_ids(render) == [7, 8] and closing_ids(lambda messages: render(messages)[:-2]) == []
    assert closing_ids(lambda messages: [-number for number in render(messages)]) == [-7, -8]
    assert closing_ids(lambda messages: [0] * len(messages[1]["content"])) == [0, 0], "all of the shorter one"
    with pytest.raises(ValueError, match="does not show what the assistant said"):
        closing_ids(lambda messages: [7, 8])
    tokenizer = SimpleNamespace(added_tokens_decoder={8: "<|im_end|>", 9: "<|end|>"})
    assert stop_ids(tokenizer, [7, 8, 9]) == [8] and stop_ids(tokenizer, [7]) == []
    for ids, closing, stops, missing in CLOSINGS:
        assert missing_ids(ids, closing, stops) == missing, ids
