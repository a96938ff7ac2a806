"""Retail and airline: records that are copied when they are written, and when two states are equal."""

import json
from typing import Any

import pytest

from tau_env.records import MAX_DIFFERENCE_CHARS, MAX_DIFFERENCES, Base, Tables

FILE: dict[str, dict[str, dict[str, Any]]] = {
    "users": {"u": {"name": "U", "cards": {"a": {"amount": 1.0}}, "orders": ["x", "y"]}},
    "orders": {f"o{number}": {"paid": [number]} for number in range(20)},
}


@pytest.fixture
def base() -> Base:
    return Base("file", json.loads(json.dumps(FILE)))


def test_a_draft_is_seen_when_it_is_kept_and_by_its_attempt_alone(base: Base) -> None:
    one, other = Tables(base), Tables(base)
    one.edit("users", "u")["cards"]["a"]["amount"] = 2.0
    one.add("orders", "new", {"paid": []})
    assert one.get("users", "u") == FILE["users"]["u"] and one.get("orders", "new") is None
    assert one.keep()
    changed = one.get("users", "u")
    assert changed is not None and changed["cards"]["a"]["amount"] == 2.0
    assert one.get("orders", "new") == {"paid": []}
    assert other.get("users", "u") == FILE["users"]["u"] and other.get("orders", "new") is None
    assert base.tables == FILE


def test_a_draft_that_is_dropped_leaves_nothing(base: Base) -> None:
    tables = Tables(base)
    tables.edit("users", "u")["name"] = "V"
    tables.drop()
    assert not tables.keep() and tables.digest() == Tables(base).digest()


def test_an_edit_within_one_call_sees_the_one_before(base: Base) -> None:
    tables = Tables(base)
    tables.edit("orders", "o1")["paid"].append(5)
    tables.edit("orders", "o1")["paid"].append(6)
    tables.keep()
    tables.edit("orders", "o1")["paid"].append(7)
    tables.keep()
    assert tables.get("orders", "o1") == {"paid": [1, 5, 6, 7]}


def test_an_unknown_record_cannot_be_edited(base: Base) -> None:
    with pytest.raises(KeyError):
        Tables(base).edit("users", "nobody")


def state(base: Base, *edits: tuple[str, str, dict[str, Any]]) -> Tables:
    tables = Tables(base)
    for table, key, fields in edits:
        record = tables.edit(table, key) if key in base.tables[table] else {}
        record.update(fields)
        tables.add(table, key, record)
        tables.keep()
    return tables


def test_states_are_equal_where_their_sorted_json_is(base: Base) -> None:
    """Not the way there, nor the order of keys; but the order in lists, and 1 is not 1.0."""
    cards = {"a": {"amount": 1.0}, "b": {}}
    there = state(base, ("users", "u", {"cards": cards}), ("orders", "o1", {"paid": [9]}))
    turned = {"b": {}, "a": {"amount": 1.0}}
    way = state(
        base, ("orders", "o1", {"paid": [8]}), ("orders", "o1", {"paid": [9]}), ("users", "u", {"cards": turned})
    )
    assert there.digest() == way.digest()
    back = state(base, ("users", "u", {"name": "V"}), ("users", "u", {"name": "U"}))
    assert back.digest() == Tables(base).digest() and back.changed() == {}
    for fields in ({"orders": ["y", "x"]}, {"cards": {"a": {"amount": 1}}}, {"more": None}, {"name": None}):
        assert state(base, ("users", "u", fields)).digest() != Tables(base).digest()
    assert Tables(base).digest() != Tables(Base("other file", base.tables)).digest()
    assert state(base, ("orders", "n", {})).digest() != state(base, ("users", "n", {})).digest()


def test_keeping_tells_whether_anything_changed(base: Base) -> None:
    tables = Tables(base)
    tables.edit("users", "u")["name"] = "U"
    assert not tables.keep()
    tables.edit("users", "u")["cards"]["a"]["amount"] = 1
    assert tables.keep()


def test_differences_name_place_and_values(base: Base) -> None:
    expected = state(base, ("users", "u", {"name": "V" * 500, "orders": ["x", "z"]}), ("orders", "new", {"paid": []}))
    found = state(base, ("users", "u", {"orders": ["x"], "extra": 1}))
    rows = {row["where"]: row for row in found.differences(expected)}
    assert set(rows) == {"orders/new", "users/u/extra", "users/u/name", "users/u/orders"}
    assert rows["orders/new"]["found"] == "nothing"
    assert rows["users/u/extra"] == {"where": "users/u/extra", "expected": "nothing", "found": "1"}
    assert rows["users/u/orders"]["expected"] == '["x", "z"]'
    assert len(rows["users/u/name"]["expected"]) == MAX_DIFFERENCE_CHARS
    assert Tables(base).differences(Tables(base)) == ()


def test_ten_differences_are_enough(base: Base) -> None:
    many = state(base, *(("orders", f"o{number}", {"paid": [number, 1]}) for number in range(20)))
    assert len(Tables(base).differences(many)) == MAX_DIFFERENCES
