"""Reads access point settings from a call: upstream hands them to pydantic, which takes more than the documented types.

Its own rules are followed for what it takes (`"yes"` is true, `"80"` a port, unknown keys are passed over); what it
refuses is refused here in our words, since its text depends on the version of the library.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from tau_env.telecom.arguments import BadArguments
from tau_env.telecom.phone import Apn

_TRUE = frozenset({"1", "on", "t", "true", "y", "yes"})
_FALSE = frozenset({"0", "off", "f", "false", "n", "no"})
_INTEGER = re.compile(r"\s*([+-]?[0-9]+(?:_[0-9]+)*)(?:\.0*)?\s*", re.ASCII)
_LONGEST = 40
"""Digits of a port as text; pydantic takes thousands."""


def read_apn(settings: Mapping[Any, Any]) -> Apn:
    """The settings with defaults for what is not given.

    Raises:
        BadArguments: a value does not fit its field.
    """
    readers: dict[str, Callable[[Any], Any]] = {
        "apn_name": _name,
        "reset_at_reboot": _boolean,
        "mms_apn": _text,
        "mmsc_url": _text,
        "mms_proxy": _text,
        "mms_port": _port,
    }
    if not all(isinstance(key, str) for key in settings):
        raise BadArguments("set_apn_settings: the keys of apn_settings must be texts")
    return Apn(**{key: read(settings[key]) for key, read in readers.items() if key in settings})


def _name(value: Any) -> str:
    if isinstance(value, str) and value in ("internet", "broken"):
        return value
    raise BadArguments("set_apn_settings: apn_name must be 'internet' or 'broken'")


def _boolean(value: Any) -> bool:
    if isinstance(value, bool | int | float) and value in (0, 1):
        return bool(value)
    if isinstance(value, str) and value.lower() in _TRUE | _FALSE:
        return value.lower() in _TRUE
    raise BadArguments("set_apn_settings: reset_at_reboot must be true or false")


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise BadArguments("set_apn_settings: mms_apn, mmsc_url and mms_proxy must be texts or null")


def _port(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool | int) or (isinstance(value, float) and value.is_integer()):
        return int(value)
    if isinstance(value, str) and len(value) <= _LONGEST and (match := _INTEGER.fullmatch(value)):
        return int(match[1])
    raise BadArguments("set_apn_settings: mms_port must be a whole number or null")
