"""Objects inside a call's lists (flights, passengers, payments), as upstream's models take them.

Further fields are left out, and a whole number may be a text or a fraction without remainder. The documentation lets
any object pass, so what does not fit is found here; pydantic's text about it is replaced by one sentence.
"""

import re
from typing import Any

from tau_env.attempt import Overfull, Unfit, storable
from tau_env.records import Record

MAX_LIST = 200
"""Flights, passengers or payments of one call."""
_MAX_FLOAT = 2.0**63
_MAX_DIGITS = 1_000
_WHOLE = re.compile(r"[+-]?[0-9]+(_[0-9]+)*(\.0+)?")
_NOT_BLANK = frozenset("\x1c\x1d\x1e\x1f")
"""Blanks to Python, but not to pydantic."""


def flights_in(rows: list[Any]) -> list[Record]:
    """Number and date of each. Raises: Unfit, Overfull."""
    return [_texts("flights", number, row, ("flight_number", "date")) for number, row in enumerate(_bounded(rows))]


def passengers_in(rows: list[Any]) -> list[Record]:
    """Names and date of birth of each. Raises: Unfit, Overfull."""
    fields = ("first_name", "last_name", "dob")
    return [_texts("passengers", number, row, fields) for number, row in enumerate(_bounded(rows))]


def payments_in(rows: list[Any]) -> list[Record]:
    """Id and amount of each. Raises: Unfit, Overfull."""
    payments = []
    for number, row in enumerate(_bounded(rows)):
        payment: dict[str, Any] = _texts("payment_methods", number, row, ("payment_id",))
        if "amount" not in row:
            raise Unfit(f"payment_methods[{number}] has no field amount")
        payment["amount"] = _whole(f"payment_methods[{number}]", row["amount"])
        payments.append(payment)
    return payments


def _bounded(rows: list[Any]) -> list[Any]:
    if len(rows) > MAX_LIST:
        raise Overfull(f"too many entries in a list: at most {MAX_LIST} are allowed")
    return rows


def _texts(name: str, number: int, row: dict[Any, Any], fields: tuple[str, ...]) -> Record:
    for field in fields:
        if field not in row:
            raise Unfit(f"{name}[{number}] has no field {field}")
        if type(row[field]) is not str:
            raise Unfit(f"{name}[{number}]: {field} must be text")
    return storable({field: row[field] for field in fields})


def _whole(where: str, value: Any) -> int:
    if type(value) is int or type(value) is bool:
        return int(value)
    if type(value) is float and value.is_integer() and -_MAX_FLOAT < value < _MAX_FLOAT:
        return int(value)
    if type(value) is str and len(value) <= _MAX_DIGITS and _NOT_BLANK.isdisjoint(value):
        if _WHOLE.fullmatch(text := value.strip()):
            return int(text.partition(".")[0])
    raise Unfit(f"{where}: amount must be a whole number")
