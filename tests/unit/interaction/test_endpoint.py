"""A server that answers anything at all: no reply raises the unexpected, fills the memory or leaves the machine."""

import asyncio
import json
import resource
import threading
from contextlib import contextmanager
from copy import deepcopy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product

import pytest
from support.evaluation import completion, serving

from interaction import endpoint as client
from interaction.endpoint import Endpoint, EndpointFault

VALUES = (None, True, 0, -1, 1.5, 10**400, "", "7", "\ud800", "stop", "length", [], [{}], {}, {"type": "text"})


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


REPLY = completion("hello")


def asked(url, model="m", **options):
    async def ask():
        async with Endpoint(url, model, **{"timeout": 30, "attempts": 1, "backoff": 0, **options}) as endpoint:
            return await endpoint.complete([{"role": "user", "content": "x"}])

    return asyncio.run(ask())


def test_any_reply_is_a_message_or_a_fault_of_the_server():
    body = {}

    async def ask_all(url):
        async with Endpoint(url, "m", timeout=30, attempts=1) as endpoint:
            for path, value in product(places(REPLY), VALUES):
                body["now"] = put(REPLY, path, value)
                try:
                    said = await endpoint.complete([{"role": "user", "content": "x"}])
                except EndpointFault as fault:
                    assert str(fault).isprintable() and len(str(fault)) < 6000, (path, value)
                    continue
                said.text.encode()
                counts = said.prompt_tokens, said.completion_tokens
                assert all(type(count) is int and count >= 0 for count in counts), (path, value)

    with serving(lambda _: (200, json.dumps(body["now"]).encode())) as server:
        asyncio.run(ask_all(server.url))


# Size.


@contextmanager
def talking(body, headers=(), repeat=1, status=200):
    """A server that says `body` so often, whatever it is asked; yields its address. It notes how much it could say."""

    class Talks(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            for name, value in (("content-type", "application/json"), *headers):
                self.send_header(name, value)
            self.end_headers()
            try:
                for _ in range(repeat):
                    self.wfile.write(body)
                    server.said += len(body)
            except OSError:
                pass

        do_POST = do_GET

        def log_message(self, *_):
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True
        said = 0

        def handle_error(self, request, client_address):
            pass

    with Quiet(("127.0.0.1", 0), Talks) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()
        talking.said = server.said


def test_no_more_of_a_reply_is_read_than_a_message_can_be():
    for body, headers, repeat, said in (
        (b'{"choices": "' + b"x" * 2**20, (), 10_000, "more than 8388608 bytes"),
        (b"x", (("content-encoding", "gzip"),), 1, "in the encoding 'gzip'"),
        (b"[" * 10**6, (), 1, "Connection error|RecursionError|JSON"),
    ):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with talking(body, headers, repeat) as url, pytest.raises(EndpointFault, match=said):
            asked(url)
        assert talking.said < 2 * client.LONGEST_REPLY
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000, "KiB"


def test_a_reply_that_drips_for_ever_ends_at_the_time_limit():
    async def drip(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.01)

    async def ask():
        server = await asyncio.start_server(drip, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        async with Endpoint(url, "m", timeout=0.3, attempts=1) as endpoint:
            with pytest.raises(EndpointFault, match="no reply within 0.3 s"):
                await endpoint.complete([{"role": "user", "content": "x"}])
        server.close()

    asyncio.run(ask())


# Where requests go, and with what.


def test_a_private_endpoint_asks_no_proxy(monkeypatch):
    with serving(lambda _: "here") as server, serving(lambda _: "proxy") as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url.removesuffix("/v1"))
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        assert asked(server.url, private=True).text == "here"
        assert not proxy.requests


def test_a_private_endpoint_follows_no_redirection():
    with serving(lambda _: "elsewhere") as other:
        location = (("location", f"{other.url}/chat/completions"),)
        with talking(b"{}", location, status=307) as url:
            with pytest.raises(EndpointFault):
                asked(url, private=True)
            assert not other.requests
            assert asked(url).text == "elsewhere"


def test_a_message_of_no_use_is_asked_for_again():
    said = iter(["", "", "words"])

    def require(message):
        if not message.text:
            raise ValueError("an empty message")

    with serving(lambda _: next(said)) as server:
        with pytest.raises(EndpointFault, match="an empty message"):
            asked(server.url, None, attempts=2, require=require)
        assert asked(server.url, None, attempts=2, require=require).text == "words"
        assert len(server.requests) == 3
