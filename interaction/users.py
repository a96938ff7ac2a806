"""Who plays the user where an environment has no words of its own for it: a conversation asks, and somebody answers.

scripted     the lines of a setting, for tests
endpoint     a model behind an OpenAI-compatible server
replay       what users have said in stored episodes, or in a file

All episodes of a process wait for their users side by side. What a user says is data, as what the model says is. Where
nobody says anything that can be used, `UserFault` drops the episode: it is never scored with a silent user.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache, partial
from importlib import import_module
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Protocol
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from pydantic import AfterValidator, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from interaction.endpoint import Completion, ContextFull, Endpoint, EndpointFault, EndpointRefusal, Named
from interaction.environment import AskUser, UserFault
from interaction.episode_file import parts_of, played_in
from interaction.words import MAX_WORDS, cut, wrong_settings

__all__ = ["KINDS", "EndpointUser", "Replay", "Scripted", "User", "UserFault", "make_user", "require_answer"]

CONNECTIONS = 64
"""Requests to a user's server at once, from one process."""

PROBE_ATTEMPTS = 2
"""How often the server is asked for its first word before a start."""

NAMED = Named(
    "interaction.user.url",
    "interaction.user.model",
    "interaction.user.api_key_env",
    "Set interaction.user.{name}=null: then the server decides it.",
)
EXPECTED = 'expected {"task_id": TEXT, "lines": [TEXT, ...]}, or a stored episode'

SETTINGS = ConfigDict(strict=True, extra="forbid")


class User(Protocol):
    """Plays the user of any number of episodes at once."""

    async def say(self, ask: AskUser) -> str:
        """What the user says to these chat messages.

        Raises:
            UserFault: nothing could be said. The episode is played again, and then dropped: it is never scored.
        """
        ...


@checked_dataclass(frozen=True, config=SETTINGS)
class Scripted:
    """Says `lines` in order, the same in every episode, each after `seconds`; for tests."""

    lines: Annotated[tuple[str, ...], Field(strict=False)]
    """What the user says, in order."""
    seconds: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] = 0.0
    """How long each line takes."""

    async def say(self, ask: AskUser) -> str:
        await asyncio.sleep(self.seconds)
        if ask.heard >= len(self.lines):
            raise UserFault(f"a scripted user has {len(self.lines)} lines and was asked for one more")
        return self.lines[ask.heard]


def _address(url: str) -> str:
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # its words may repeat a password
        known = False
    if not known:
        raise ValueError("expected the address of an OpenAI-compatible server, such as http://127.0.0.1:8001/v1")
    if parts.username or parts.password or parts.query:  # settings are written down with every run
        raise ValueError("expected an address without name, password or query; a key comes with api_key_env")
    return url


@checked_dataclass(frozen=True, config=SETTINGS)
class EndpointUser:
    """The user that a server plays; its fields are settings. Episodes of a process share one client of it."""

    url: Annotated[str, AfterValidator(_address)]
    """Up to and with `/v1`."""
    model: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    """Name under which the server knows the model; None: the only one that it serves."""
    api_key_env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    """Environment variable that holds the key; None: the server wants none."""
    temperature: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] | None = 0.7
    """Of sampling; None leaves it to the server."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    """The same for every request: to the same conversation the server then says the same, if it keeps to it; None
    leaves it to the server."""
    max_tokens: Annotated[int, Field(ge=1, le=2**20)] | None = 256
    """Of one reply; None leaves it to the server."""
    max_chars: Annotated[int, Field(ge=1, le=MAX_WORDS)] = MAX_WORDS
    """Of what is said; the rest is cut off."""
    timeout: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    """Seconds for one reply; waiting for one of the `CONNECTIONS` does not count."""
    attempts: Annotated[int, Field(ge=1, le=100)] = 5
    """How often one reply is asked for."""
    backoff: Annotated[float, Field(ge=0, le=60)] = 1.0
    """Seconds before the second attempt, doubled each time."""
    remote: bool = False
    """In training: whether conversations may go to a server on another machine."""

    @property
    def local(self) -> bool:
        """Whether the address is one of this machine alone. No name but localhost is looked up."""
        host = urlsplit(self.url).hostname or ""
        try:
            return host == "localhost" or ip_address(host).is_loopback
        except ValueError:
            return False

    async def say(self, ask: AskUser) -> str:
        """As `User.say`."""
        try:
            said = await (await self._line()).complete(ask)
            return cut(said.text, self.max_chars) if _has_words(said) else ""
        except ContextFull as error:
            raise UserFault(f"the conversation does not fit the context of {self.url}: {error}") from error
        except EndpointRefusal as error:
            raise UserFault(str(error)) from error
        except EndpointFault as error:
            raise UserFault(f"{self.url} ({NAMED.url}) gave no words in {self.attempts} attempts: {error}") from error

    async def close(self) -> None:
        """End the connections of this event loop; another word opens new ones."""
        if line := _lines.get(asyncio.get_running_loop(), {}).pop(self, None):
            await line.endpoint.close()

    async def _line(self) -> _Line:
        lines = _lines.setdefault(asyncio.get_running_loop(), {})
        if self not in lines:
            await asyncio.to_thread(import_module, "openai")  # seconds, in which other episodes go on
        if self not in lines:  # still
            lines[self] = _Line(self._endpoint())
        return lines[self]

    def _endpoint(self) -> Endpoint:
        key = "EMPTY" if self.api_key_env is None else os.environ.get(self.api_key_env)
        if key is None:
            raise EndpointRefusal(f"{NAMED.key}={self.api_key_env}: there is no such environment variable")
        given = {"temperature": self.temperature, "seed": self.seed, "max_tokens": self.max_tokens}
        sampling = {name: value for name, value in given.items() if value is not None}
        asked = self.url, self.model, key, self.timeout, self.attempts, self.backoff
        return Endpoint(*asked, sampling=sampling, named=NAMED, private=self.local, thoughts=True)


class _Line:
    """The client of one event loop."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint, self.places, self.naming = endpoint, asyncio.Semaphore(CONNECTIONS), asyncio.Lock()

    async def complete(self, ask: AskUser) -> Completion:
        async with self.places:
            async with self.naming:
                if self.endpoint.model is None:
                    await self.endpoint.open()
            require = partial(_require_words, silence=ask.silence)
            return await self.endpoint.complete(list(map(dict, ask.messages)), require)


_lines: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[EndpointUser, _Line]] = WeakKeyDictionary()


def _has_words(said: Completion) -> bool:
    return any(letter.isprintable() and not letter.isspace() for letter in said.text)


def _require_words(said: Completion, silence: bool) -> None:
    """Raises ValueError for what nobody can have said."""
    if not _has_words(said) and (said.truncated or not silence):
        cut_off = ", cut off by max_tokens" if said.truncated else ""
        raise ValueError(f"a message without a word: {said.text[:80]!r}{cut_off}")


def _readable(file: str) -> str:
    _lines_of(file)
    return file


@checked_dataclass(frozen=True, config=SETTINGS)
class Replay:
    """Says what was said before, whatever the agent says now: in a stored episode, or in a line such as

    {"task_id": "phone_0", "lines": ["My line is dead.", "Goodbye."]}
    """

    file: Annotated[str, AfterValidator(_readable)]
    """A JSONL file, or a folder with those of a run or of an evaluation; the first line of a task counts."""

    async def say(self, ask: AskUser) -> str:
        """As `User.say`."""
        lines = (await asyncio.to_thread(_lines_of, self.file)).get(ask.task_id)
        if lines is None:
            raise UserFault(f"{self.file} has no lines of the task {ask.task_id!r}")
        if ask.heard >= len(lines):
            raise UserFault(f"{self.file} has {len(lines)} lines of {ask.task_id!r} and was asked for one more")
        return lines[ask.heard]


@cache
def _lines_of(file: str) -> Mapping[str, Sequence[str]]:
    """Task -> what its user said. Raises ValueError for a file that cannot be read, or a line without a recording."""
    path, found = Path(file).expanduser(), dict[str, list[str]]()
    if path.is_dir():
        paths = [part for step in played_in(path) for part in parts_of(step)] or sorted(path.glob("**/episodes.jsonl"))
        if not paths:
            raise ValueError(f"{file} has no files of episodes; {EXPECTED} in each line")
    else:
        paths = [path]
    try:
        for one in paths:
            with one.open("rb") as lines:
                for number, line in enumerate(lines, 1):
                    task_id, words = _recording(line, f"{one} line {number}")
                    found.setdefault(task_id, words)
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error}; {EXPECTED} in each line") from error
    return found


def _recording(text: bytes, where: str) -> tuple[str, list[str]]:
    """Task and words of a line."""
    try:
        line = json.loads(text)
        if "episode" in line:
            episode = line["episode"]
            task_id, words = line.get("task_id") or episode["task_id"], episode["heard"]
        else:
            task_id, words = line["task_id"], line["lines"]
        if not all(isinstance(text, str) for text in (task_id, *words)) or isinstance(words, str):
            raise TypeError("task_id and lines are no texts")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        shown = f"{type(error).__name__}: {error}"[:200]
        raise ValueError(f"{where} holds no recording ({shown}); {EXPECTED}") from error
    return task_id, words


KINDS: dict[str, Any] = {"scripted": Scripted, "endpoint": EndpointUser, "replay": Replay}
"""`interaction.user.kind` -> who plays the user; its fields are the other keys."""


def make_user(settings: Mapping[str, Any] | None) -> User | None:
    """The user that `interaction.user` describes; None where there is none.

    Raises:
        ValueError: there is no such kind of user, or it has no such setting, or not with this value.
    """
    if settings is None:
        return None
    given = dict(settings)
    if (kind := given.pop("kind", None)) not in KINDS:
        raise ValueError(f"interaction.user.kind={kind!r}; known: {', '.join(KINDS)}")
    try:
        user: User = KINDS[kind](**given)
    except ValidationError as error:
        raise ValueError(f"interaction.user with kind={kind}: {wrong_settings(error)}") from error
    return user


def require_answer(settings: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Ask a user who may not be there for one word, before anything starts. Not inside a running event loop.

    Returns the settings with their defaults, and the name of the model that has answered.

    Raises:
        UserFault: there is none; the message names the setting.
        ValueError: as `make_user`.
    """
    if settings is None or (user := make_user(settings)) is None:
        return None
    found = {"kind": settings["kind"], **asdict(user)}  # type: ignore[call-overload]
    if not isinstance(user, EndpointUser):
        return found
    asked = replace(user, attempts=min(user.attempts, PROBE_ATTEMPTS))

    async def ask() -> str | None:
        try:
            await asked.say(AskUser(({"role": "user", "content": "Say hello."},)))
            return (await asked._line()).endpoint.model
        finally:
            await asked.close()

    return found | {"model": asyncio.run(ask())}
