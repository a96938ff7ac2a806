"""Settings that have another name now, so that one of an earlier release is told where it went."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

OF_BFCL = "{0} is now interaction.{1}.environments.bfcl.{2}: only BFCL's tasks have it."

RENAMED: Mapping[str, str] = {
    r"interaction\.(train|val)\.(augment|withheld|empty_gold)": OF_BFCL,
    r"interaction\.(train|val)\.(at_step_limit)": (
        f"{OF_BFCL} `end` is called `judge` there, and `official` goes with "
        "interaction.{1}.max_steps_per_turn=21, the message more that BFCL allows."
    ),
}
"""Pattern of the old name -> what to say, with the name and its groups."""


def renamed(key: str) -> str | None:
    """What became of a setting; None if it was not renamed."""
    for pattern, text in RENAMED.items():
        if found := re.fullmatch(pattern, key):
            return text.format(key, *found.groups())
    return None


def all_renamed(values: Any, key: str = "") -> Iterator[str]:
    """What became of each renamed setting that a configuration has."""
    if isinstance(values, dict):
        for name, value in values.items():
            below = f"{key}.{name}" if key else str(name)
            if (line := renamed(below)) is not None:
                yield line
            yield from all_renamed(value, below)
