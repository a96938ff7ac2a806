"""Values of users' classes: what they are in JSON, and when two are equal."""

import math
import sys
from collections.abc import Iterator, MappingView, Sequence, Set
from contextlib import suppress
from dataclasses import fields, is_dataclass
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, RootModel
from pydantic_core import to_jsonable_python

from interaction.contract import ContractError

CLOSE, SHARE = 1e-9, 1e-13
"""Floats that differ by no more than the first, or than this share of the larger one, are equal: timestamps differ."""
ADVICE = "give the class of the tools a method __eq__ or state() that compares what counts"


def in_json(value: Any) -> Any:
    """A value in JSON's types: arrays and sets as lists, dates as text. Raises ContractError where JSON has none."""
    return to_jsonable_python(_sorted(value), fallback=_converted)


def _sorted(value: Any) -> Any:
    """With sets in an order that does not depend on how they were filled, also in dataclasses and models."""
    if isinstance(value, BaseModel):
        value = value.__pydantic_serializer__.to_python(value, by_alias=True)
    elif is_dataclass(value) and not isinstance(value, type) and not hasattr(value, "__pydantic_serializer__"):
        value = {item.name: getattr(value, item.name) for item in fields(value)}
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
    judged = kind.__eq__ is object.__eq__ and hasattr(kind, "state")
    return same(one.state(), other.state()) if judged else same(one, other)


def same(one: Any, other: Any, met: Any = None) -> bool:
    """Whether two values are equal: by an `__eq__` that someone has written, else part by part, floats by `CLOSE`."""
    met = {} if met is None else met  # pairs, kept so that no other object gets their ids
    if one is other or (id(one), id(other)) in met:
        return True
    met[id(one), id(other)] = one, other
    one, other = _parts(one), _parts(other)
    how: Any = type(one).__eq__ if type(one).__eq__ is type(other).__eq__ else None
    if isinstance(one, float) or isinstance(other, float):
        with suppress(TypeError, OverflowError):
            return math.isclose(one, other, rel_tol=SHARE, abs_tol=CLOSE) or (one != one and other != other)
    if how is dict.__eq__:
        left, right = ([item for item in a.items() if item[0] not in b] for a, b in ((one, other), (other, one)))
        found = len(left) == len(right) and all(any(same(a, b) for b in right) for a in left)
        return found and all(same(value, other[key], met) for key, value in one.items() if key in other)
    if how in (list.__eq__, tuple.__eq__):
        return len(one) == len(other) and all(same(a, b, met) for a, b in zip(one, other, strict=True))
    try:
        if one == other or not (how and _made(how)) or isinstance(one, str | bytes | int) or type(one) is object:
            return bool(one == other)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ContractError(f"two of {type(one).__name__} cannot be compared: {error}; {ADVICE}") from error
    try:  # as pickle takes them apart
        pairs = [[[*part] if isinstance(part, Iterator) else part for part in v.__reduce_ex__(2)] for v in (one, other)]
    except TypeError:  # functions, locks
        return False
    return same(pairs[0], pairs[1], met)


def _made(how: Any) -> bool:
    """Whether an `__eq__` is Python's own, or made by a decorator."""
    file = getattr(getattr(how, "__code__", None), "co_filename", "<string>")
    return file.startswith(("<string>", "<attrs")) or how.__module__.partition(".")[0] in sys.stdlib_module_names


def _parts(value: Any) -> Any:
    """What `==` compares in an array, a set, a dataclass or a model; else the value."""
    kind: Any = type(value)
    if hasattr(kind, "__array_interface__"):
        return value.tolist()
    if kind.__eq__ in (set.__eq__, frozenset.__eq__):
        return dict.fromkeys(value, set)
    if is_dataclass(value) and kind.__eq__ is not object.__eq__ and _made(kind.__eq__):
        return [kind, *(getattr(value, item.name) for item in fields(value) if item.compare)]
    if kind.__eq__ in (BaseModel.__eq__, RootModel.__eq__):
        shown = [getattr(value, name) for name in kind.model_fields]
        return [kind, shown, value.__pydantic_extra__, value.__pydantic_private__]
    return dict(value) if kind is MappingProxyType else value
