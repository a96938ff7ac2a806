"""Retail and airline: whatever a call holds, it gets a text, and where it does not fit nothing changes."""

import json
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interaction.call import Call
from interaction.outcome import ErrorKind
from tau_env import airline, retail
from tau_env.attempt import MAX_RESULT_CHARS, Attempt

DOMAINS = (retail, airline)
FILLED: dict[str, Any] = {"string": "x", "integer": 1, "array": []}
ILL_TYPED: dict[str, tuple[Any, ...]] = {
    "string": (None, 1, 1.5, True, [], {}, ["x"]),
    "integer": (None, "1", 1.5, True, [], {}, float("nan"), float("inf")),
    "array": (None, 1, "x", True, {}, ("x",), [1], [None], [["x"]]),
}


def filled(parameters: dict[str, Any]) -> dict[str, Any]:
    """Arguments that fit."""
    return {
        name: expected["enum"][0] if "enum" in expected else FILLED[expected["type"]]
        for name, expected in parameters["properties"].items()
    }


def cases() -> Iterator[Any]:
    for domain in DOMAINS:
        for doc in domain.functions("agent"):
            yield pytest.param(domain, doc, id=f"{domain.NAME}-{doc['name']}")


def opened(domain: Any) -> Attempt:
    attempt: Attempt = domain.open(domain.load_tasks()[0])
    return attempt


def assert_unfit(domain: Any, name: str, arguments: dict[str, Any], *words: str) -> None:
    attempt = opened(domain)
    before = attempt.digest()
    result = attempt.call(Call(name, arguments), "agent")
    assert result.error is ErrorKind.BAD_ARGUMENTS, result
    assert result.text.startswith("Error: Found ")
    assert all(word in result.text for word in words), result.text
    assert attempt.digest() == before and not attempt.written


@pytest.mark.parametrize(("domain", "doc"), tuple(cases()))
def test_what_fits_the_documentation_is_not_called_unfit(domain: ModuleType, doc: dict[str, Any]) -> None:
    result = opened(domain).call(Call(doc["name"], filled(doc["parameters"])), "agent")
    assert result.error in (None, ErrorKind.RESULT)
    assert (result.error is None) == (not result.text.startswith("Error: "))


@pytest.mark.parametrize(("domain", "doc"), tuple(cases()))
def test_a_missing_argument_is_named(domain: ModuleType, doc: dict[str, Any]) -> None:
    for name in doc["parameters"]["required"]:
        arguments = {key: value for key, value in filled(doc["parameters"]).items() if key != name}
        assert_unfit(domain, doc["name"], arguments, f"- '{name}' is a required property")


@pytest.mark.parametrize(("domain", "doc"), tuple(cases()))
def test_surplus_arguments_are_named_in_their_order(domain: ModuleType, doc: dict[str, Any]) -> None:
    arguments = {"tables": 1, **filled(doc["parameters"]), "_": 2}
    words = "Additional properties are not allowed ('_', 'tables' were unexpected)"
    assert_unfit(domain, doc["name"], arguments, "Found 1 validation", words)
    assert_unfit(domain, doc["name"], filled(doc["parameters"]) | {"self": 1}, "('self' was unexpected)")


@pytest.mark.parametrize(("domain", "doc"), tuple(cases()))
def test_an_argument_of_another_type_is_named_by_value(domain: ModuleType, doc: dict[str, Any]) -> None:
    for name, expected in doc["parameters"]["properties"].items():
        for value in ILL_TYPED[expected["type"]]:
            if type(value) is tuple or not isinstance(value, list):
                words = f"{value!r} is not of type '{expected['type']}'"
            else:
                words = "is not of type" if "anyOf" not in expected.get("items", {}) else "is not valid under any"
            assert_unfit(domain, doc["name"], filled(doc["parameters"]) | {name: value}, words)
        if "enum" in expected:
            wrong = filled(doc["parameters"]) | {name: "first"}
            assert_unfit(domain, doc["name"], wrong, f"'first' is not one of {expected['enum']}")


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize(
    "name", ["", "nothing", "__init__", "edit", "open", "Calculate", "calculate ", "é\ud800", "x" * 10**6]
)
def test_an_unknown_name_is_said_to_be_unknown(domain: ModuleType, name: str) -> None:
    result = opened(domain).call(Call(name, {"a": [1]}), "agent")
    assert result.error is ErrorKind.UNKNOWN_FUNCTION
    assert result.text.startswith("Error: Tool ") and len(result.text) < MAX_RESULT_CHARS
    result.text.encode()


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_user_has_no_tools(domain: ModuleType) -> None:
    assert domain.functions("user") == ()
    for doc in domain.functions("agent"):
        result = opened(domain).call(Call(doc["name"], filled(doc["parameters"])), "user")
        assert result.error is ErrorKind.UNKNOWN_FUNCTION


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


HOSTILE = {
    "deep": nested(5_000),
    "wide": ["x"] * 100_000,
    "long": "A" * 1_000_000,
    "huge": 10**5_000,
    "set": {1},
    "class": ErrorKind,
    "surrogate": "\ud800",
    "nul": "\x00",
    "format": "{0.__class__} %s $x",
    "keys": {1: 2, None: 3},
    "nested surrogates": [{"first_name": "\udfff", "last_name": "", "dob": ""}],
}


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize(("domain", "doc"), tuple(cases()))
def test_hostile_values_get_a_text_and_change_nothing(domain: ModuleType, doc: dict[str, Any], value: Any) -> None:
    attempt = opened(domain)
    before = attempt.digest()
    for name in doc["parameters"]["properties"]:
        result = attempt.call(Call(doc["name"], filled(doc["parameters"]) | {name: value}), "agent")
        result.text.encode()
        assert len(result.text) <= MAX_RESULT_CHARS
    assert attempt.call(Call(doc["name"], {"value": value}), "agent").error is not None
    assert attempt.digest() == before and not attempt.written


@pytest.mark.parametrize("domain", DOMAINS)
def test_positions_name_no_argument(domain: ModuleType) -> None:
    result = opened(domain).call(Call("get_user_details", {}, ("x",)), "agent")
    assert result.error is ErrorKind.BAD_ARGUMENTS


def test_texts_that_cannot_be_written_are_not_stored() -> None:
    shop = opened(retail)
    user_id = next(iter(shop._tables._base.tables["users"]))
    fields = dict.fromkeys(("address1", "address2", "city", "state", "country", "zip"), "x")
    result = shop.call(Call("modify_user_address", {**fields, "user_id": user_id, "city": "\ud800"}), "agent")
    assert result.error is ErrorKind.BAD_ARGUMENTS and "city" in result.text and not shop.changed()


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize("domain", DOMAINS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_no_arguments_raise(domain: ModuleType, data: st.DataObject) -> None:
    doc = data.draw(st.sampled_from(domain.functions("agent")))
    drawn = {name: data.draw(PLAIN) for name in doc["parameters"]["properties"]}
    attempt = opened(domain)
    for arguments in (drawn, filled(doc["parameters"]) | dict(list(drawn.items())[:1])):
        result = attempt.call(Call(doc["name"], arguments), "agent")
        result.text.encode()
        if doc["name"] not in domain.WRITES:
            assert not attempt.changed() and not attempt.written


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_documentation_is_plain_json_and_names_every_write(domain: ModuleType) -> None:
    docs = domain.functions("agent")
    assert json.loads(json.dumps(docs)) == list(docs)
    assert {doc["name"] for doc in docs} > domain.WRITES
    assert all(set(doc) == {"name", "description", "parameters"} for doc in docs)


@pytest.mark.parametrize("domain", DOMAINS)
def test_being_transferred_is_said(domain: ModuleType) -> None:
    attempt = opened(domain)
    result = attempt.call(Call("transfer_to_human_agents", {"summary": ""}), "agent")
    assert (result.text, result.error) == ("Transfer successful", None)
    assert not attempt.written
