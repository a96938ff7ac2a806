"""A user who says what was said before: in stored episodes, or in lines that somebody has written down.

With it, a conversation is played again without the model that played the user: another agent against the same words, a
training whose user costs nothing, a test. The words do not follow what the agent says now.

    {"task_id": "phone_0", "lines": ["My line is dead.", "Goodbye."]}

or a line of `episodes.jsonl` or of `rollouts/<split>/<step>.jsonl`, whose record has them under `heard`.
"""

import asyncio
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict
from pydantic.dataclasses import dataclass as checked_dataclass

from interaction.environment import AskUser
from interaction.user_fault import UserFault

EXPECTED = 'expected {"task_id": TEXT, "lines": [TEXT, ...]}, or a stored episode'

Recordings = Mapping[str, tuple[tuple[str, ...], ...]]
"""Task -> what its user said, in each of its recordings."""


def _readable(file: str) -> str:
    recordings(file)
    return file


@checked_dataclass(frozen=True, config=ConfigDict(strict=True, extra="forbid"))
class Replay:
    """The user that a recording plays."""

    file: Annotated[str, AfterValidator(_readable)]
    """A JSONL file, or a folder with those of a run or of an evaluation."""

    async def say(self, ask: AskUser) -> str:
        """As `User.say`."""
        try:
            known = (await asyncio.to_thread(recordings, self.file)).get(ask.task_id, ())
        except ValueError as error:
            raise UserFault(str(error)) from error
        if not known:
            raise UserFault(f"{self.file} has no lines of the task {ask.task_id!r}")
        if not 0 <= ask.recording < len(known):
            raise UserFault(f"{self.file} has {len(known)} recordings of {ask.task_id!r}; asked for {ask.recording}")
        lines = known[ask.recording]
        if ask.heard >= len(lines):
            raise UserFault(f"{self.file} has {len(lines)} lines of {ask.task_id!r} and was asked for one more")
        return lines[ask.heard]


def recordings(file: str) -> Recordings:
    """All recordings of a file or folder, in order; kept until it changes.

    Raises:
        ValueError: it cannot be read, or a line of it holds no recording.
    """
    path = Path(file).expanduser()
    try:
        paths = [path]
        if path.is_dir():
            paths = sorted(path.glob("**/rollouts/*/*.jsonl")) or sorted(path.glob("**/episodes.jsonl"))
        states = [(one.stat().st_size, one.stat().st_mtime_ns) for one in paths]
        if not paths or not all(one.is_file() for one in paths):
            raise ValueError("no files of episodes")
        return _read(tuple(paths), tuple(states))
    except (OSError, RuntimeError) as error:
        raise ValueError(f"{file} cannot be read: {error}; {EXPECTED} in each line") from error


@lru_cache(4)
def _read(paths: tuple[Path, ...], _: tuple[tuple[int, int], ...]) -> Recordings:
    found: dict[str, list[tuple[str, ...]]] = {}
    for path in paths:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    task_id, words = _recording(json.loads(line))
                except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                    shown = f"{type(error).__name__}: {error}"[:200]
                    raise ValueError(f"{path} line {number} holds no recording ({shown}); {EXPECTED}") from error
                found.setdefault(task_id, []).append(words)
    return {task_id: tuple(known) for task_id, known in found.items()}


def _recording(line: Any) -> tuple[str, tuple[str, ...]]:
    """Task and words of a line. Where nobody was asked, the words that opened a turn."""
    if "episode" in line:
        episode = line["episode"]
        task_id = line.get("task_id") or episode["task_id"]
        words = episode["heard"] or [turn["user"] for turn in episode["turns"] if turn["reached"]]
    else:
        if unknown := line.keys() - {"task_id", "lines"}:
            raise KeyError(f"nothing reads {', '.join(sorted(unknown))}")
        task_id, words = line["task_id"], line["lines"]
    if not all(isinstance(text, str) for text in (task_id, *words)) or isinstance(words, str):
        raise TypeError("task_id and lines are no texts")
    return task_id, tuple(words)
