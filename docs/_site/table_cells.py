"""Cells of the tables on pages that are made when the site is built."""

from typing import Any


def row(*cells: str) -> str:
    """A line of a table."""
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def code(value: Any, longest: int = 40) -> str:
    """A value, short enough for a column."""
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return f"`{text if len(text) <= longest else text[: longest - 3] + '...'}`" if text else ""


def words(text: str) -> str:
    """A text of others, of which nothing is markup."""
    return " ".join(text.split()).replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


def name(text: str) -> str:
    """A name that stands on one line."""
    return f'<code class="name">{text}</code>'
