"""Who plays the user where an environment has no words of its own for it: a conversation asks, and somebody answers.

All episodes of a process wait for their users side by side. What a user says is data, as what the model says is.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class User(Protocol):
    """Plays the user of any number of episodes at once."""

    async def say(self, messages: Sequence[Mapping[str, str]]) -> str:
        """What the user says to these chat messages, those of `AskUser`.

        Raises:
            UserFault: nothing could be said. The episode is played again, and then dropped: it is never scored.
        """
        ...


class UserFault(RuntimeError):
    """A user model failed; not the model's doing, and not the environment's."""


@dataclass(frozen=True)
class Scripted:
    """Says `lines` in order, by the number of words that it has said before, after `seconds`; for tests."""

    lines: tuple[str, ...]
    seconds: float = 0.0

    async def say(self, messages: Sequence[Mapping[str, str]]) -> str:
        await asyncio.sleep(self.seconds)
        said = sum(message["role"] == "assistant" for message in messages)
        if said >= len(self.lines):
            raise UserFault(f"a scripted user has {len(self.lines)} lines and was asked for one more")
        return self.lines[said]


def make_user(settings: Mapping[str, Any] | None) -> User | None:
    """The user that `interaction.user` describes; None where there is none.

    Raises:
        ValueError: there is no such kind of user.
    """
    if settings is None:
        return None
    given = dict(settings)
    if (kind := given.pop("kind", None)) != "scripted":
        raise ValueError(f"interaction.user.kind={kind!r}; known: scripted")
    return Scripted(tuple(given["lines"]), float(given.get("seconds", 0.0)))
