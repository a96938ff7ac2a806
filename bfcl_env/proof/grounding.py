"""Whether what a call is made with was said before."""

import re
from collections.abc import Iterator
from typing import Any


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def says(text: str, value: Any) -> bool:
    """Whether a text has a value, letter for letter but for case, escapes and the underscores of a name."""
    said = [str(value)]
    if isinstance(value, float) and value.is_integer():
        said.append(str(int(value)))
    if isinstance(value, str):
        text = text.replace("\\n", "\n").replace('\\"', '"').casefold()
        said = [value.strip("'\"").casefold()]
        said.append(said[0].replace("_", " "))
    return any(re.search(rf"(?<![\w.]){re.escape(item)}(?!\w|\.\d)", text) is not None for item in said)
