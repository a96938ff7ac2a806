"""Copy-on-write records over one database that all attempts share, and what makes two states of it equal.

A database has megabytes and an episode changes a handful of records, so an attempt keeps only its own versions of
those; everything else is read where it lies. The shared part is never handed out for writing: `edit` copies first.

tau2-bench calls two states equal if the SHA-256 of their JSON with sorted keys is equal. That JSON is one object of
tables, each an object of records, so it is equal exactly where the JSON of every single record is. Records that nobody
changed are equal by being the same, hence the digest here: identity of the base, and key and sorted JSON of each record
that differs from it. A record that was changed and changed back does not count, as in tau2-bench.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tau_env.source import read

Record = dict[str, Any]
"""Plain JSON: dict, list, text, int, float, bool, None."""

MAX_DIFFERENCES = 10
MAX_DIFFERENCE_CHARS = 200

_canonical = json.JSONEncoder(sort_keys=True, check_circular=False).encode


@dataclass(frozen=True, slots=True)
class Base:
    """A database as its file has it."""

    identity: str
    """Two bases of one identity have the same records."""
    tables: Mapping[str, Mapping[str, Record]]
    """Never written to."""


def read_base(domain: str) -> Base:
    """A domain's database as its file has it.

    Raises:
        SourceError: the file is missing or not the pinned one.
    """
    content = read(f"domains/{domain}/db.json.gz")
    return Base(hashlib.sha256(content).hexdigest(), json.loads(content))


class Tables:
    """The state of one attempt: the base, and its own versions of what it changed."""

    __slots__ = ("_base", "_drafts", "_own")

    def __init__(self, base: Base) -> None:
        self._base = base
        self._own: dict[tuple[str, str], Record] = {}
        self._drafts: dict[tuple[str, str], Record] = {}

    def get(self, table: str, key: str) -> Record | None:
        """A record for reading, None where there is none. Drafts are not seen before they are kept."""
        own = self._own.get((table, key))
        return self._base.tables[table].get(key) if own is None else own

    def edit(self, table: str, key: str) -> Record:
        """A draft of an existing record: a copy that this attempt may change, the same one until it is kept.

        Raises:
            KeyError: there is no such record.
        """
        place = (table, key)
        draft = self._drafts.get(place)
        if draft is None:
            draft = self._own.get(place)
            draft = self._drafts[place] = clone(self._base.tables[table][key] if draft is None else draft)
        return draft

    def add(self, table: str, key: str, record: Record) -> None:
        """A draft of a new record."""
        self._drafts[table, key] = record

    def keep(self) -> bool:
        """Make the drafts part of the state. True if that changed anything that the digest sees."""
        changed = False
        for place, draft in self._drafts.items():
            changed = changed or _canonical(self.get(*place)) != _canonical(draft)
            self._own[place] = draft
        self._drafts = {}
        return changed

    def drop(self) -> None:
        """Forget the drafts."""
        self._drafts = {}

    def changed(self) -> dict[tuple[str, str], str]:
        """The sorted JSON of each record that differs from the base, by table and key."""
        found = {}
        for place in sorted(self._own):
            text = _canonical(self._own[place])
            if text != _canonical(self._base.tables[place[0]].get(place[1])):
                found[place] = text
        return found

    def digest(self) -> str:
        """Equal for two states exactly where tau2-bench's hashes of them are equal."""
        content = [[*place, text] for place, text in self.changed().items()]
        return hashlib.sha256(f"{self._base.identity}{_canonical(content)}".encode()).hexdigest()

    def differences(self, expected: "Tables") -> tuple[Mapping[str, str], ...]:
        """Where this state is not as expected: places, and both values; the first ten, texts cut at 200 characters."""
        found: list[Mapping[str, str]] = []
        for table, key in sorted(self._own.keys() | expected._own.keys()):
            for where, wanted, got in _compare(f"{table}/{key}", expected.get(table, key), self.get(table, key)):
                if len(found) == MAX_DIFFERENCES:
                    return tuple(found)
                row = {"where": where, "expected": wanted, "found": got}
                found.append({name: text[:MAX_DIFFERENCE_CHARS] for name, text in row.items()})
        return tuple(found)


def clone(value: Any) -> Any:
    """A deep copy of plain JSON."""
    if type(value) is dict:
        return {key: clone(item) for key, item in value.items()}
    if type(value) is list:
        return [clone(item) for item in value]
    return value


def _compare(where: str, expected: Any, found: Any) -> Iterator[tuple[str, str, str]]:
    if type(expected) is dict and type(found) is dict:
        for key in sorted(expected.keys() | found.keys()):
            if key not in expected or key not in found:
                yield f"{where}/{key}", _shown(expected, key), _shown(found, key)
            else:
                yield from _compare(f"{where}/{key}", expected[key], found[key])
    elif type(expected) is list and type(found) is list and len(expected) == len(found):
        for number, pair in enumerate(zip(expected, found, strict=True)):
            yield from _compare(f"{where}/{number}", *pair)
    elif (wanted := _canonical(expected)) != (got := _canonical(found)):
        yield where, "nothing" if expected is None else wanted, "nothing" if found is None else got


def _shown(record: Record, key: str) -> str:
    return _canonical(record[key]) if key in record else "nothing"
