"""What an evaluation keeps: its settings, and every finished episode as a line of `episodes.jsonl`.

A second start goes on where the first one stopped, and refuses to mix episodes of other settings. An episode that was
being written when it stopped is played again (`recipe.files`).
"""

import json
from collections import Counter
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from interaction import Conversation, get_protocol
from interaction.endpoint import SAMPLING
from interaction.environment import DEFAULT, Task, read_options, tasks_under
from interaction.episode_file import last_plays
from interaction.masked import masked
from interaction.policy import read_policy
from interaction.record import VERSION, EpisodeRecord
from recipe.files import Appended, Damaged, PreflightError, StateFile, lines

EPISODES = "episodes.jsonl"
PARTS = {
    "train": ("train",),
    "val": ("dev", "test"),
    "dev": ("dev",),
    "test": ("test",),
    "all": ("train", "dev", "test"),
    "official": ("train", "dev", "test"),
    "official_test": ("dev", "test"),
}
"""The parts of the tasks that each split has; `official` those of tau2-bench's own."""


@dataclass(frozen=True)
class Settings(StateFile):
    """Everything that decides what an episode is. Two evaluations are comparable if these are equal."""

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
    top_p: float | None = 1.0
    top_k: int | None = -1
    min_p: float | None = 0.0
    repetition_penalty: float | None = 1.0
    presence_penalty: float | None = 0.0
    frequency_penalty: float | None = 0.0
    environment: str = DEFAULT
    options: dict[str, Any] = field(default_factory=dict)
    """The environment's own settings, given or not."""
    user: dict[str, Any] | None = None
    """Who plays the user, as `interaction.user`; None where the environment asks nobody."""
    policy: dict[str, Any] = field(default_factory=dict)
    """Settings of the turn policy that the environment's tasks are evaluated with, given or not."""
    source: dict[str, Any] = field(default_factory=dict)
    """What the tasks were made from: a file of the user's, or a release, by hash."""
    strategy: Literal["plain", "dfsdt"] = "plain"
    """One branch to its end, or a search over branches (`recipe.votes.search`)."""
    max_nodes: int | None = None
    """Messages of the model that a search may spend on an episode; None without one."""
    stop: tuple[str, ...] = ()
    """Texts, or numbers of tokens, at which a message ends beside where the server ends it."""
    made_with: dict[str, Any] = field(default_factory=dict)
    """Commit and versions; of a server that is started here, the engine's, its profile and flags as well."""

    def sampling(self) -> dict[str, Any]:
        """What goes into every request: all of it, since a model folder's generation_config.json may say otherwise."""
        fields = {name: getattr(self, name) for name in (*SAMPLING, "max_tokens")}
        fields["stop"] = [text for text in self.stop if not text.isdecimal()] or None
        fields["stop_token_ids"] = [int(text) for text in self.stop if text.isdecimal()] or None
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
        """Raises PreflightError if no task is of the split and the categories; the message says what there is."""
        if not self.tasks():
            tasks = tasks_under(self.environment, self.options)
            found = Counter(f"{task.part} in {task.category}" for task in tasks if task.category in self.categories)
            has = ", ".join(f"{count} {name}" for name, count in found.items())
            raise PreflightError(f"--split {self.split}: environment {self.environment} has no such task, but {has}")

    def rules(self) -> dict[str, Any]:
        """The environment's settings: BFCL is played by BFCL's rules."""
        official = {"at_step_limit": "official", "withheld": "official"}
        return (official if self.environment == DEFAULT else {}) | self.options

    def turn_policy(self) -> dict[str, Any]:
        """How turns go; by BFCL's rules one has a 21st message."""
        official = self.rules().get("at_step_limit") == "official"
        return {"max_steps_per_turn": 20 + official, "max_format_errors_per_turn": 3, **self.policy}

    def by_bfcl(self) -> bool:
        """Whether its tasks are played by BFCL's own limits and functions."""
        ours, plain = (
            (read_options(one.environment, one.rules()), read_policy(one.turn_policy()))
            for one in (self, replace(self, policy={}, options={}))
        )
        return self.environment == DEFAULT and ours == plain

    def conversation(self, task: Task) -> Conversation:
        """An episode: nothing added to results, and nothing cut unless the turn policy says so."""
        return Conversation(
            task,
            protocol=get_protocol(self.protocol, docs=self.docs),  # type: ignore[arg-type]
            **self.turn_policy(),
            environments={self.environment: self.rules()},
        )


class Store:
    """Folder of one evaluation: settings.json and episodes.jsonl. One process at a time.

    Raises:
        PreflightError: the folder holds an evaluation with other settings, or cannot be written.
    """

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder, self.path = folder, folder / EPISODES
        try:
            self._lines = Appended(self.path)
        except BlockingIOError:
            raise PreflightError(f"another evaluation is writing to {folder}; choose another --out") from None
        except (OSError, Damaged) as error:
            raise PreflightError(f"{folder} cannot be written: {error}; choose another --out") from error
        self.close, self.add = self._lines.close, self._lines.add
        settings = replace(settings, **{name: masked(getattr(settings, name)) for name in HIDDEN})
        if not self.path.stat().st_size:  # no episode was played with others
            settings.write(folder / "settings.json")
            return
        try:
            kept = Settings.read(folder / "settings.json")
        except Damaged as error:
            self.close()
            raise PreflightError(f"{error}: the settings of the episodes beside it; choose another --out.") from error
        pairs = [(item.name, getattr(kept, item.name, None), getattr(settings, item.name)) for item in fields(settings)]
        if changed := [f"{name} was {before!r}, is {now!r}" for name, before, now in pairs if before != now]:
            self.close()
            said = f"{folder} holds an evaluation with other settings: {'; '.join(changed)}"
            raise PreflightError(f"{said}. Choose another --out, or give the settings it was started with.")

    def episodes(self) -> dict[tuple[str, int], EpisodeRecord]:
        """Task and sample -> record of the finished episodes."""
        return {key: record for key, (_, record) in finished_lines(self.path).items()}


HIDDEN = ("endpoint", "user", "options", "made_with")  # settings that may hold a key or a password


def finished_lines(path: Path) -> dict[tuple[str, int], tuple[dict[str, Any], EpisodeRecord]]:
    """Task and sample -> line and record of the finished episodes in an evaluation's episodes.jsonl."""
    found, _ = read_episodes(path)
    return {(str(line.get("task_id")), int(line.get("sample", 0))): (line, record) for line, record in found}


def read_episodes(*parts: Path) -> tuple[list[tuple[dict[str, Any], EpisodeRecord]], int]:
    """Line and record of the episodes of an evaluation or of a run's step, and how many whole lines hold none."""
    plays, none = list[Any](), 0
    for _, text in (item for path in parts for item in lines(path)):
        try:
            line = json.loads(text)
            if line["episode"]["version"] != VERSION:
                raise ValueError
            record = EpisodeRecord.from_dict(line["episode"])
        except (ValueError, KeyError, TypeError, RecursionError):
            none += text.endswith(b"\n")  # what was cut off does not count
            continue
        key = record.environment, record.task_id, line.get("sample", line.get("session_id"))
        plays.append((key, line.get("launch"), (line, record)))
    return last_plays(plays), none
