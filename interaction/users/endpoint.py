"""A user who is a model behind an OpenAI-compatible server.

Episodes of a process share one client, so that a server sees `CONNECTIONS` requests at most, and the others wait here
without their time running. A fault of the server is asked again and then a `UserFault`: an episode is dropped rather
than scored with a user who said nothing.

What the agent has said goes to this server as text without control tokens, as everything does that `Endpoint` sends;
what comes back is data, and made plain like anything else that the environment says before it becomes tokens.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from ipaddress import ip_address
from typing import Annotated, Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from pydantic import AfterValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass as checked_dataclass

from interaction.endpoint.client import ContextFull, Endpoint, EndpointFault, EndpointRefusal, Named
from interaction.endpoint.reply import Completion
from interaction.environment import AskUser
from interaction.protocol import Message
from interaction.user_fault import UserFault
from interaction.words import MAX_WORDS, cut

CONNECTIONS = 64
"""Requests to the server at once, from one process."""

PROBE_ATTEMPTS = 2
"""How often the server is asked for its first word before a start."""

NAMED = Named(
    "interaction.user.url",
    "interaction.user.model",
    "interaction.user.api_key_env",
    "Set interaction.user.{name}=null: then the server decides it.",
)


def _address(url: str) -> str:
    """An address without a key in it: settings are written down with every run."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        known = False
    if not known or not url.isprintable() or " " in url:
        raise ValueError("expected the address of an OpenAI-compatible server, such as http://127.0.0.1:8001/v1")
    if parts.username or parts.password or parts.query:
        raise ValueError("expected an address without name, password or query; a key comes with api_key_env")
    return url


@checked_dataclass(frozen=True, config=ConfigDict(strict=True, extra="forbid"))
class EndpointUser:
    """The user that a server plays; its fields are settings."""

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
    """Seconds for one reply."""
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
            return cut((await (await self._line()).complete(ask.messages)).text, self.max_chars)
        except ContextFull as error:
            raise UserFault(f"the conversation does not fit the context of {self.url}: {error}") from error
        except EndpointRefusal as error:
            raise UserFault(str(error)) from error
        except EndpointFault as error:
            raise UserFault(f"{self.url} ({NAMED.url}) gave no words in {self.attempts} attempts: {error}") from error

    async def probe(self) -> None:
        """Asks for one word, and leaves no connection. Raises UserFault if none comes."""
        user = replace(self, attempts=min(self.attempts, PROBE_ATTEMPTS))
        try:
            await user.say(AskUser(({"role": "user", "content": "Say hello."},)))
        finally:
            await user.close()

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
        return Endpoint(
            self.url,
            self.model,
            key,
            self.timeout,
            self.attempts,
            self.backoff,
            sampling={name: value for name, value in given.items() if value is not None},
            require=_require_words,
            named=NAMED,
            private=self.local,
        )


class _Line:
    """The client of one event loop."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint, self.places = endpoint, asyncio.Semaphore(CONNECTIONS)
        self.naming: asyncio.Task[None] | None = None

    async def complete(self, messages: Sequence[Any]) -> Completion:
        async with self.places:
            if self.endpoint.model is None:  # asked for once, however many wait
                if self.naming is None or self.naming.done():
                    self.naming = asyncio.create_task(self.endpoint.open())
                await asyncio.shield(self.naming)
            sent: list[Message] = [dict(message) for message in messages]
            return await self.endpoint.complete(sent)


_lines: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[EndpointUser, _Line]] = WeakKeyDictionary()


def _require_words(said: Completion) -> None:
    """Raises ValueError for what nobody can have said."""
    if not any(letter.isprintable() and not letter.isspace() for letter in said.text):
        cut_off = ", cut off by max_tokens" if said.truncated else ""
        raise ValueError(f"a message without a word: {said.text[:80]!r}{cut_off}")
