"""Play all episodes of an evaluation through an endpoint, side by side, and keep each one as soon as it is finished.

What decides the outcome is in `Settings`, which is kept beside the episodes: a second start goes on where the first one
stopped, and refuses to mix episodes of other settings. An episode that cannot be played because the server failed is
played again and then reported as lost. It is never scored. One in which our environment failed is scored as it stands,
as in training (`environment_error`): what the model wrote may have led there, and must not decide what counts.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import IO, Any

from tqdm import tqdm

from bfcl_env import Scenario, load_scenarios
from interaction import Conversation, StopReason, get_protocol
from interaction.record import EpisodeRecord
from recipe.evaluation.endpoint import SAMPLING, ContextFull, Endpoint, EndpointFault, EndpointRefusal

ATTEMPTS = 2
"""How often an episode is played; each message was asked for several times before that."""
LOST_IN_A_ROW = 10
"""So many lost episodes without a finished one between them: the server is gone, and the rest is not tried."""


class SettingsError(RuntimeError):
    """The folder belongs to another evaluation."""


@dataclass(frozen=True, slots=True)
class Settings:
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

    def sampling(self) -> dict[str, Any]:
        """What goes into every request.

        All of it is said, although it is mostly what a server does by itself: a model folder's generation_config.json
        may have changed that, and training's validation does not read it.
        """
        fields = {name: getattr(self, name) for name in (*SAMPLING, "max_tokens")}
        return {name: value for name, value in fields.items() if value is not None}

    def tasks(self) -> list[tuple[Scenario, int]]:
        """Scenario and number of the sample, category by category."""
        split = None if self.split == "all" else self.split
        return [
            (scenario, sample)
            for category in self.categories
            for scenario in load_scenarios(category, split=split)[: self.limit]
            for sample in range(self.samples)
        ]

    def conversation(self, scenario: Scenario) -> Conversation:
        """An episode by BFCL's rules: nothing added to results, nothing cut, withheld functions callable."""
        return Conversation(
            scenario,
            protocol=get_protocol(self.protocol, docs=self.docs),  # type: ignore[arg-type]
            max_steps_per_turn=self.max_steps_per_turn,
            max_format_errors_per_turn=self.max_format_errors_per_turn,
            at_step_limit=self.at_step_limit,  # type: ignore[arg-type]
            withheld=self.withheld,  # type: ignore[arg-type]
        )


@dataclass(frozen=True, slots=True)
class Lost:
    """An episode that could not be played."""

    scenario_id: str
    category: str
    sample: int
    reason: str


class Store:
    """Folder of one evaluation: settings.json and episodes.jsonl. One process at a time.

    Raises SettingsError, naming each setting, if the folder holds an evaluation with other settings.
    """

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder = folder
        self.path = folder / "episodes.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("ab+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SettingsError(
                f"another evaluation is writing to {folder}; wait for it, or choose another --out"
            ) from None
        self._keep_settings(settings)
        if self._file.tell() and self.path.read_bytes()[-1:] != b"\n":
            self._file.write(b"\n")  # the last start was ended while it wrote

    def close(self) -> None:
        self._file.close()

    def add(self, line: dict[str, Any]) -> None:
        """Keep one finished episode."""
        self._file.write(json.dumps(line, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")
        self._file.flush()

    def lines(self) -> Iterator[dict[str, Any]]:
        """The finished episodes."""
        with self.path.open(encoding="utf-8") as file:
            yield from read_lines(file)

    def _keep_settings(self, settings: Settings) -> None:
        path = self.folder / "settings.json"
        given = json.loads(json.dumps(asdict(settings)))
        if not path.exists():
            path.write_text(json.dumps(given, indent=2) + "\n")
            return
        kept = json.loads(path.read_text())
        if silent := [name for name in SAMPLING if name not in kept]:
            raise SettingsError(
                f"{path} does not say {', '.join(silent)}: the evaluation was made by a version that left them to the "
                "server, so more episodes would not be like those. Its results stand as they are, and "
                f"`python -m recipe.evaluate --records {self.folder}` judges its episodes again; to play, choose "
                "another --out."
            )
        changed = [name for name in {**kept, **given} if kept.get(name) != given.get(name)]
        if changed:
            pairs = "; ".join(f"{name} was {kept.get(name)!r}, is {given.get(name)!r}" for name in changed)
            raise SettingsError(
                f"{self.folder} holds an evaluation with other settings: {pairs}. Results of both must not be mixed: "
                "choose another --out, or give the settings it was started with to go on."
            )


def read_lines(file: IO[str]) -> Iterator[dict[str, Any]]:
    """JSON lines; one that a crash has cut off is left out."""
    for line in file:
        try:
            yield json.loads(line)
        except ValueError:
            continue


def progress_bar(name: str, total: int, done: int = 0) -> tqdm:
    """A bar for people at a terminal; where the output goes to a file, a line now and then."""
    often = 0.5 if sys.stderr.isatty() else 60.0
    return tqdm(desc=name, total=total, initial=done, unit="episode", mininterval=often)


async def play_episode(endpoint: Endpoint, settings: Settings, scenario: Scenario) -> dict[str, Any]:
    """One episode from its first to its last message, with the tokens that the server counted.

    Raises:
        EndpointFault: the server did not answer.
        EndpointRefusal: it never will.
    """
    tokens = {"prompt_tokens": 0, "completion_tokens": 0}
    with settings.conversation(scenario) as conversation:
        messages = conversation.start()
        while not conversation.done:
            began = perf_counter()
            try:
                said = await endpoint.complete(messages)
            except ContextFull:
                conversation.stop(StopReason.max_tokens)
                break
            tokens["prompt_tokens"] += said.prompt_tokens
            tokens["completion_tokens"] += said.completion_tokens
            took = round(perf_counter() - began, 4)
            reply = conversation.reply(said.text, truncated=said.truncated, generate_seconds=took)
            messages = [*messages, {"role": "assistant", "content": said.text}, *reply.messages]
        return {**tokens, "episode": conversation.record().to_dict()}


async def play_all(endpoint: Endpoint, settings: Settings, store: Store, concurrency: int) -> list[Lost]:
    """Play what the store does not hold yet. Returns what could not be played.

    Raises:
        EndpointRefusal: the server refuses every request.
    """
    done = {(line["scenario_id"], line["sample"]) for line in store.lines()}
    tasks = settings.tasks()
    left = [(scenario, sample) for scenario, sample in tasks if (scenario.id, sample) not in done]
    lost: list[Lost] = []
    in_a_row = 0
    waiting = iter(left)
    with progress_bar("playing", len(tasks), done=len(tasks) - len(left)) as bar:

        async def work() -> None:
            nonlocal in_a_row
            for scenario, sample in waiting:
                fault = f"not tried: {in_a_row} episodes in a row were lost"
                if in_a_row < LOST_IN_A_ROW:
                    line, fault = await _play_or_lose(endpoint, settings, scenario)
                    if line is not None:
                        store.add({"scenario_id": scenario.id, "sample": sample, **line})
                        in_a_row = 0
                        bar.update()
                        continue
                    in_a_row += 1
                lost.append(Lost(scenario.id, scenario.category, sample, fault))
                bar.set_postfix(lost=len(lost))

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(concurrency):
                    group.create_task(work())
        except* EndpointRefusal as refusals:
            raise refusals.exceptions[0] from None
    return lost


async def _play_or_lose(
    endpoint: Endpoint, settings: Settings, scenario: Scenario
) -> tuple[dict[str, Any] | None, str]:
    """The finished episode, or None and why there is none."""
    fault = ""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            line = await play_episode(endpoint, settings, scenario)
        except EndpointFault as error:
            fault = str(error)
            continue
        return {"attempts": attempt, **line}, ""
    return None, fault


def read_episodes(path: Path) -> tuple[list[EpisodeRecord], int]:
    """The records in a JSONL file of an evaluation or a training run, and how many have another version."""
    records, skipped = [], 0
    with path.open(encoding="utf-8") as file:
        for line in read_lines(file):
            try:
                records.append(EpisodeRecord.from_dict(line["episode"]))
            except (ValueError, KeyError, TypeError):
                skipped += 1
    return records, skipped
