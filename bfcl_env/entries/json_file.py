"""The values of a JSON file one by one, bounded and without anything that JSON or a later reader does not have.

One array of entries, or entries one after the other, as in BFCL's own files. Each is decoded by itself, so that
whatever is odd about it can be said of the entry it stands in.
"""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bfcl_env.entries.mistakes import Mistakes, show

MAX_BYTES = 100_000_000
MAX_DEPTH = 50
"""Levels of one entry. BFCL's deepest has 20, for folders in folders."""
MAX_DIGITS = 1_000
"""Of a whole number: as many as a call may have, about."""

_SPACE = re.compile(r"[ \t\r\n]*")
ARRAY = "one JSON array of entries, [{...}, {...}], or one entry a line"
STRICT = "JSON: keys and texts in double quotes, no comments, no comma before a closing bracket"


@dataclass(frozen=True, slots=True)
class Entry:
    """One value of the file."""

    line: int
    """Where it begins, from 1."""
    value: Any


def read(path: Path, mistakes: Mistakes) -> list[Entry]:
    """The values of a file up to the first that is not JSON. Whatever is wrong is told to `mistakes`."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            mistakes.add("", "", f"more than {MAX_BYTES} bytes", "several smaller files")
            return []
        text = content.decode("utf-8-sig")
    except OSError as error:
        mistakes.add("", "", f"no file that can be read: {error.strerror}", "a JSON file")
        return []
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        mistakes.add(f"line {line}", "", f"the byte {content[error.start]:#04x}, which is not UTF-8", "a file in UTF-8")
        return []
    reader = _Reader(text, mistakes)
    entries = []
    try:
        for entry in reader.entries():
            if not reader.tells_oddities(entry):
                entries.append(entry)
    except json.JSONDecodeError as error:
        mistakes.add(f"line {error.lineno}, column {error.colno}", "", f"{error.msg}", STRICT)
    except RecursionError:
        mistakes.add(f"line {reader.line}", "", "lists or objects too deep to read", f"at most {MAX_DEPTH} levels")
    return entries


class _Reader:
    def __init__(self, text: str, mistakes: Mistakes) -> None:
        self.text, self.mistakes = text, mistakes
        self.odd: list[tuple[str, str]] = []
        self.line, self._counted = 1, 0
        self._decoder = json.JSONDecoder(
            object_pairs_hook=self._object,
            parse_constant=self._constant,
            parse_float=self._float,
            parse_int=self._int,
        )

    def entries(self) -> Iterator[Entry]:
        """All values.

        Raises:
            JSONDecodeError: what comes next is none.
            RecursionError: it is nested too deeply.
        """
        at = self._skip(0)
        array = self.text[at : at + 1] == "["
        if not array and self.text[at : at + 1] != "{":
            began = show(self.text[at : at + 20]) if at < len(self.text) else "an empty file"
            self.mistakes.add("", "", began, ARRAY)
            return
        at = self._skip(at + array)
        if array and self.text[at : at + 1] == "]":
            return self._end(at + 1)
        while at < len(self.text) or array:
            self._count(at)
            value, at = self._decoder.raw_decode(self.text, at)
            yield Entry(self.line, value)
            at = self._skip(at)
            if array:
                sign = self.text[at : at + 1]
                if sign == "]":
                    return self._end(at + 1)
                if sign != ",":
                    raise json.JSONDecodeError("Expecting ',' delimiter", self.text, at)
                at = self._skip(at + 1)
        return None

    def tells_oddities(self, entry: Entry) -> bool:
        """Tell what was decoded and must not be in an entry; whether there is any."""
        if (problem := _problem(entry.value)) is not None:
            self.odd.append(problem)
        for found, expected in self.odd:
            self.mistakes.add(f"line {entry.line}", "", found, expected)
        odd, self.odd = self.odd, []
        return bool(odd)

    def _end(self, at: int) -> None:
        if self._skip(at) < len(self.text):
            raise json.JSONDecodeError("Extra data after the array", self.text, self._skip(at))

    def _skip(self, at: int) -> int:
        found = _SPACE.match(self.text, at)
        return found.end() if found else at

    def _count(self, at: int) -> None:
        self.line += self.text.count("\n", self._counted, at)
        self._counted = at

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            self.odd.append((f"the key {show(twice)} twice in one object", "each key once"))
        return made

    def _constant(self, name: str) -> None:
        self.odd.append((name, "a number that JSON has"))

    def _float(self, text: str) -> float:
        if not math.isfinite(value := float(text)):
            self.odd.append((f"the number {text[:40]}", "one that a double holds"))
        return value

    def _int(self, text: str) -> int:
        if len(text) > MAX_DIGITS:
            self.odd.append((f"a whole number of {len(text)} digits", f"at most {MAX_DIGITS}"))
            return 0
        return int(text)


def _problem(value: Any) -> tuple[str, str] | None:
    """Depth, and characters that no file and no tokenizer takes: a half of a pair that JSON can escape by itself."""
    pending = [(value, 1)]
    while pending:
        item, depth = pending.pop()
        if isinstance(item, str):
            if not item.isascii() and any("\ud800" <= char <= "\udfff" for char in item):
                return f"half of a surrogate pair in {show(item)}", "text that can be written as UTF-8"
        elif isinstance(item, list | dict):
            if depth > MAX_DEPTH:
                return f"lists and objects nested more than {MAX_DEPTH} levels deep", "fewer levels"
            pending += [(inner, depth + 1) for inner in (item if isinstance(item, list) else [*item, *item.values()])]
    return None
