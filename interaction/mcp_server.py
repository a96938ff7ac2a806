"""One connection with an MCP server, by the official SDK. Only `interaction.mcp_tools` imports it, when it is used.

The SDK enters and leaves a connection in one asyncio task, so each has a task that holds it.
"""

import asyncio
import logging
import math
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import anyio
import httpx2
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CONNECTION_CLOSED

from interaction.boundary import ToolUnavailable
from interaction.protocol.docs import compact_json
from interaction.words import cut, line_of

MAX_RESULT = 100_000
"""Characters of one result."""
CLOSE_SECONDS = 10.0
LAUNCH = """import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])"""
"""Becomes the server, after it has asked the kernel to end it with the thread of its event loop."""
CLOSED = ("Connection closed", "SSE stream")
"""How the SDK's own errors with CONNECTION_CLOSED begin: servers use that number too."""
LOST = (401, 403, 404, 429)
"""HTTP statuses with which, as with 500 and above, it is not the call that has failed."""
logging.getLogger("mcp.client").setLevel(logging.CRITICAL)  # else a traceback for each line that is no message


class Server:
    """A server that runs, or is connected to, in the event loop in which it was made.

    Args:
        of: its settings, an MCPTools.
        command: path of its program, or its URL.
        folder: in which it runs.
    """

    def __init__(self, of: Any, command: str, folder: Path) -> None:
        self.of, self.command, self.folder, self.fault = of, command, folder, "it has ended"
        self.client: Client | None = None
        self.loop, self.stop, self.ready = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        self._scope = anyio.CancelScope(deadline=anyio.current_time() + of.start_timeout)
        self._holder = asyncio.create_task(self._hold())

    @property
    def here(self) -> bool:
        """Whether it can be called from the running loop: another may have taken the place of its own."""
        return asyncio.get_running_loop() is self.loop and not self.stop.is_set() and not self._holder.done()

    async def opened(self) -> None:
        """Waits until it can be called. Raises ToolUnavailable."""
        await self.ready.wait()
        if self.client is None:
            raise ToolUnavailable(f"{self.of} cannot be started: {self.fault}")

    async def close(self) -> None:
        """Ends it. One of another loop ends with that loop's thread at the latest."""
        self.loop.call_soon_threadsafe(self.stop.set)
        if asyncio.get_running_loop() is self.loop:
            await asyncio.wait({self._holder}, timeout=CLOSE_SECONDS)
            self._scope.cancel()

    async def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """A result of a function, as text, or as data where there is no text. Raises as `ask`."""
        return _shown(await self.ask("call_tool", name, arguments))

    async def ask(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """What a method of the SDK's client returns.

        Raises:
            ToolUnavailable: the server is lost.
            RuntimeError: it answers with an error.
        """
        if not self.here:
            raise ToolUnavailable(f"{self.of} is lost: {self.fault}")
        try:
            return await getattr(self.client, method)(*args, **kwargs)
        except Exception as error:
            if getattr(error, "code", 0) == CONNECTION_CLOSED and str(error).startswith(CLOSED):
                await self.close()
                raise ToolUnavailable(f"{self.of} is lost: {self.fault}") from error
            raise RuntimeError(cut(str(error), MAX_RESULT)) from error

    async def _hold(self) -> None:
        with TemporaryFile("w+") as said:
            try:
                with self._scope:
                    async with AsyncExitStack() as stack:
                        transport = await self._http(stack) if self.of.url else self._process(said)
                        self.client = await stack.enter_async_context(Client(transport, cache=None))
                        self._scope.deadline = math.inf
                        self.ready.set()
                        await self.stop.wait()
                if self.client is None:
                    self.fault = f"it has not started within {self.of.start_timeout:g} s"
            except Exception as error:
                inner: BaseException = error
                while isinstance(inner, BaseExceptionGroup):
                    inner = inner.exceptions[0]
                self.fault = line_of(inner)
            finally:
                last = os.pread(said.fileno(), 1000, max(os.fstat(said.fileno()).st_size - 1000, 0))
                lines = [line for line in last.decode(errors="replace").split("\n") if line.strip()]
                self.fault += f"; it wrote: {lines[-1].strip()[:300]}" if lines else ""
                self.ready.set()

    def _process(self, said: IO[str]) -> Any:
        """The transport of a command; `said` gets what it writes to stderr."""
        args = ["-SE", "-c", LAUNCH, str(os.getpid()), os.path.abspath(self.command), *self.of.command[1:]]
        env = {"HOME": str(self.folder), **self.of.env}
        told = StdioServerParameters(command=sys.executable, args=args, env=env, cwd=self.folder)
        return stdio_client(told, errlog=said)  # type: ignore[arg-type]

    async def _http(self, stack: AsyncExitStack) -> Any:
        async def look(answer: httpx2.Response) -> None:
            failed = answer.status_code in LOST or answer.status_code >= 500
            if failed and answer.request.method == "POST" and self.client is not None:
                raise ToolUnavailable(f"it answers with HTTP status {answer.status_code}")

        timeout = httpx2.Timeout(30.0, read=300.0)  # the SDK's
        http = httpx2.AsyncClient(headers=self.of.headers, timeout=timeout, event_hooks={"response": [look]})
        return streamable_http_client(self.of.url, http_client=await stack.enter_async_context(http))


def _shown(result: Any) -> Any:
    shown, texts = [], 0
    for part in result.content:
        text = getattr(getattr(part, "resource", part), "text", None)
        texts += text is not None
        what = getattr(part, "mime_type", None) or getattr(part, "uri", None)
        shown.append(f"[{part.type}{f' {what}' if what else ''}]" if text is None else text)
    text, data = cut("\n".join(shown), MAX_RESULT), result.structured_content
    if result.is_error:
        raise RuntimeError(text or "it gives an error without a text")
    if texts or data is None:
        return text
    return data if len(written := compact_json(data)) <= MAX_RESULT else cut(written, MAX_RESULT)
