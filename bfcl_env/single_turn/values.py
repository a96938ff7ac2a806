"""Whether a value is one that a task accepts: its type first, then the value itself, by BFCL's rules or by ours.

Kinds of mismatches are BFCL's own. The rules are those of its `ast_checker.py` in bfcl-eval 2026.3.23; where ours
depart from them (`official=False`) stands in `differences.py`. Values are bounded before they come here.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

TYPES: dict[str, type] = {
    "string": str,
    "integer": int,
    "float": float,
    "boolean": bool,
    "array": list,
    "tuple": list,
    "dict": dict,
    "any": str,
}
"""Documented type -> Python's, for Python's functions. `any` is text, or whatever the accepted values are."""
COLLECTIONS = ("array", "tuple")
"""Types whose elements have a documented type."""

LEFT_OUT = ""
"""Among accepted values: the argument, or key, may be left out."""

UNCLEAR = "value_error:others"
"""Also where BFCL calls a mismatch unclear."""

_IGNORED = " ,./-_*^"
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)\Z")


def find_mismatch(
    value: Any, accepted: Sequence[Any], outer: type, inner: type | None, *, official: bool
) -> str | None:
    """The kind of mismatch between a value and all accepted ones; None where it is accepted.

    Args:
        accepted: BFCL's list of accepted values of one argument.
        outer: Python's type of the documented one.
        inner: the same of a list's elements; None leaves them unchecked.
    """
    wrong, variable = _check_type(value, accepted, outer, inner, official)
    if wrong:
        return wrong
    if not variable and outer is dict:
        return _check_dict(value, accepted, official)
    if not variable and outer is list and inner is dict:
        return _check_dicts(value, accepted, official)
    if not variable and outer is str:
        same = any(type(answer) is str and same_text(value, answer, official) for answer in accepted)
        return None if same else "value_error:string"
    if not variable and outer is list:
        same = any(_same_list(value, answer, official) for answer in accepted)
        return None if same else "value_error:list/tuple"
    same = any(value == answer if official else _equal(value, answer) for answer in accepted)
    return None if same else UNCLEAR


def same_text(found: str, wanted: str, official: bool) -> bool:
    """BFCL's comparison of texts: without case, spaces and ` ,./-_*^`, and with one kind of quotes."""
    plain = _standardize(found)
    if plain != _standardize(wanted):
        return False
    if official or found == wanted:
        return True
    if _NUMBER.match(found) and _NUMBER.match(wanted):
        return float(found) == float(wanted)
    return bool(plain)


def _standardize(text: str) -> str:
    for sign in _IGNORED:  # Ten times as fast as a regular expression on a text full of them.
        text = text.replace(sign, "")
    return text.lower().replace("'", '"')


def _check_type(
    value: Any, accepted: Sequence[Any], outer: type, inner: type | None, official: bool
) -> tuple[str | None, bool]:
    """The kind of a wrong type, and whether to compare the value as a variable's name: as it is.

    BFCL takes it for one if the first accepted value is of another type than the documented one.
    """
    first = next((type(answer) for answer in accepted if answer != LEFT_OUT), None)
    variable = first is not None and first is not outer
    if type(value) is outer:
        if inner is None or any(_check_elements(value, answer, inner, official) for answer in accepted):
            return None, variable
        if first is outer:
            return "type_error:nested", variable
    return (None, True) if first is type(value) else ("type_error:simple", variable)


def _check_elements(value: Any, answer: Any, inner: type, official: bool) -> bool:
    """Whether a list's elements have the type documented, or that of the first accepted element."""
    if type(answer) is not list:
        return True
    first = next((type(element) for element in answer if element != LEFT_OUT), None)
    allowed = {inner, first} if official or inner is not float else {inner, first, int}
    return all(type(item) in allowed for item in value)


def _same_list(found: list[Any], answer: Any, official: bool) -> bool:
    """An answer that is a text is a list of its characters to BFCL, and LEFT_OUT therefore an empty list."""
    if type(answer) is not list and not (type(answer) is str and (official or answer == LEFT_OUT)):
        return False
    return len(found) == len(answer) and all(
        _same(item, wanted, official) for item, wanted in zip(found, answer, strict=True)
    )


def _check_dict(found: Mapping[Any, Any], accepted: Iterable[Any], official: bool) -> str | None:
    wrong: str | None = UNCLEAR
    for answer in accepted:
        if type(answer) is dict:
            wrong = _check_keys(found, answer, official)
            if wrong is None:
                return None
    return wrong


def _check_keys(found: Mapping[Any, Any], answer: Mapping[Any, Any], official: bool) -> str | None:
    if any(key not in found and not _may_miss(values, official) for key, values in answer.items()):
        return "value_error:dict_key"
    for key, value in found.items():
        if key not in answer:
            return "value_error:dict_key"
        if not any(_same(value, wanted, official) for wanted in _values(answer[key], official)):
            return "value_error:dict_value"
    return None


def _values(accepted: Any, official: bool) -> Iterable[Any]:
    """Accepted values of a key. One that stands there without its list is the characters of a text to BFCL."""
    if type(accepted) is list:
        return accepted
    if official:
        return accepted if type(accepted) is str else ()
    return (accepted,)


def _may_miss(accepted: Any, official: bool) -> bool:
    return type(accepted) is str if official and type(accepted) is not list else LEFT_OUT in _values(accepted, official)


def _check_dicts(found: Sequence[Any], accepted: Iterable[Any], official: bool) -> str | None:
    wrong: str | None = UNCLEAR
    for answer in accepted:
        if type(answer) not in (list, str):
            continue
        if len(found) != len(answer):
            wrong = "value_error:list_dict_count"
            continue
        pairs = zip(found, answer, strict=True)
        checks = (_check_dict(item, [wanted], official) if type(item) is dict else UNCLEAR for item, wanted in pairs)
        wrong = next(filter(None, checks), None)
        if wrong is None:
            return None
    return wrong


def _same(found: Any, wanted: Any, official: bool) -> bool:
    """Elements of lists and values of objects: texts as texts, everything below as it is."""
    if type(found) is str and type(wanted) is str:
        return same_text(found, wanted, official)
    return bool(found == wanted) if official else _equal(found, wanted)


def _equal(found: Any, wanted: Any) -> bool:
    """Python's equality, but True is not 1, on any level."""
    if isinstance(found, bool) or isinstance(wanted, bool):
        return found is wanted
    if isinstance(found, list) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(_equal, found, wanted))
    if isinstance(found, dict) and isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(_equal(value, wanted[key]) for key, value in found.items())
    return bool(found == wanted)
