"""Actionable hints beside error results: what was wrong, and what the state or the documentation offers instead.

A layer over the unmodified classes. It reads the state and never changes it, leaves BFCL's text as it is, and
never names a function that is still withheld: rules see visible functions only, and `advise` checks their words
once more. It says nothing that the model could not have found out: only what its visible functions would show it,
what the documentation says, and tables that are the same in every scenario. Passwords, tokens and values that the
user has not given yet are never shown, and no arithmetic is done for the model.

Rules are data, one file of them for each class; `python -m bfcl_env.augmentation` prints them as a table.
"""

import re
from functools import cache

from bfcl_env.augmentation import files, general, office, trading, travel, vehicle
from bfcl_env.augmentation.rule import MAX_CHARS, Rule, Situation
from bfcl_env.source import function_owners
from interaction.outcome import ErrorKind

RULES: tuple[Rule, ...] = tuple(
    rule for module in (general, files, office, trading, travel, vehicle) for rule in module.RULES
)
"""All rules. The first one that applies and has something to say wins, so the order is part of the meaning."""

_WORD = re.compile(r"\w+")

__all__ = ["MAX_CHARS", "RULES", "Rule", "Situation", "advise", "hint"]


def hint(situation: Situation) -> str | None:
    """One line of advice of at most `MAX_CHARS` characters, or None. Never raises."""
    try:
        advice = advise(situation)
    except Exception:  # A state that no rule has foreseen costs the hint, never the rollout.
        return None
    return advice[1] if advice else None


def advise(situation: Situation) -> tuple[Rule, str] | None:
    """The first rule that has something to say, with its words; None if there is no such rule."""
    name = situation.call.name
    for rule in _candidates(function_owners().get(name, ""), situation.error):
        if (not rule.functions or name in rule.functions.split()) and re.search(rule.pattern, situation.text):
            text = rule.advice(situation)
            if text and not set(_WORD.findall(text)).intersection(situation.withheld):
                return rule, text[:MAX_CHARS]
    return None


@cache
def _candidates(owner: str, error: ErrorKind | None) -> tuple[Rule, ...]:
    return tuple(rule for rule in RULES if error in rule.errors and rule.owner in ("", owner))
