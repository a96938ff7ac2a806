"""A file of entries read into tasks, or into the list of what is wrong with it. Nothing of it is executed."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bfcl_env.entries import multi_turn, single_turn
from bfcl_env.entries.categories import EXPECTED, category_of, is_multi_turn
from bfcl_env.entries.fields import renamed, shown
from bfcl_env.entries.json_file import ARRAY, Entry, read
from bfcl_env.entries.mistakes import Mistakes, show
from bfcl_env.entries.split import clusters, marks
from bfcl_env.single_turn.components import parts
from interaction.environment import Environment, GoldMessage, Part, Task, UserWords
from interaction.outcome import Verdicts

MAX_ID = 200
MAX_EXTRA = 20_000
"""Characters of all further keys of an entry, which stand in the record of each of its episodes."""
FACT = "entry"
"""The fact of an episode under which a reward finds them."""


@dataclass(frozen=True, eq=False)
class OwnTask:
    """An entry; what plays it is what plays BFCL's own tasks of its kind."""

    environment: str
    id: str
    category: str
    cluster: str
    part: Part
    played: Task
    place: str
    """Where in the file it stands."""
    extra: str
    """Further keys of the entry, as JSON."""

    def open(self, **options: Any) -> Environment:
        """A fresh attempt; `options` are those of BFCL's multi-turn tasks, and single-turn ones have none."""
        attempt = self.played.open(**options) if is_multi_turn(self.category) else self.played.open()
        return attempt if self.extra == "{}" else _WithExtra(attempt, json.loads(self.extra))  # type: ignore[return-value]

    def gold(self) -> Iterable[GoldMessage | UserWords]:
        """That of the entry."""
        return self.played.gold()


class _WithExtra:
    """An attempt whose verdicts tell what else its entry says."""

    def __init__(self, attempt: Environment, extra: Mapping[str, Any]) -> None:
        self._attempt, self._extra = attempt, extra

    def __getattr__(self, name: str) -> Any:
        return getattr(self._attempt, name)

    def verdicts(self) -> Verdicts:
        """Those of the attempt, and the fact `FACT`."""
        found = self._attempt.verdicts()
        return replace(found, facts={**found.facts, FACT: self._extra})


@dataclass(frozen=True, slots=True)
class _Read:
    """What one entry gives, before it is known which others it resembles."""

    entry: Mapping[str, Any]
    category: str
    played: Task
    place: str
    extra: str


def load(environment: str, path: Path) -> tuple[tuple[OwnTask, ...], Mistakes]:
    """The tasks of a file with which nothing is wrong, in its order, and what is wrong with others."""
    mistakes = Mistakes(path)
    entries = read(path, mistakes)
    if not entries and not mistakes.count:
        mistakes.add("", "", "no entry", ARRAY)
    answers = _answers(path)
    found, seen = [], dict[str, str]()
    for number, entry in enumerate(entries):
        if (made := _read(number, entry, answers, seen, mistakes)) is not None:
            found.append(made)
    alike = clusters({one.played.id: marks(one.entry) for one in found}, mistakes.notes)
    sides = parts(dict.fromkeys(alike, ""), alike, ())
    for part, what in (("choose", "choosing a checkpoint"), ("report", "reporting")):
        if found and part not in sides.values():
            mistakes.notes.append(f"no entry is held out for {what}: that takes more entries that resemble no other")
    tasks = (
        OwnTask(environment, name, one.category, alike[name], sides[alike[name]], one.played, one.place, one.extra)
        for one in found
        for name in [one.played.id]
    )
    return tuple(tasks), mistakes


def _read(
    number: int, given: Entry, answers: Mapping[str, Any], seen: dict[str, str], mistakes: Mistakes
) -> _Read | None:
    """One entry; `seen` has the ids before it and where they stand."""
    place, entry = f"entry {number + 1} (line {given.line})", given.value
    before = mistakes.count
    if not isinstance(entry, dict):
        mistakes.add(place, "", show(entry), "an object with id, question, function or involved_classes, ground_truth")
        return None
    name = entry.get("id")
    if not isinstance(name, str) or not 0 < len(name) <= MAX_ID or not name.isprintable():
        mistakes.add(place, "id", shown(entry, "id"), f"a text of 1 to {MAX_ID} printable characters")
        return None
    place = f"{name} ({place})"
    tell = mistakes.of(place)
    if name in seen:
        tell("id", f"that of {seen[name]} again", "another id for each entry")
    seen.setdefault(name, place)
    category = category_of(name)
    if category is None:
        tell("id", f"{name!r}, which names no category", EXPECTED)
        return None
    entry = renamed(entry, tell)
    if name in answers:
        entry.setdefault("ground_truth", answers[name])
    played: Task | None
    if is_multi_turn(category):
        keys, played = multi_turn.KEYS, multi_turn.scenario(entry, category, number, place, mistakes)
    else:
        keys, played = single_turn.KEYS, single_turn.task(entry, category, tell)
    extra = json.dumps({key: value for key, value in entry.items() if key not in keys})
    if len(extra) > MAX_EXTRA:
        tell("further keys", f"{len(extra)} characters", f"at most {MAX_EXTRA}, as they stand in each episode's record")
    return None if played is None or mistakes.count > before else _Read(entry, category, played, place, extra)


def _answers(path: Path) -> dict[str, Any]:
    """Id -> gold of a file in BFCL's own form, whose answers stand in another of its name; empty if there is none."""
    beside = path.parent / "possible_answer" / path.name
    if not beside.is_file():
        return {}
    theirs = Mistakes(beside)
    rows = [entry.value for entry in read(beside, theirs)]
    theirs.check()
    return {str(row.get("id")): row.get("ground_truth") for row in rows if isinstance(row, dict)}
