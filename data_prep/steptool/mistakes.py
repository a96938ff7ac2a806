"""What is wrong with a file, said so that it can be found and mended."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


class BadFile(ValueError):
    """The file as a whole is not what was expected; no row of it can be used."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that is wrong with one row."""

    row: str
    field: str
    what: str

    def __str__(self) -> str:
        return f"{self.row}, {self.field}: {self.what}"


class Mistakes(ValueError):
    """Rows that cannot be used."""

    def __init__(self, found: Iterable[Mistake], rows: int) -> None:
        self.found = tuple(found)
        super().__init__(f"mistakes: {len(self.found)}, in {len({item.row for item in self.found})} of {rows} rows")


def shown(value: Any) -> str:
    """A value for a message, cut after 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def fault_of(text: Any) -> str | None:
    """What keeps a value from being a text that a model can read; None if nothing does."""
    if not isinstance(text, str):
        return f"{shown(text)} is no text"
    if not text.strip():
        return "is empty"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "holds bytes that are not UTF-8, or half of a surrogate pair"
    return None
