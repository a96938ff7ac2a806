"""The HTTP client of an evaluation: a server may send what it likes, and no more of it is read than a message can be.

Replies are asked for without compression, because a few kilobytes of gzip become gigabytes, and one that comes
compressed all the same is refused before it is opened.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

LONGEST_REPLY = 2**23
"""Bytes of a reply with everything around the message; a context of a million tokens has about half as many."""


class ReplyTooLarge(RuntimeError):
    """A reply that is not read to its end. The message says why."""


def bounded_client() -> Any:
    """The HTTP client that openai's library uses, proxies of the environment included, with a limit to each reply."""
    from openai import DefaultAsyncHttpxClient

    async def bound(response: Any) -> None:
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            raise ReplyTooLarge(f"a reply in the encoding {encoding[:40]!r}, which was not asked for and is not opened")
        response.stream = _counted(response.stream)

    return DefaultAsyncHttpxClient(headers={"accept-encoding": "identity"}, event_hooks={"response": [bound]})


def _counted(stream: Any) -> Any:
    """The stream with an end. Of its own class, because which library it is of depends on the release of openai's."""

    class Counted(type(stream)):  # type: ignore[misc]
        def __init__(self) -> None:
            pass

        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = LONGEST_REPLY
            async for part in stream:
                left -= len(part)
                if left < 0:
                    raise ReplyTooLarge(f"a reply of more than {LONGEST_REPLY} bytes")
                yield part

        async def aclose(self) -> None:
            await stream.aclose()

    return Counted()
