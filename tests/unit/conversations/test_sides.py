"""What is held out of a warm start: the share that was asked for, and nothing that the other side knows."""

import itertools
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.conversations.files import Conversation
from recipe.conversations.sides import hold_out, on_both


def talk(question: str, answer: str = "No.", *queries: tuple[str, ...]) -> Conversation:
    messages = ({"role": "user", "content": question}, {"role": "assistant", "content": answer})
    return Conversation(f"chat.jsonl, {question} {answer}", messages, frozenset(queries))


def parted(conversations: Sequence[Conversation], share: float, seed: int) -> tuple[list[Conversation], ...]:
    held = hold_out(conversations, share, seed)
    return [one for at, one in enumerate(conversations) if at not in held], [conversations[at] for at in held]


def in_common(one: Conversation, other: Conversation) -> bool:
    return one.same == other.same or one.opening == other.opening or bool(one.queries & other.queries)


TALKS = st.lists(
    st.builds(
        lambda question, answer, query, task: talk(
            str(question), str(answer), *([("query_id", str(query))] if query else []), ("id", "f", str(task))
        ),
        st.integers(0, 30),
        st.integers(0, 3),
        st.integers(0, 20),
        st.integers(0, 40),
    ),
    min_size=2,
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(TALKS, st.floats(0.02, 0.9), st.integers(0, 5))
def test_nothing_on_one_side_has_anything_in_common_with_the_other(
    conversations: list[Conversation], share: float, seed: int
) -> None:
    try:
        train, val = parted(conversations, share, seed)
    except ValueError as error:
        assert "one query" in str(error)
        return
    assert train and val and len(train) + len(val) == len(conversations)
    assert not any(in_common(one, other) for one, other in itertools.product(train, val))
    assert not on_both(train, val)


def test_the_share_is_met_where_queries_are_single_and_not_passed_where_they_are_not() -> None:
    single = [talk(f"q{number}") for number in range(200)]
    assert len(hold_out(single, 0.05, 1)) == 10
    of_ten = [talk(f"q{number // 10}", f"a{number}") for number in range(200)]
    assert len(hold_out(of_ten, 0.05, 1)) == 10 and len(hold_out(of_ten, 0.06, 1)) == 10
    assert len(hold_out(of_ten, 0.01, 1)) == 10, "one query at least"


def test_what_is_drawn_follows_from_seed_and_content_and_not_from_the_order() -> None:
    conversations = [talk(f"q{number}") for number in range(100)]
    drawn = {one.place for one in parted(conversations, 0.2, 1)[1]}
    mixed = random.Random(0).sample(conversations, 100)
    assert {one.place for one in parted(mixed, 0.2, 1)[1]} == drawn
    assert {one.place for one in parted(conversations, 0.2, 2)[1]} != drawn
    more = {one.place for one in parted([*conversations, talk("new")], 0.2, 1)[1]}
    assert len(more & drawn) >= len(drawn) - 1


def test_conversations_of_one_query_cannot_be_parted() -> None:
    with pytest.raises(ValueError, match="all 3 conversations are of one query"):
        hold_out([talk("q", str(number)) for number in range(3)], 0.5, 1)


def test_files_that_are_given_for_both_sides_must_not_share_a_conversation_or_a_query() -> None:
    train = [talk("a"), talk("b", "x", ("query_id", "7")), talk("c", "x", ("id", "train.jsonl", "1"))]
    assert on_both(train, [talk("a")]) == [("chat.jsonl, a No.", "chat.jsonl, a No.")]
    assert on_both(train, [talk("d", "y", ("query_id", "7"))]) == [("chat.jsonl, d y", "chat.jsonl, b x")]
    assert not on_both(train, [talk("d", "y", ("id", "val.jsonl", "1"))]), "both files number their lines"
