"""Snapshots of BFCL instances, and what differs between a snapshot and an instance.

The state of an instance is its public attributes, as in BFCL's checker; private ones (names with a leading
underscore, such as the current directory) are not compared.
"""

import copy
import os.path
from collections.abc import Iterator
from typing import Any

from bfcl_env.limits import tree_too_large

State = dict[str, dict[str, Any]]
"""Class name to attribute name to value."""

MAX_SHOWN = 200
CONTEXT = 20
"""Characters shown of what two long texts have in common before they differ."""
_ATOMS = (str, int, float, bool, type(None))
_MISSING = object()


def snapshot(instances: dict[str, Any], previous: State | None = None) -> State | None:
    """Copies of all public attributes, sharing with `previous` whatever has not changed since.

    Returns:
        None if a file tree has grown beyond what may be copied; gold never does that.
    """
    state: State = {}
    for class_name, instance in instances.items():
        live = {name: value for name, value in vars(instance).items() if not name.startswith("_")}
        if class_name == "GorillaFileSystem" and tree_too_large(live["root"]):
            return None
        before = previous[class_name] if previous else {}
        state[class_name] = {
            name: before[name] if name in before and before[name] == value else clone(value)
            for name, value in live.items()
        }
    return state


def clone(value: Any) -> Any:
    """A deep copy, quick for what BFCL's states are made of."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is dict:
        return {key: clone(item) for key, item in value.items()}
    if kind is list:
        return [clone(item) for item in value]
    if kind.__name__ == "Directory":
        # Copied by hand: deepcopy would follow the parents and copy time stamps, at twenty times the cost.
        twin = kind(value.name)
        twin.contents = clone(value.contents)
        return twin
    if kind.__name__ == "File":
        return kind(value.name, value.content)
    return copy.deepcopy(value)


def matches(expected: State, instances: dict[str, Any]) -> bool:
    """True if every public attribute of every class equals the snapshot's."""
    return next(_differing(expected, instances), None) is None


def differences(expected: State, instances: dict[str, Any]) -> tuple[dict[str, str], ...]:
    """The differing attributes, each narrowed down to the first place inside it that differs."""
    found = []
    for class_name, name, value, actual in _differing(expected, instances):
        path, wanted, got = _narrow(name, value, actual)
        at = _first_difference(wanted, got)
        found.append({"class": class_name, "attribute": path, "expected": show(wanted, at), "actual": show(got, at)})
    return tuple(found)


def _differing(expected: State, instances: dict[str, Any]) -> Iterator[tuple[str, str, Any, Any]]:
    for class_name, attributes in expected.items():
        live = vars(instances[class_name])
        for name, value in attributes.items():
            if (actual := live.get(name, _MISSING)) != value:
                yield class_name, name, value, actual


def _narrow(path: str, expected: Any, actual: Any) -> tuple[str, Any, Any]:
    left, right = _children(expected), _children(actual)
    if left is None or right is None or type(expected) is not type(actual):
        return path, expected, actual
    for key in [*left, *(key for key in right if key not in left)]:
        wanted, got = left.get(key, _MISSING), right.get(key, _MISSING)
        if wanted is _MISSING or got is _MISSING:
            return f"{path}/{key}", wanted, got
        if got != wanted:
            return _narrow(f"{path}/{key}", wanted, got)
    return path, expected, actual


def _children(value: Any) -> dict | None:
    if type(value) is dict:
        return value
    if type(value) is list:
        return dict(enumerate(value))
    return getattr(value, "contents", None) if type(value).__name__ == "Directory" else None


def _first_difference(expected: Any, actual: Any) -> int:
    """Where two long texts begin to differ; 0 for everything else."""
    texts = [item.content if type(item).__name__ == "File" else item for item in (expected, actual)]
    if not all(type(text) is str for text in texts) or max(map(len, texts)) < MAX_SHOWN:
        return 0
    return len(os.path.commonprefix(texts))


def show(value: Any, start: int = 0) -> str:
    """A short text for a value of unknown size; of a text, leaves out what comes well before `start`."""
    if value is _MISSING:
        return "absent"
    if type(value).__name__ == "Directory":
        return f"directory with {len(value.contents)} entries"
    if type(value).__name__ == "File":
        value = value.content
    if start > CONTEXT and type(value) is str:
        return f"from character {start - CONTEXT}: {show(value[start - CONTEXT :])}"
    try:
        text = repr(value)
    except Exception:  # A list or dict that a model has made to contain too much to show.
        return type(value).__name__
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}... ({len(text)} characters)"
