"""What a reward returned, made into what verl can train on and log, or refused with a line that says why.

One number that is not finite makes all weights NaN, and one that is too large for a float, or a list among the metrics,
ends a training in the middle. All of it is a failed reward: the sample is lost and counted, and the others train.
"""

import math
from collections.abc import Mapping
from typing import Any

from recipe.typed import shown

STEP_SCORES = "step_scores"
"""The one list that a reward may return: a score for each step, which `interaction.token_rewards` checks."""

RENAMED = {"turn_scores": STEP_SCORES}
"""Names of an earlier release -> those of now."""


class RewardError(ValueError):
    """A reward's result that cannot be used. The message is one line: what was returned, what was expected."""


def checked(result: Any) -> float | dict[str, Any]:
    """The score, or a dict of plain numbers and texts with `score` among them. Numbers of numpy and torch become plain.

    A metric that is no finite number becomes None, which verl and `stage.choosing` leave out of their means: one NaN
    would make the whole mean NaN, and with it what a gate reads; and a mean over no calls is no reason to lose one.

    Raises:
        RewardError: there is no finite score, a name is no text or an old one, or a value is neither number nor text.
    """
    if not isinstance(result, Mapping):
        return _score(result, result)
    if "score" not in result:
        raise RewardError(f"returned {shown(dict(result))}; expected a number or a dict with the number `score`")
    score = _score(result["score"], result)
    values: dict[str, Any] = {}
    for name, value in result.items():
        if not isinstance(name, str):
            raise RewardError(f"returned {shown(name)} as a name; expected texts, as `score`")
        if name in RENAMED:
            raise RewardError(f"returned {name}, which is called {RENAMED[name]} now; return it as {RENAMED[name]}")
        values[name] = value if name in ("score", STEP_SCORES) else _value(name, value)
    return {**values, "score": score}


def comparable(result: float | dict[str, Any], metric: str | None) -> float | dict[str, Any]:
    """The result, which has a number as the metric by which groups are compared, if there is one: verl stops without.

    Raises:
        RewardError: it has not.
    """
    values = result if isinstance(result, dict) else {"acc": result}  # verl's name for a bare number
    if metric is None or isinstance(values.get(metric), int | float):
        return result
    raise RewardError(
        f"returned {metric}={shown(values.get(metric))}; expected a finite number, by which "
        "algorithm.filter_groups.metric compares groups. Set that to `reward` to compare by the score"
    )


def _score(value: Any, result: Any) -> float:
    number = _plain(value)
    if not isinstance(number, int | float):  # True and False are numbers to verl
        raise RewardError(f"returned {shown(result)}; expected a number or a dict with the number `score`")
    if not _finite(number):
        raise RewardError(f"returned the score {shown(number)}; expected a finite number")
    return float(number)


def _value(name: str, value: Any) -> Any:
    plain = _plain(value)
    if isinstance(plain, int) and not _finite(plain):
        raise RewardError(f"returned {name}={shown(plain)}, which is too large for a float")
    if isinstance(plain, float) and not _finite(plain):
        return None
    if isinstance(plain, int | float | str) or plain is None:
        return plain
    raise RewardError(f"returned {name}={shown(value)}; verl makes columns of numbers and texts: return one of these")


def _plain(value: Any) -> Any:
    """A number of numpy or torch as Python's; anything else as it is."""
    if isinstance(value, bool | int | float | str) and type(value).__module__ == "builtins":
        return value
    try:
        return value.item()
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return value


def _finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:
        return False
