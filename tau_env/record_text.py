"""Records as the text a model reads, character for character as pydantic writes its models.

That is compact JSON of the fields in the order of the model, with text unescaped. It differs from Python's own JSON in
small numbers (0.00001 and 1e-7 for 1e-05 and 1e-07) and in writing null for what is not finite.
"""

import json
import math
from typing import Any

_encode = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode
_encode_spaced = json.JSONEncoder(check_circular=False).encode


def to_text(record: Any) -> str:
    """A record, as `model_dump_json` writes it."""
    text = _encode(record)
    if "e-0" in text or "NaN" in text or "Infinity" in text:  # A number that pydantic writes differently, or some text.
        return _write(record)
    return text


def to_listing(rows: Any) -> str:
    """What upstream writes with `json.dumps`: blanks after separators, text escaped to ASCII."""
    return _encode_spaced(rows)


def _write(value: Any) -> str:
    if type(value) is float:
        return _write_float(value)
    if type(value) is dict:
        return "{" + ",".join(f"{_encode(key)}:{_write(item)}" for key, item in value.items()) + "}"
    if type(value) is list:
        return "[" + ",".join(map(_write, value)) + "]"
    return _encode(value)


def _write_float(value: float) -> str:
    if not math.isfinite(value):
        return "null"
    text = repr(value)
    mantissa, _, exponent = text.partition("e-")
    if not exponent:
        return text
    if int(exponent) > 5:
        return f"{mantissa}e-{int(exponent)}"
    sign = "-" if mantissa.startswith("-") else ""
    return f"{sign}0.0000{mantissa.replace('-', '').replace('.', '')}"
