"""Whatever a model writes: never an exception, never a changed state after an error, never a text out of bounds."""

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interaction.call import Call
from interaction.outcome import ErrorKind
from tau_env import telecom
from tau_env.telecom.database import MAX_RESULT_CHARS

TASKS = telecom.load_tasks()
NAMES = [document["name"] for side in ("agent", "user") for document in telecom.functions(side)]
KEYS = sorted(
    {key for side in ("agent", "user") for each in telecom.functions(side) for key in each["parameters"]["properties"]}
)


def nested(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(
        ["C1001", "L1002", "messaging", "sms", "\ud800", "\x00", "x" * 60_000, 10**4000, nested(500), {"a": {"b": {}}}]
    )
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(NAMES) | st.text(max_size=20) | st.sampled_from(["__class__", "open", "x" * 60_000, "\udfff"])
arguments = st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), values, max_size=4)
calls = st.builds(Call, names, arguments, st.tuples() | st.tuples(values))


@settings(max_examples=120, deadline=None)
@given(st.lists(st.tuples(calls, st.sampled_from(["agent", "user"])), max_size=5), st.sampled_from(TASKS[::97]))
def test_no_call_raises_and_none_that_failed_changes_anything(moves, task):
    database = telecom.open(task)
    for call, side in moves:
        before, known = database.digest(), len(database.written)
        result = database.call(call, side)
        result.text.encode()
        assert len(result.text) < MAX_RESULT_CHARS + 100
        if result.error is not None and "[cut: " not in result.text:
            assert database.digest() == before
        assert (database.digest() != before) == (len(database.written) > known)


@pytest.mark.parametrize("name", [None, 5, b"x", ("a",), ["check_sim_status"], {}, True])
def test_a_name_that_is_no_text_is_not_known(name):
    result = telecom.open(TASKS[0]).call(Call(name, {}), "user")
    assert result.error == ErrorKind.UNKNOWN_FUNCTION


@pytest.mark.parametrize("key", [None, 5, 10**4000, ("a",), True])
def test_an_argument_whose_name_is_no_text_is_refused(key):
    result = telecom.open(TASKS[0]).call(Call("check_sim_status", {key: 1}), "user")
    assert result.error == ErrorKind.LIMIT
    assert len(result.text) < 200


def test_a_text_that_is_echoed_is_cut():
    result = telecom.open(TASKS[0]).call(Call("check_app_status", {"app_name": "x" * 45_000}), "user")
    assert result.error == ErrorKind.RESULT
    assert result.text.endswith("[cut: the result has 45031 characters]")


def test_a_bill_that_grows_with_every_call_does_not_grow_its_text_without_bound():
    database = telecom.open(TASKS[0])
    refuel = Call("refuel_data", {"customer_id": "C1001", "line_id": "L1002", "gb_amount": 1.0})
    for _ in range(300):
        assert database.call(refuel, "agent").error is None
    result = database.call(Call("get_details_by_id", {"id": "B1003"}), "agent")
    assert result.error == ErrorKind.LIMIT and len(result.text) < MAX_RESULT_CHARS + 100


def test_nothing_that_looks_like_code_or_a_format_is_more_than_a_text():
    database = telecom.open(TASKS[0])
    for text in ("{0.__class__}", "%s%s%s", "__import__('os').system('true')", "{state}", string.printable):
        result = database.call(Call("set_network_mode_preference", {"mode": text}), "user")
        assert f"'{text}' is not a valid option" in result.text
