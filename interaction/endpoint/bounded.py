"""The HTTP client of an endpoint: of a reply, no more is read than a message can be."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

LONGEST_REPLY = 2**23
"""Bytes of a reply with everything around it; a million tokens have about half as many."""


class ReplyTooLarge(RuntimeError):
    """A reply that is not read to its end. The message says why."""


def bounded_client(private: bool = False) -> Any:
    """The HTTP client that openai's library uses, with a limit to each reply, and without compression.

    Proxies of the environment are used and redirections followed, unless it is to be private.
    """
    from openai import DefaultAsyncHttpxClient

    async def bound(response: Any) -> None:
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):  # a few kilobytes of gzip become gigabytes
            raise ReplyTooLarge(f"a reply in the encoding {encoding[:40]!r}, which was not asked for and is not opened")
        response.stream = _counted(response.stream)

    return DefaultAsyncHttpxClient(
        headers={"accept-encoding": "identity"},
        event_hooks={"response": [bound]},
        trust_env=not private,
        follow_redirects=not private,
    )


def _counted(stream: Any) -> Any:
    """The stream with an end. Of its own class: which library it is of depends on the release of openai's."""

    class Counted(type(stream)):  # type: ignore[misc]
        def __init__(self) -> None:
            pass

        async def __aiter__(self) -> AsyncIterator[bytes]:
            read = 0
            async for part in stream:
                read += len(part)
                if read > LONGEST_REPLY:
                    raise ReplyTooLarge(f"a reply of more than {LONGEST_REPLY} bytes")
                yield part

        async def aclose(self) -> None:
            await stream.aclose()

    return Counted()
