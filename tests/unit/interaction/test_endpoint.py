"""A server that answers anything at all: no reply raises the unexpected, fills the memory or leaves the machine."""

import asyncio
import json
from contextlib import suppress
from itertools import chain, repeat

import pytest
from support.evaluation import completion, serving

from interaction.endpoint import Endpoint, EndpointFault

MESSAGES = [{"role": "user", "content": "x"}]
VALUES = (None, True, 0, -1, 1.5, 10**400, "", "7", "\ud800", "stop", "length", [], [{}], {}, {"type": "text"})
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


def replaced(value, new):
    """The JSON value with `new` in place of each part of it, one after the other."""
    yield new
    if isinstance(value, dict):
        yield from ({**value, key: other} for key, item in value.items() for other in replaced(item, new))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from ([*value[:place], other, *value[place + 1 :]] for other in replaced(item, new))


async def ask(url, timeout=30, private=False):
    async with Endpoint(url, "m", timeout=timeout, attempts=1, private=private) as endpoint:
        return await endpoint.complete(MESSAGES)


async def ask_raw(pieces, **options):
    """Of a server that writes these pieces of HTTP, one after the other, as long as somebody reads."""

    async def write(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        with suppress(OSError):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
        writer.close()

    server = await asyncio.start_server(write, "127.0.0.1", 0)
    try:
        return await ask(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", **options)
    finally:
        server.close()


async def test_any_reply_is_a_message_or_a_fault_of_the_server():
    now = {}
    bodies = [json.dumps(body).encode() for value in VALUES for body in replaced(completion("hello"), value)]
    with serving(lambda _: (200, now["body"])) as server:
        async with Endpoint(server.url, "m", timeout=30, attempts=1) as endpoint:
            for now["body"] in [*bodies, b"[" * 10**6]:
                try:
                    said = await endpoint.complete(MESSAGES)
                except EndpointFault as fault:
                    assert str(fault).isprintable() and len(str(fault)) < 6000, now
                    continue
                said.text.encode()
                for count in (said.prompt_tokens, said.completion_tokens):
                    assert type(count) is int and count >= 0, now


def test_a_reply_without_end_is_read_up_to_a_size_and_a_time_and_nothing_is_unpacked():
    for pieces, seconds, said in (
        (chain([HEAD + b'\r\n{"choices": "'], repeat(b"x" * 2**20)), 30, "more than 8388608 bytes"),
        ([HEAD + b"content-encoding: gzip\r\n\r\nx"], 30, "in the encoding 'gzip'"),
        (chain([HEAD + b"\r\n"], repeat(b" ")), 0.3, "no reply within 0.3 s"),
    ):
        with pytest.raises(EndpointFault, match=said):
            asyncio.run(ask_raw(pieces, timeout=seconds))


def test_a_private_endpoint_asks_no_proxy_and_follows_no_redirection(monkeypatch):
    with serving(lambda _: "here") as server, serving(lambda _: "elsewhere") as other:
        moved = [f"HTTP/1.1 307 x\r\nlocation: {other.url}/chat/completions\r\ncontent-length: 0\r\n\r\n".encode()]
        with pytest.raises(EndpointFault):
            asyncio.run(ask_raw(moved, private=True))
        assert not other.requests and asyncio.run(ask_raw(moved)).text == "elsewhere"
        other.requests.clear()
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, other.url.removesuffix("/v1"))
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        assert asyncio.run(ask(server.url, private=True)).text == "here" and not other.requests
