"""A server that answers anything at all: no reply raises the unexpected, fills the memory or leaves the machine."""

import asyncio
import json
from contextlib import suppress
from copy import deepcopy
from itertools import chain, product, repeat

import pytest
from support.evaluation import completion, serving

from interaction.endpoint import Endpoint, EndpointFault

MESSAGES = [{"role": "user", "content": "x"}]
VALUES = (None, True, 0, -1, 1.5, 10**400, "", "7", "\ud800", "stop", "length", [], [{}], {}, {"type": "text"})
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


def places(value, before=()):
    """Paths to everything in a JSON value."""
    yield before
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(item, (*before, key))


def put(value, path, new):
    """The value with something else at a path."""
    if not path:
        return new
    value = deepcopy(value)
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return value


async def ask(url, model="m", **options):
    async with Endpoint(url, model, **{"timeout": 30, "attempts": 1, "backoff": 0, **options}) as endpoint:
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


def test_any_reply_is_a_message_or_a_fault_of_the_server():
    reply, now = completion("hello"), {}
    bodies = [json.dumps(put(reply, path, value)).encode() for path, value in product(places(reply), VALUES)]

    async def ask_all(url):
        async with Endpoint(url, "m", timeout=30, attempts=1) as endpoint:
            for now["body"] in [*bodies, b"[" * 10**6]:
                try:
                    said = await endpoint.complete(MESSAGES)
                except EndpointFault as fault:
                    assert str(fault).isprintable() and len(str(fault)) < 6000, now
                    continue
                said.text.encode()
                counts = said.prompt_tokens, said.completion_tokens
                assert all(type(count) is int and count >= 0 for count in counts), now

    with serving(lambda _: (200, now["body"])) as server:
        asyncio.run(ask_all(server.url))


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


def test_a_message_of_no_use_is_asked_for_again():
    said = iter(["", "", "words"])

    def require(message):
        if not message.text:
            raise ValueError("an empty message")

    with serving(lambda _: next(said)) as server:
        with pytest.raises(EndpointFault, match="an empty message"):
            asyncio.run(ask(server.url, None, attempts=2, require=require))
        assert asyncio.run(ask(server.url, None, attempts=2, require=require)).text == "words"
