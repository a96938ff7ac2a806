"""What an evaluation keeps: its settings, and every finished episode as a line of `episodes.jsonl`.

A second start goes on where the first one stopped, and refuses to mix episodes of other settings. An episode that was
being written when it stopped is played again (`recipe.appended`).
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from interaction import Conversation, get_protocol
from interaction.endpoint.client import SAMPLING
from interaction.environment import DEFAULT, Task, read_options, task_id_of, tasks_under
from interaction.masked import masked
from interaction.policy import TurnPolicy, read_policy
from interaction.record import EpisodeRecord
from recipe.appended import Appended
from recipe.files import Damaged, StateFile, lines
from recipe.typed import STRICT


class SettingsError(RuntimeError):
    """The folder belongs to another evaluation, or cannot be used. The message says what to do."""


EPISODES = "episodes.jsonl"
PARTS = {
    "train": ("train",),
    "val": ("choose", "report"),
    "choose": ("choose",),
    "report": ("report",),
    "all": ("train", "choose", "report"),
}
"""The parts of the tasks that each split has."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that decides what an episode is. Two evaluations are comparable if these are equal."""

    __pydantic_config__ = STRICT
    model: str
    """Name of the model at the endpoint, or the model's folder with a fingerprint of its weights."""
    endpoint: str | None
    split: str
    categories: tuple[str, ...]
    protocol: str
    docs: str
    samples: int
    temperature: float | None
    """Of this and the other sampling fields: None leaves it out of requests, so that the server decides."""
    max_tokens: int | None
    """Of one message; None: whatever is left of the context."""
    limit: int | None
    """Tasks of each category, the first by index; None: all."""
    max_steps_per_turn: int = 20
    max_format_errors_per_turn: int = 3
    at_step_limit: str = "official"
    withheld: str = "official"
    top_p: float | None = 1.0
    top_k: int | None = -1
    min_p: float | None = 0.0
    repetition_penalty: float | None = 1.0
    presence_penalty: float | None = 0.0
    frequency_penalty: float | None = 0.0
    environment: str = DEFAULT
    options: dict[str, Any] = field(default_factory=dict)
    """The environment's own settings, those that differ from how it is evaluated by default."""
    user: dict[str, Any] | None = None
    """Who plays the user, as `interaction.user`; None where the environment asks nobody."""
    policy: dict[str, Any] = field(default_factory=dict)
    """Settings of the turn policy that the environment's tasks are evaluated with, in place of those above."""
    source: dict[str, Any] = field(default_factory=dict)
    """What the tasks were made from: a file of the user's, or a release, by hash."""
    strategy: Literal["cot", "dfsdt"] = "cot"
    """One branch to its end, or a search over branches (`recipe.evaluation.search`)."""
    max_nodes: int | None = None
    """Messages of the model that a search may spend on an episode; None without one."""

    def sampling(self) -> dict[str, Any]:
        """What goes into every request.

        All of it is said, although it is mostly what a server does by itself: a model folder's generation_config.json
        may have changed that, and training's validation does not read it.
        """
        fields = {name: getattr(self, name) for name in (*SAMPLING, "max_tokens")}
        return {name: value for name, value in fields.items() if value is not None}

    def tasks(self) -> list[tuple[Task, int]]:
        """Task and number of the sample, category by category."""
        tasks = tasks_under(self.environment, self.options)
        parts = PARTS[self.split]
        return [
            (task, sample)
            for category in self.categories
            for task in [item for item in tasks if item.category == category and item.part in parts][: self.limit]
            for sample in range(self.samples)
        ]

    def require_tasks(self) -> None:
        """There is something to play.

        Raises:
            SettingsError: no task is of the split and the categories; the message says what there is.
        """
        if self.tasks():
            return
        tasks = tasks_under(self.environment, self.options)
        narrowed = {task.category for task in tasks} - {*self.categories}
        found = Counter(f"{task.part} in {task.category}" if narrowed else task.part for task in tasks)
        asked = f" in category {', '.join(self.categories)}" if narrowed else ""
        raise SettingsError(
            f"no task of environment {self.environment}{asked} has the part {' or '.join(PARTS[self.split])} (--split "
            f"{self.split}); it has {', '.join(f'{number} {name}' for name, number in found.items())}"
        )

    def rules(self) -> dict[str, Any]:
        """The environment's settings: BFCL is played by BFCL's rules."""
        official = {"at_step_limit": self.at_step_limit, "withheld": self.withheld}
        return (official if self.environment == DEFAULT else {}) | self.options

    def turn_policy(self) -> dict[str, Any]:
        """How turns go; by BFCL's rules one has a 21st message."""
        official = self.rules().get("at_step_limit") == "official"
        return {
            "max_steps_per_turn": self.max_steps_per_turn + official,
            "max_format_errors_per_turn": self.max_format_errors_per_turn,
            **self.policy,
        }

    def by_bfcl(self) -> bool:
        """Whether its tasks are played by BFCL's own rules, so that its score may be named."""
        return self.environment == DEFAULT and self._played() == replace(self, policy={}, options={})._played()

    def _played(self) -> tuple[dict[str, Any], TurnPolicy]:
        """All rules and settings of turns, those that nobody gave too."""
        return read_options(self.environment, self.rules()), read_policy(self.turn_policy())

    def conversation(self, task: Task) -> Conversation:
        """An episode: nothing added to results, and nothing cut unless the turn policy says so."""
        return Conversation(
            task,
            protocol=get_protocol(self.protocol, docs=self.docs),  # type: ignore[arg-type]
            **self.turn_policy(),
            environments={self.environment: self.rules()},
        )


SETTINGS = StateFile(Settings)


class Store:
    """Folder of one evaluation: settings.json and episodes.jsonl. One process at a time.

    Raises SettingsError, naming each setting, if the folder holds an evaluation with other settings, and if it cannot
    be written.
    """

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder = folder
        self.path = folder / EPISODES
        try:
            self._lines = Appended(self.path)
        except BlockingIOError:
            raise SettingsError(
                f"another evaluation is writing to {folder}; wait for it, or choose another --out"
            ) from None
        except OSError as error:
            raise SettingsError(f"{folder} cannot be written: {error.strerror}; choose another --out") from error
        except Damaged as error:
            raise SettingsError(f"{error}; choose another --out") from error
        try:
            self._keep_settings(settings)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._lines.close()

    def add(self, line: dict[str, Any]) -> None:
        """Keep one finished episode.

        Raises:
            OSError: it cannot be written; what was kept before is whole.
        """
        self._lines.add(line)

    def episodes(self) -> dict[tuple[str, int], EpisodeRecord]:
        """As `finished_episodes`; what is none is played again."""
        return finished_episodes(self.path)

    def _keep_settings(self, settings: Settings) -> None:
        path = self.folder / "settings.json"
        hidden = {name: masked(getattr(settings, name)) for name in ("endpoint", "user", "options")}
        settings = replace(settings, **hidden)
        if not self.path.stat().st_size and not path.exists():
            SETTINGS.write(path, settings)
            return
        try:
            if SETTINGS.read(path) is None:
                raise Damaged(f"{path} is not there")
            earlier = {"environment": DEFAULT, "options": {}, "user": None, "policy": {}, "source": settings.source}
            earlier |= {"strategy": "cot", "max_nodes": None}
            kept = earlier | json.loads(path.read_text(encoding="utf-8"))
        except Damaged as error:
            if not self.path.stat().st_size:  # no episode was played with them
                SETTINGS.write(path, settings)
                return
            raise SettingsError(
                f"{error}. So it is not known what the episodes beside it were played with, and more are not mixed "
                f"among them: choose another --out. `python -m recipe.evaluate --records {self.folder}` judges them."
            ) from error
        given = json.loads(json.dumps(asdict(settings)))
        if silent := [name for name in SAMPLING if name not in kept]:
            raise SettingsError(
                f"{path} does not say {', '.join(silent)}: the evaluation was made by a version that left them to the "
                "server, so more episodes would not be like those. Its results stand as they are, and "
                f"`python -m recipe.evaluate --records {self.folder}` judges its episodes again; to play, choose "
                "another --out."
            )
        changed = [name for name in given if kept.get(name) != given[name]]
        if changed:
            pairs = "; ".join(f"{name} was {kept.get(name)!r}, is {given[name]!r}" for name in changed)
            raise SettingsError(
                f"{self.folder} holds an evaluation with other settings: {pairs}. Results of both must not be mixed: "
                "choose another --out, or give the settings it was started with to go on."
            )


@cache
def _records() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(EpisodeRecord)


def record_of(data: Any) -> EpisodeRecord:
    """The record that a line's `episode` holds, every value of the type that it should have.

    Raises:
        ValueError: it is of a version that cannot be read, or damaged.
    """
    if not isinstance(data, dict):
        raise ValueError("no episode record")
    return _records().validate_python(data)


def finished_episodes(path: Path) -> dict[tuple[str, int], EpisodeRecord]:
    """Task and sample -> the finished episode, of an evaluation's episodes.jsonl. A damaged line is none."""
    return {key: record for key, (_, record) in finished_lines(path).items()}


def finished_lines(path: Path) -> dict[tuple[str, int], tuple[dict[str, Any], EpisodeRecord]]:
    """The same, each with the whole line: what else is there may be of any type."""
    found = {}
    for _, text in lines(path):
        with suppress(ValueError, TypeError, KeyError, RecursionError):
            line = json.loads(text)
            found[str(task_id_of(line)), int(line["sample"])] = line, record_of(line["episode"])
    return found


def read_episodes(path: Path) -> tuple[list[EpisodeRecord], int]:
    """The records in a JSONL file of an evaluation or a training run, and how many whole lines hold none."""
    records, skipped = [], 0
    for _, text in lines(path):
        try:
            records.append(record_of(json.loads(text)["episode"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            skipped += text.endswith(b"\n")
    return records, skipped
