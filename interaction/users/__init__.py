"""Who plays the user where an environment has no words of its own for it: a conversation asks, and somebody answers.

scripted     the lines of a setting, for tests                          (here)
endpoint     a model behind an OpenAI-compatible server                 endpoint.py
replay       what users have said in stored episodes, or in a file      replay.py

All episodes of a process wait for their users side by side. What a user says is data, as what the model says is.
"""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, Protocol

from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from interaction.environment import AskUser
from interaction.user_fault import UserFault
from interaction.users.endpoint import EndpointUser
from interaction.users.replay import Replay
from interaction.words import wrong_settings

__all__ = ["KINDS", "EndpointUser", "Replay", "Scripted", "User", "UserFault", "make_user", "require_answer"]


class User(Protocol):
    """Plays the user of any number of episodes at once."""

    async def say(self, ask: AskUser) -> str:
        """What the user says to these chat messages.

        Raises:
            UserFault: nothing could be said. The episode is played again, and then dropped: it is never scored.
        """
        ...


@checked_dataclass(frozen=True, config=ConfigDict(strict=True, extra="forbid"))
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


def require_answer(settings: Mapping[str, Any] | None) -> None:
    """Ask a user who may not be there for one word, before anything starts. Not inside a running event loop.

    Raises:
        UserFault: there is none; the message names the setting.
        ValueError: as `make_user`.
    """
    if isinstance(user := make_user(settings), EndpointUser):
        asyncio.run(user.probe())
