"""A server that answers anything at all: no reply raises the unexpected, fills the memory or leaves the machine."""

import asyncio
import json
from contextlib import nullcontext, suppress
from itertools import chain, product, repeat

import pytest
from support.evaluation import completion, serving

from interaction.endpoint import ContextFull, Endpoint, EndpointFault, EndpointRefusal

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


async def ask(url, timeout=30, **more):
    async with Endpoint(url, "m", timeout=timeout, attempts=1, **more) as endpoint:
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


ENDS = ("stop", "EOS", "length", "MAX_TOKENS", "model_context_window_exceeded")
WHOLE = [completion("x", end) for end in ENDS] + [completion("x", reasoning=""), completion(None)]
FAULTS = [completion(text, end) for text in ("", "x") for end in ("content_filter", None, "abort", "?")]
THOUGHTS = [completion(None, reasoning_content="hm"), completion("x", thinking="y")]
THOUGHTS += [completion(None) | {"usage": {"completion_tokens": 412}}]
KINDS = [(WHOLE, None, None), ([*FAULTS, completion(None, refusal="No.")], EndpointFault, EndpointFault)]
CALLS = [completion(None, tool_calls="hm"), completion("x", "tool_calls")]
KINDS += [(CALLS, EndpointRefusal, EndpointRefusal), (THOUGHTS, EndpointRefusal, None)]


@pytest.mark.parametrize(("replies", "error", "of_a_user"), KINDS)
def test_only_what_is_known_to_be_whole_is_a_message(replies, error, of_a_user):
    for said, (thoughts, wrong) in product(replies, ((False, error), (True, of_a_user))):
        with serving(lambda _, said=said: (200, said)) as server, pytest.raises(wrong) if wrong else nullcontext():
            reply = asyncio.run(ask(server.url, thoughts=thoughts))
            assert reply.truncated == (said["choices"][0]["finish_reason"] in ENDS[2:])


@pytest.mark.parametrize("refusal", [(400, b"nope"), (413, b"<html>"), (422, {"detail": "temperature"})])
@pytest.mark.parametrize("most", [{}, {"max_tokens": 9}])
async def test_a_conversation_is_too_long_in_any_words_if_it_is_refused_and_short_ones_are_not(refusal, most):
    for before, now, error in ((50, 50, ContextFull), (50, -1, EndpointFault), (-1, -1, EndpointRefusal)):
        limit = [before]
        with serving(lambda sent, limit=limit: refusal if len(sent[-1]["content"]) > limit[0] else "yes") as server:
            async with Endpoint(server.url, "m", attempts=1, sampling={"temperature": 0.5, **most}) as endpoint:
                with suppress(EndpointRefusal):
                    await endpoint.complete(MESSAGES)
                limit[0] = now
                with pytest.raises(error):
                    await endpoint.complete([{"role": "user", "content": "x" * 99}])


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
