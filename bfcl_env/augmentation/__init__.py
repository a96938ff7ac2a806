"""Actionable hints beside error results: what was wrong, and what the state or the schema offers instead.

A layer over the unmodified classes. It reads the state and never changes it, leaves BFCL's text as it is, and
never names a function that is still withheld: rules see visible functions only, and `hint` checks their words
once more. Rules are data (`rules.RULES`); adding one means adding a line there.
"""

import re

from bfcl_env.augmentation.rules import RULES
from bfcl_env.augmentation.situation import Situation

MAX_HINT_CHARS = 600

_WORD = re.compile(r"\w+")

__all__ = ["Situation", "hint"]


def hint(situation: Situation) -> str | None:
    """The advice of the first rule that applies and has something to say, or None."""
    for rule in RULES:
        if rule.functions and situation.call.name not in rule.functions:
            continue
        if rule.errors and situation.error not in rule.errors:
            continue
        found = rule.pattern.search(situation.text) if rule.pattern else None
        if rule.pattern and not found:
            continue
        text = rule.advice(situation)
        if text is not None and not set(_WORD.findall(text)).intersection(situation.withheld):
            return text if len(text) <= MAX_HINT_CHARS else f"{text[:MAX_HINT_CHARS]}..."
    return None
