"""A file of entries as an environment: tasks, their split, and a list of all problems."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from itertools import product
from pathlib import Path
from reprlib import repr as short
from typing import Any, get_args

from pydantic import ValidationError

from bfcl_env.entries import form
from bfcl_env.entries.form import Problem
from bfcl_env.environment import Options
from bfcl_env.execution import new_instances
from bfcl_env.gold import gold_for
from bfcl_env.proof.grounding import leaves, says
from bfcl_env.scenarios import Scenario, scenario_of
from bfcl_env.single_turn.checker import Language
from bfcl_env.single_turn.components import SEED, joined, parts
from bfcl_env.single_turn.tasks import CATEGORIES as SINGLE_TURN
from bfcl_env.single_turn.tasks import SingleTurnTask
from bfcl_env.source import CATEGORIES as MULTI_TURN
from bfcl_env.source import VERSION
from interaction.boundary import call as bounded
from interaction.call import Call
from interaction.environment import Environment, GoldMessage, Part, Task, UserWords
from interaction.outcome import Verdicts
from interaction.protocol import get_protocol
from interaction.protocol.calls import unique_keys
from interaction.record import StopReason

SECONDS = 10.0
"""For the gold of one entry, which takes milliseconds."""
MOST = 100
"""Problems that are listed."""
LONGEST = 300
FACT = "entry"
"""The fact of an episode with the further keys of its entry."""
_BETWEEN = re.compile(r"\W+")


def _spellings() -> dict[str, str]:
    found = {name: name for name in (*MULTI_TURN, *SINGLE_TURN, "relevance")}
    for kind, language in product(("simple", "multiple", "parallel", "parallel_multiple"), get_args(Language)):
        plain = language == "python" and kind != "simple"
        found[f"{kind}_{language}"] = kind if plain else f"{kind}_{language}"
    found |= {"multi_turn": "multi_turn_base", "multi_turn_python": "multi_turn_base", "simple": "simple_python"}
    return found | {language: f"simple_{language}" for language in get_args(Language)}


SPELLINGS = _spellings()
"""The beginning of an id, with `_` for `-` -> category: BFCL's, or one made like them where BFCL has none."""


def category_of(entry_id: str) -> str | None:
    """The category that an id names; None if it names none."""
    spelling, _, number = entry_id.rpartition("_")
    return SPELLINGS.get(spelling.replace("-", "_").lower()) if number else None


class EntriesError(ValueError):
    """The file cannot be used. The message has a line for each problem."""


@dataclass(frozen=True, eq=False)
class OwnTask:
    """An entry, played as BFCL's own tasks of its kind."""

    environment: str
    id: str
    category: str
    cluster: str
    part: Part
    played: Task
    extra: str
    """Further keys of the entry, as JSON."""

    def open(self, **options: Any) -> Environment:
        """A fresh attempt; `options` are those of BFCL's multi-turn tasks, and single-turn ones have none."""
        attempt = self.played.open(**options) if isinstance(self.played, Scenario) else self.played.open()
        return attempt if self.extra == "{}" else _WithExtra(attempt, json.loads(self.extra))  # type: ignore[return-value]

    def gold(self) -> Iterable[GoldMessage | UserWords]:
        """That of the entry; what takes a result of its own turn is called in a later message than what returned it."""
        return _in_messages(self.played) if isinstance(self.played, Scenario) else self.played.gold()


def _in_messages(scenario: Scenario) -> Iterator[GoldMessage]:
    known = ""
    for turn, done in zip(scenario.turns, gold_for(scenario).turns, strict=True):
        known += f"\n{turn.user}"
        calls, results = list[Call](), ""
        for call, result in zip(turn.gold, done.texts, strict=True):
            values = [value for value in leaves(call.arguments) if not isinstance(value, bool | None)]
            if any(says(results, value) and not says(known, value) for value in values):
                yield GoldMessage(tuple(calls))
                known += results
                calls, results = [], ""
            calls.append(call)
            results += f"\n{result}"
        if calls:
            yield GoldMessage(tuple(calls))
        known += results
        yield GoldMessage(answer="done")


class _WithExtra:
    """An attempt whose verdicts have the further keys of its entry."""

    def __init__(self, attempt: Environment, extra: Mapping[str, Any]) -> None:
        self._attempt, self._extra = attempt, extra

    def __getattr__(self, name: str) -> Any:
        return getattr(self._attempt, name)

    def verdicts(self) -> Verdicts:
        found = self._attempt.verdicts()
        return replace(found, facts={**found.facts, FACT: self._extra})


class FileEnvironment:
    """The tasks of one file."""

    Options = Options

    def __init__(self, name: str, path: Path) -> None:
        self._name, self._path = name, path
        self._notes: list[str] = []
        self._checked = False

    def load_tasks(self) -> tuple[OwnTask, ...]:
        """All tasks, in the order of the file.

        Raises:
            EntriesError: the file has problems.
        """
        return self._tasks

    def check_tasks(self) -> None:
        """Play the gold of every entry, and print what does nothing.

        Raises:
            EntriesError: gold cannot be played, or does not pass.
        """
        if self._checked:
            return
        problems = [f"{task.id}: {found}" for task in self._tasks if (found := _problem_of_gold(task)) is not None]
        _refuse(self._path, problems)
        for note in self._notes:
            print(f"NOTE {self._path}: {note}", flush=True)
        self._checked = True

    def audit_known(self) -> Mapping[str, str]:
        """What an audit finds in single-turn tasks, as in BFCL's own."""
        from bfcl_env.single_turn import audit

        return audit.known(task.played for task in self._tasks if isinstance(task.played, SingleTurnTask))

    def made_from(self) -> dict[str, Any]:
        """For a manifest: the file, and the release of BFCL."""
        digest = sha256(self._path.read_bytes()).hexdigest()
        return {"seed": SEED, "bfcl_eval": VERSION, "environment_sha256": digest}

    @cached_property
    def _tasks(self) -> tuple[OwnTask, ...]:
        answers = self._path.parent / "possible_answer" / self._path.name
        gold = {row.get("id"): row.get("ground_truth") for row in read(answers)} if answers.is_file() else {}
        made: dict[str, tuple[Mapping[str, Any], str, Task, str]] = {}
        problems: list[str] = []
        idle: list[str] = []
        for number, entry in enumerate(read(self._path)):
            if entry.get("id") in gold:
                entry.setdefault("ground_truth", gold[entry["id"]])
            name, found = str(entry.get("id")), [*self._read(number, entry, made, idle)]
            problems += [f"{name} (entry {number + 1}): {where}: {what}" for where, what in found]
        if not made and not problems:
            problems.append("there is no entry")
        _refuse(self._path, problems)
        if idle:
            self._notes.append(idle[0] + (f"; {len(idle) - 1} more do nothing" if len(idle) > 1 else ""))
        given = {name: entry["part"] for name, (entry, *_) in made.items() if entry.get("part")}
        alike = self._clusters({name: entry for name, (entry, *_) in made.items() if name not in given})
        sides = parts(dict.fromkeys(alike, ""), alike, ())
        where = given | {name: sides[cluster] for name, cluster in alike.items()}
        for part, what in (("dev", "choosing a checkpoint"), ("test", "reporting")):
            if part not in where.values():
                self._notes.append(f"no entry is held out for {what}: that takes more entries that resemble no other")
        return tuple(
            OwnTask(self._name, name, category, alike.get(name, name), where[name], played, extra)
            for name, (_, category, played, extra) in made.items()
        )

    def _read(self, number: int, entry: dict[str, Any], made: dict[str, Any], idle: list[str]) -> Iterator[Problem]:
        """Adds an entry to `made`, or gives its problems."""
        name = entry.get("id")
        category = category_of(name) if isinstance(name, str) and name.isprintable() else None
        if not isinstance(name, str) or category is None:
            yield "id", f"{short(name)} names no category; expected CATEGORY_NUMBER of {', '.join(SPELLINGS)}"
            return
        if name in made:
            yield "id", "is that of another entry"
        kind = form.MultiTurn if category.startswith("multi_turn") else form.SingleTurn
        extra = {key: value for key, value in entry.items() if key not in form.keys(kind)}
        text = json.dumps({key: value for key, value in entry.items() if key not in extra})
        entry = json.loads(text, object_hook=_given)
        try:
            read = kind.model_validate(entry)
            for owner, state in read.initial_config.items() if isinstance(read, form.MultiTurn) else ():
                form.state_form(owner).model_validate(state)
        except ValidationError as error:
            for item in error.errors():
                place = ".".join(str(part) for part in item["loc"])
                yield place, f"{item['msg']}; found {short(item['input'])}"
            return
        if isinstance(read, form.MultiTurn):
            found = [*form.problems_of_turns(extra, read)]
            idle += [f"{name}: {where} {what}" for where, what in form.idle(read)]
        else:
            found = [*form.problems_of_question(read, category)]
        yield from found
        if not found:
            played: Task
            if isinstance(read, form.MultiTurn):
                played = scenario_of(category, read.model_dump(), read.ground_truth, number)
            else:
                played = form.single_turn(entry, category)
            made.setdefault(name, (entry, category, played, json.dumps(extra)))

    def _clusters(self, entries: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
        """Id of an entry -> the id of the first entry of its cluster.

        Entries with the same words, functions or initial state stand in one cluster. Where that would put more than
        half of all into one, only words count.
        """
        marks = {name: [*_marks(entry)] for name, entry in entries.items()}
        found = joined(marks)
        largest = max(Counter(found.values()).values(), default=1)
        if largest == 1 or largest * 2 <= len(entries):
            return found
        by_words = joined({name: those[:1] for name, those in marks.items()})
        if by_words != found:
            self._notes.append(
                f"{largest} of {len(entries)} entries share functions or initial states with each other, so only those "
                "with the same question are kept on one side of the split"
            )
        return by_words


def _marks(entry: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """What two entries have in common that resemble each other: words, letters and digits alike, comes first."""
    words = " ".join(message["content"] for turn in entry["question"] for message in turn)
    yield "question", "", _BETWEEN.sub("", words.casefold())
    if config := entry.get("initial_config"):
        yield "state", "", json.dumps(config, sort_keys=True)
    elif not entry.get("involved_classes", entry.get("invoked_classes")):
        for item in entry["function"]:
            yield "function", item["name"], json.dumps(item["parameters"], sort_keys=True)


def read(path: Path) -> list[dict[str, Any]]:
    """The entries of a file: one JSON array, or one a line as in BFCL's own files.

    Raises:
        EntriesError: it cannot be read, or is no JSON of objects.
    """
    try:
        text = path.read_text("utf-8-sig")
        lines = [text] if text.lstrip().startswith("[") else [line for line in text.split("\n") if line.strip()]
        values = [_decoded(line, number) for number, line in enumerate(lines, 1)]
        entries = values[0] if values and isinstance(values[0], list) else values
        json.dumps(entries, allow_nan=False, ensure_ascii=False).encode()  # no NaN, no half of a surrogate pair
    except (OSError, ValueError, RecursionError) as error:
        raise EntriesError(f"{path}: {error}") from error
    if not all(isinstance(entry, dict) for entry in entries):
        raise EntriesError(f"{path} must be one JSON array of objects, or one object a line")
    return entries


def _given(found: dict[str, Any]) -> dict[str, Any]:
    """Without null, which tables write for a key of other rows."""
    return {key: value for key, value in found.items() if value is not None}


def _decoded(text: str, line: int) -> Any:
    try:
        return json.loads(text, object_pairs_hook=unique_keys)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {line + error.lineno - 1}, column {error.colno}: {error.msg}") from error


def _refuse(path: Path, problems: list[str]) -> None:
    if problems:
        more = f"\n  and {len(problems) - MOST} more" if len(problems) > MOST else ""
        listed = "".join(f"\n  {problem}" for problem in problems[:MOST])
        raise EntriesError(f"{path} has {len(problems)} problem{'s' * (len(problems) > 1)}:{listed}{more}")


def _problem_of_gold(task: OwnTask) -> str | None:
    """Why the gold of a task is none when it is played."""
    from interaction.gold import play_gold

    def problem() -> str | None:
        if isinstance(task.played, Scenario):
            new_instances(task.played)
        _, record = play_gold(task, get_protocol("think_xml", docs="signature"), max_steps_per_turn=1000)
        if record.stop_reason == StopReason.environment_error:
            return f"ground_truth: {record.fault}"
        gold = any(task.gold())
        if isinstance(task.played, SingleTurnTask) and task.played.kind.wanted == "accepted" and not gold:
            return "ground_truth: its first accepted values do not pass BFCL's checker"
        if gold and not (record.outcome and record.outcome.passed):
            turn = next((number for number, turn in enumerate(record.turns) if not turn.passed), 0)
            why = json.dumps([dict(item) for item in record.turns[turn].difference])
            return f"ground_truth: turn {turn} (the first is 0) does not pass: {why}"
        return None

    try:
        found = bounded(problem, SECONDS)
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    return found and found[:LONGEST]
