"""A user who says what was said before: in stored episodes, or in lines that somebody has written down.

With it, a conversation is played again without the model that played the user: another agent against the same words, a
training whose user costs nothing, a test. The words do not follow what the agent says now.

    {"task_id": "phone_0", "lines": ["My line is dead.", "Goodbye."]}

or a line of `episodes.jsonl` or of `rollouts/<split>/<step>.jsonl`, whose record has them under `heard`.
"""

import asyncio
import json
import stat
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict
from pydantic.dataclasses import dataclass as checked_dataclass

from interaction.environment import AskUser, task_id_of
from interaction.user_fault import UserFault

MOST_BYTES = 2**28
"""Of all files together; they are read whole before a start."""
LONGEST_LINE = 2**26
MOST_FILES = 10_000
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
        ValueError: it cannot be read, is too large, or a line of it holds no recording; which, and what was expected.
    """
    try:
        paths = _files(Path(file).expanduser())
        states = [path.stat() for path in paths]
    except (OSError, ValueError, RuntimeError) as error:
        raise ValueError(f"{file} cannot be read: {error}; {EXPECTED} in each line") from error
    for path, state in zip(paths, states, strict=True):
        if not stat.S_ISREG(state.st_mode):
            raise ValueError(f"{path} cannot be read: it is no plain file; {EXPECTED} in each line")
    if (size := sum(state.st_size for state in states)) > MOST_BYTES:
        raise ValueError(f"{file} has {size} bytes; expected at most {MOST_BYTES}")
    return _read(tuple(paths), tuple((state.st_size, state.st_mtime_ns) for state in states))


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(path.glob("**/rollouts/*/*.jsonl")) or sorted(path.glob("**/episodes.jsonl"))
    if not 0 < len(found) <= MOST_FILES:
        raise ValueError(
            f"{len(found)} files of episodes in this folder, expected 1 to {MOST_FILES} of rollouts/<split>/ or "
            "episodes.jsonl"
        )
    return found


@lru_cache(4)
def _read(paths: tuple[Path, ...], _: tuple[tuple[int, int], ...]) -> Recordings:
    found: dict[str, list[tuple[str, ...]]] = {}
    for path in paths:
        for number, line in enumerate(_lines(path), 1):
            try:
                task_id, words = _recording(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                shown = f"{type(error).__name__}: {error}"[:200]
                raise ValueError(f"{path} line {number} holds no recording ({shown}); {EXPECTED}") from error
            found.setdefault(task_id, []).append(words)
    return {task_id: tuple(known) for task_id, known in found.items()}


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while line := file.readline(LONGEST_LINE):
            yield line


def _recording(line: Any) -> tuple[str, tuple[str, ...]]:
    """Task and words of a line. A record of before `heard` has but the words that opened a turn."""
    if not isinstance(line, dict):
        raise TypeError(f"a {type(line).__name__}")
    if "episode" in line:
        episode = line["episode"]
        task_id = task_id_of(line) or task_id_of(episode)
        words = episode.get("heard") or [turn["user"] for turn in episode["turns"] if turn["reached"]]
    else:
        if unknown := line.keys() - {"task_id", "lines"}:
            raise KeyError(f"nothing reads {', '.join(sorted(unknown))}")
        task_id, words = line["task_id"], line["lines"]
    if not isinstance(task_id, str) or not task_id:
        raise TypeError("task_id is no text")
    if not isinstance(words, list) or not all(isinstance(text, str) for text in words):
        raise TypeError("lines is no list of texts")
    return task_id, tuple(words)
