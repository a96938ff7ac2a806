"""Fields that entries of all categories have, checked: a value that is returned is as its function says."""

from collections.abc import Mapping
from typing import Any

from bfcl_env.entries.mistakes import Tell, show

MISSING = "nothing"
OLD_NAMES = {"invoked_classes": "involved_classes", "involved_path": "path"}
"""Other spellings of keys."""


def renamed(entry: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """The entry with its keys as BFCL spells them."""
    found = dict(entry)
    for old, new in OLD_NAMES.items():
        if old not in found:
            continue
        value = found.pop(old)
        if found.setdefault(new, value) != value:
            tell(old, f"another value than {new} has", f"one of the two: {old} is another spelling of {new}")
    return found


def shown(entry: Mapping[str, Any], field: str) -> str:
    """A field's value as text, or that there is none."""
    return show(entry[field]) if field in entry else MISSING


def texts(value: Any, field: str, expected: str, tell: Tell) -> list[str] | None:
    """A list of texts; None if it is none."""
    if isinstance(value, list) and all(isinstance(item, str) and item for item in value):
        return value
    tell(field, show(value), expected)
    return None


Messages = list[dict[str, str]]


def question(entry: Mapping[str, Any], roles: tuple[str, ...], tell: Tell) -> list[Messages] | None:
    """The turns of a question, each a list of messages with `role` and `content`, which may be empty; None if wrong."""
    turns = entry.get("question")
    expected = 'turns, each a list of messages: [[{"role": "user", "content": "..."}], ...]'
    if not isinstance(turns, list) or not turns:
        tell("question", shown(entry, "question"), expected)
        return None
    right = True
    for number, turn in enumerate(turns):
        if not isinstance(turn, list):
            tell(f"question[{number}]", show(turn), expected)
            right = False
            continue
        for place, message in enumerate(turn):
            right &= _is_message(message, f"question[{number}][{place}]", roles, tell)
    return turns if right else None


def _is_message(message: Any, field: str, roles: tuple[str, ...], tell: Tell) -> bool:
    if not isinstance(message, dict) or not {"role", "content"} <= message.keys():
        tell(field, show(message), "an object with role and content")
    elif message["role"] not in roles:
        tell(f"{field}.role", show(message["role"]), " or ".join(roles))
    elif not isinstance(message["content"], str) or not message["content"].strip():
        tell(f"{field}.content", show(message["content"]), "the words as text")
    elif more := message.keys() - {"role", "content"}:
        tell(
            field,
            f"also {', '.join(map(show, sorted(more)))}",
            "role and content alone, as a model sees nothing else",
        )
    else:
        return True
    return False
