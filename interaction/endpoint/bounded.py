"""The HTTP client of an endpoint: a server may send what it likes, and no more of it is read than a message can be.

Replies are asked for without compression. Some proxies compress all the same: gzip is then unpacked here, piece by
piece and no further than the limit, because a few kilobytes of it become gigabytes. Other encodings are refused.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

LONGEST_REPLY = 2**23
"""Bytes of a reply, packed and unpacked, with everything around it; a million tokens have about half as many."""


class ReplyTooLarge(RuntimeError):
    """A reply that is not read to its end. The message says why."""


def bounded_client(private: bool = False) -> Any:
    """The HTTP client that openai's library uses, with a limit to each reply.

    Proxies of the environment are used and redirections followed, unless it is to be private.
    """
    from openai import DefaultAsyncHttpxClient

    async def bound(response: Any) -> None:
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("", "identity", "gzip", "x-gzip"):
            raise ReplyTooLarge(f"a reply in the encoding {encoding[:40]!r}, which was not asked for and is not opened")
        unpack: Unpack = _as_it_is
        if encoding.endswith("gzip"):
            unpack = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress
            del response.headers["content-encoding"]  # or the library would unpack it again
        response.stream = _counted(response.stream, unpack)

    return DefaultAsyncHttpxClient(
        headers={"accept-encoding": "identity"},
        event_hooks={"response": [bound]},
        trust_env=not private,
        follow_redirects=not private,
    )


Unpack = Callable[[bytes, int], bytes]
"""Of the next part of a reply and the most bytes to make of it: what it holds."""


def _as_it_is(part: bytes, most: int) -> bytes:
    return part


def _counted(stream: Any, unpack: Unpack) -> Any:
    """The stream unpacked, with an end. Of its own class: which library it is of depends on the release of openai's."""

    class Counted(type(stream)):  # type: ignore[misc]
        def __init__(self) -> None:
            pass

        async def __aiter__(self) -> AsyncIterator[bytes]:
            read = unpacked = 0
            async for packed in stream:
                part = unpack(packed, LONGEST_REPLY - unpacked + 1)
                read, unpacked = read + len(packed), unpacked + len(part)
                if max(read, unpacked) > LONGEST_REPLY:
                    raise ReplyTooLarge(f"a reply of more than {LONGEST_REPLY} bytes")
                yield part

        async def aclose(self) -> None:
            await stream.aclose()

    return Counted()
