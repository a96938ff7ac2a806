"""Arguments of the user's that a reward does not name: refused where it takes no others, else told of.

A reward with `**kwargs` takes a misspelt argument without a word and goes on with its default. It may also read
`**kwargs` on purpose, so such an argument is no mistake for sure.
"""

import argparse
import inspect
import json
from collections.abc import Callable, Iterable
from typing import Any

from recipe.user_code.raised import by_nearness

GIVEN_BY_VERL = ("data_source", "solution_str", "ground_truth", "extra_info")
BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def read_argument(text: str) -> tuple[str, Any]:
    """name=value of a command line: the value as JSON, or else the text itself.

    Raises:
        ArgumentTypeError: it has no name, or no "=".
    """
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not name=value, an argument of the reward")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def accepted(function: Callable[..., Any]) -> tuple[list[str], bool] | None:
    """The parameters that can be given by name, and whether any other name is taken as well; None if Python cannot say.

    Of a function under decorators the names are those of all, and what the outermost takes decides.
    """
    try:
        outer, inner = inspect.signature(function, follow_wrapped=False), inspect.signature(function)
    except (TypeError, ValueError):
        return None
    found = [name for one in (outer, inner) for name, given in one.parameters.items() if given.kind in BY_NAME]
    takes_any = any(given.kind is inspect.Parameter.VAR_KEYWORD for given in outer.parameters.values())
    return list(dict.fromkeys(found)), takes_any


def unnamed(given: Iterable[Any], names: Iterable[str], title: str, takes_any: bool) -> list[str]:
    """A line for each argument that the reward does not name.

    Args:
        names, takes_any: as `accepted` gives them.
        title: what the line calls the reward.
    """
    own = [name for name in names if name not in GIVEN_BY_VERL]
    lines = []
    for name in map(str, given):
        if name in own or name in GIVEN_BY_VERL:
            continue
        there = f"its parameters are {', '.join(by_nearness(name, own))}" if own else "it has none of its own"
        if takes_any:
            lines.append(
                f"{title} has no parameter `{name}`; {there}. It takes `{name}` into its **kwargs: if that is "
                "misspelt, it changes nothing"
            )
        else:
            instead = f"Give one of these, or leave `{name}` out" if own else f"Leave `{name}` out"
            lines.append(f"{title} has no parameter `{name}`; {there}. {instead}")
    return lines
