"""Pairs on a command line: settings of an environment's own, and weights."""

from argparse import ArgumentTypeError
from typing import Any

import yaml


def key_value(text: str) -> tuple[str, Any]:
    """KEY=VALUE, the value as YAML has it.

    Raises:
        ArgumentTypeError: it is not that.
    """
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    try:
        return key, yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ArgumentTypeError(f"the value of {key} is no YAML: {' '.join(str(error).split())[:200]}") from error


def weight(text: str) -> tuple[str, float]:
    """NAME=WEIGHT; the name may hold `=`.

    Raises:
        ArgumentTypeError: it is not that.
    """
    name, _, number = text.rpartition("=")
    try:
        if name:
            return name, float(number)
    except ValueError:
        pass
    raise ArgumentTypeError(f"{text!r} is not NAME=WEIGHT, such as bfcl/base=2")
