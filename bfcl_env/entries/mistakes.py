"""What is wrong with a file of entries, all of it at once: a person who mends a file wants the whole list."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from reprlib import Repr
from typing import Any

MOST = 100
"""Mistakes that are listed; the others are counted."""

LONGEST = 700
"""Characters of each part of a line; a list of all categories has about so many."""

Tell = Callable[[str, str, str], None]
"""Hears of one mistake of an entry: its field, what was found, what was expected."""

_short = Repr()
_short.maxlevel, _short.maxstring, _short.maxother = 3, 80, 80


class EntriesError(ValueError):
    """The file cannot be used. The message lists what to change, a line each."""


@dataclass
class Mistakes:
    """Mistakes of one file, in the order in which they were found."""

    path: Path
    count: int = 0
    lines: list[str] = field(default_factory=list)
    idle: list[str] = field(default_factory=list)
    """What is no mistake, and does nothing: "where: what does nothing, and why"."""
    notes: list[str] = field(default_factory=list)
    """What else a person should know."""

    def add(self, where: str, field: str, found: str, expected: str) -> None:
        """One mistake; `where` is empty for one of the file as a whole."""
        self.count += 1
        if len(self.lines) < MOST:
            place = "".join(f"{line(part)}: " for part in (where, field) if part)
            self.lines.append(f"{place}found {line(found)}; expected {line(expected)}")

    def of(self, where: str) -> Tell:
        """Hears the mistakes of one entry."""
        return lambda field, found, expected: self.add(where, field, found, expected)

    def check(self) -> None:
        """Nothing, if there are none.

        Raises:
            EntriesError: there are some.
        """
        if not self.count:
            return
        more = f"\n  and {self.count - len(self.lines)} more" if self.count > len(self.lines) else ""
        number = "one mistake" if self.count == 1 else f"{self.count} mistakes"
        raise EntriesError(f"{self.path} has {number}:" + "".join(f"\n  {line}" for line in self.lines) + more)


def line(text: str) -> str:
    """A text that may be of any length and hold anything, as part of a line for a terminal."""
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def show(value: Any) -> str:
    """A short text for a value of any size, with its type where the text does not say it."""
    return _short.repr(value)
