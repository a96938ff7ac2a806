"""Markdown whose words come from settings and file names: on one line, and never read as markup of a table."""

from collections.abc import Sequence
from typing import Any

from recipe.typed import one_line


def plain(text: Any) -> str:
    """A text for a sentence or a cell."""
    return one_line(text).replace("|", "\\|").replace("<", "&lt;").replace("`", "'")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; its cells are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def block(text: str) -> str:
    """A text as it is; the fence is longer than any within it."""
    longest = max((len(line) - len(line.lstrip("~")) for line in text.splitlines()), default=0)
    fence = "~" * max(4, longest + 1)
    return f"{fence}text\n{text}\n{fence}"
