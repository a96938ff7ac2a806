"""Values of users' classes: what they are in JSON, and when two are equal."""

import math
from collections import deque
from collections.abc import MappingView, Sequence, Set
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from interaction.contract import ContractError

CLOSE = 1e-9
"""Floats that differ by no more than this, or than this share of the larger one, are equal."""
ADVICE = "give the class of the tools a method __eq__ or state() that compares what counts"


def in_json(value: Any) -> Any:
    """A value in JSON's types: arrays and sets as lists, dates as text. Raises ContractError where JSON has none."""
    return to_jsonable_python(_sorted(value), fallback=_converted)


def _sorted(value: Any) -> Any:
    """With sets in an order that does not depend on how they were filled."""
    if isinstance(value, dict):
        return {key: _sorted(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(_sorted, value), key=repr)
    return list(map(_sorted, value)) if isinstance(value, list | tuple) else value


def _converted(value: Any) -> Any:
    """What pydantic does not know."""
    if hasattr(value, "tolist"):  # arrays and numbers of numpy
        return value.tolist()
    if isinstance(value, Sequence | Set | MappingView):
        return list(value)  # type: ignore[arg-type]
    raise ContractError(f"{type(value).__name__}, for which JSON has no value")


def same_state(one: Any, other: Any) -> bool:
    """Whether objects of a class with tools are alike: by its `__eq__`, else by `state()`, else by their attributes."""
    kind: Any = type(one)
    if kind.__eq__ is not object.__eq__:
        return same(one, other)
    if hasattr(kind, "state"):
        return same(one.state(), other.state())
    return same(object.__getstate__(one), object.__getstate__(other))  # type: ignore[attr-defined]


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal: floats by `CLOSE`, also in lists, dicts, sets, dataclasses and arrays of numpy."""
    one, other = _parts(one), _parts(other)
    how: Any = type(one).__eq__ if type(one).__eq__ is type(other).__eq__ else None
    if isinstance(one, float) or isinstance(other, float):
        with suppress(TypeError, OverflowError):
            return math.isclose(one, other, rel_tol=CLOSE, abs_tol=CLOSE) or (one != one and other != other)
    if how is dict.__eq__:
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if how in (list.__eq__, tuple.__eq__, deque.__eq__):
        return len(one) == len(other) and all(map(same, one, other))
    if how in (set.__eq__, frozenset.__eq__):
        return one == other or same(_sorted(one - other), _sorted(other - one))
    try:
        return one is other or bool(one == other)
    except (TypeError, ValueError) as error:
        raise ContractError(f"two of {type(one).__name__} cannot be compared: {error}; {ADVICE}") from error


def _parts(value: Any) -> Any:
    """What `==` compares in an array, and in a dataclass or model whose `==` nobody has written; else the value."""
    kind: Any = type(value)
    if hasattr(kind, "__array_interface__"):
        return value.tolist()
    if is_dataclass(value) and getattr(kind.__eq__, "__code__", in_json.__code__).co_filename == "<string>":
        return [kind, *(getattr(value, item.name) for item in fields(value) if item.compare)]
    return [kind, vars(value)] if kind.__eq__ is BaseModel.__eq__ else value
