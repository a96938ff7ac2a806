"""Tools of MCP servers (Model Context Protocol) as an environment.

    shop = MCPTools(["mcp-server-sqlite", "--db-path", "shop.db"])
    task = ToolTask("desk", "t_1", shop, ["words of turn 1"], start={"shop.db": b"..."}, check=check)

Each attempt has a process of its own. It runs in a temporary folder, its HOME, which holds the files of `start`;
`check` gets an object that has it as `folder`. The process ends with the attempt, and with this process, however that
ends. Of our environment it gets PATH and the like, none of our keys. This is no sandbox: a server can do what we can.

What a server says is bounded, and shown to the model. No call is repeated, because it may have been made: where a
server is lost, the attempt is played again with another.
"""

import asyncio
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, ClassVar, NamedTuple, cast
from urllib.parse import urlsplit

from jsonschema import Draft202012Validator, SchemaError
from jsonschema.validators import extend, validator_for
from referencing import Registry

from interaction.boundary import awaited
from interaction.call import Call
from interaction.contract import ContractError
from interaction.protocol.docs import documented
from interaction.tool_environment import Checked
from interaction.words import cut, line_of

MAX_DOCS = 1_000_000  # characters of all functions of a server


@dataclass(eq=False, repr=False)  # env and headers have keys
class MCPTools:
    """Servers whose functions are the tools."""

    server: "str | Sequence[str] | Sequence[MCPTools]"
    """The words of a command, or one text of them; a URL of streamable HTTP; or several MCPTools."""
    env: Mapping[str, str] = field(default_factory=dict)
    """More environment variables of the command."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Of each HTTP request."""
    names: Sequence[str] | None = None
    """The functions that are offered, as the server calls them; all by default."""
    start_timeout: float = 30.0
    shared: bool = False
    """One server for all attempts in this process; tasks give it no files."""
    prefix: str = ""
    """Before each name, where servers have the same."""
    WAITS: ClassVar[bool] = True

    def __post_init__(self) -> None:
        words: list[Any] = shlex.split(self.server) if isinstance(self.server, str) else [*self.server]
        self.url = str(self.server) if str(self.server).startswith(("http://", "https://")) else ""
        self.servers: list[MCPTools] = [one for one in words if isinstance(one, MCPTools)] or [self]
        self.command = [] if self.url else words
        own = self.env or self.headers or self.names or self.shared or self.prefix
        if not words or self.servers != [self] and (own or len(self.servers) < len(words)):
            raise ContractError("MCPTools takes a command, a URL, or several MCPTools with settings of their own")
        self.START_SECONDS = max(one.start_timeout for one in self.servers) + 10
        self._functions, self._asking, self._kept = dict[str, MCPTool](), Lock(), list[Any]()

    def __repr__(self) -> str:
        if self.servers != [self]:
            return f"MCP servers {self.servers}"
        return f"MCP server {urlsplit(self.url).hostname if self.url else Path(self.command[0]).name}"

    def functions(self, start: Mapping[str, Any]) -> "dict[str, MCPTool]":
        """Name -> function; asked of the servers once a process, with the files of one task. Raises ContractError."""
        from interaction import mcp_server  # noqa: F401  takes seconds, which would stop the event loop

        if start and not any(one.command and not one.shared for one in self.servers):
            raise ContractError("start must be empty for a URL or a shared server, which takes no files")
        for name, content in start.items():
            path = PurePosixPath(name)
            if not path.parts or path.is_absolute() or ".." in path.parts or not isinstance(content, str | bytes):
                raise ContractError(f"start has {name[:80]!r}; expected a relative path without .., and text or bytes")
        with self._asking:
            self._functions = self._functions or awaited(self._ask(start), self.START_SECONDS, self.START_SECONDS)
        return self._functions

    async def _ask(self, start: Mapping[str, Any]) -> "dict[str, MCPTool]":
        session, found = await self(**start), dict[str, MCPTool]()
        try:
            for number, one in enumerate(self.servers):
                tools, size, cursor = dict[str, Any](), 0, cast(Any, "")
                while cursor is not None:
                    page = await session.servers[number].ask("list_tools", cursor=cursor or None)
                    cursor, tools = page.next_cursor, tools | {tool.name: tool for tool in page.tools}
                    if (size := size + len(page.model_dump_json())) > MAX_DOCS:
                        raise ContractError(f"{one}: its functions have more than {MAX_DOCS} characters")
                if unknown := {*(one.names or ())} - {*tools}:
                    raise ContractError(f"{one} has no function {sorted(unknown)}; it has {cut(str([*tools]), 1000)}")
                for name in tools if one.names is None else one.names:
                    made = _function(one, number, tools[name])
                    if (shown := made.schema["name"]) in found:
                        raise ContractError(f"two functions are called {shown[:80]}; give {one} a prefix")
                    found[shown] = made
            return found
        finally:
            await session.close()

    async def __call__(self, /, **start: str | bytes) -> "Session":
        """The servers of one attempt, with these files. Raises ToolUnavailable."""
        session = Session(self)
        try:
            await session.open(start)
        except BaseException:
            await session.close()
            raise
        return session

    def begin(self, folder: Path) -> Any:
        """One that starts in this folder, or the shared one."""
        from interaction.mcp_server import Server

        if (command := self.url or shutil.which(self.command[0], path=self.env.get("PATH"))) is None:
            raise ContractError(f"there is no command {self.command[0]!r}; install it, or give its path")
        if self.shared and self._kept and self._kept[0].here:
            return self._kept[0]
        files = TemporaryDirectory(ignore_cleanup_errors=True) if self.shared else None
        made = Server(self, command, Path(files.name) if files else folder)
        self._kept = [made, files] if self.shared else []
        return made


class MCPTool(NamedTuple):
    """A function of a server, as `interaction.tool_environment.Tool`."""

    schema: dict[str, Any]
    validator: Any
    server: int
    name: str
    """As the server calls it."""

    def check(self, call: Call) -> Checked:
        """Whether a call fits the schema."""
        try:
            errors = [*self.validator.iter_errors(call.arguments)][:5]
        except (OverflowError, RecursionError) as error:  # a huge integer against a step of floats
            return Checked(str(error))
        wrong = (f"{'.'.join(map(str, one.path)) or 'arguments'}: {cut(one.message, 200)}" for one in errors)
        known = self.schema["parameters"]["properties"].items()
        bound = {name: schema["default"] for name, schema in known if "default" in schema} | call.arguments
        return Checked("; ".join(wrong) or None, call.arguments, bound)

    async def run(self, target: "Session", name: str, given: Mapping[str, Any]) -> Any:
        """What the server of an attempt answers."""
        return await target.servers[self.server].call(self.name, dict(given))


def _function(of: MCPTools, server: int, tool: Any) -> MCPTool:
    """Raises ContractError where its schema cannot be used."""
    name = re.sub(r"\W", "_", of.prefix + tool.name, flags=re.ASCII)  # some protocols write calls in Python
    schema = {"type": "object", "properties": {}} | tool.input_schema
    try:
        document = documented({"name": name, "description": tool.description, "parameters": schema})
        kind = validator_for(schema, default=Draft202012Validator)
        kind.check_schema(schema)
    except (ValueError, SchemaError) as error:
        raise ContractError(f"{of}: {tool.name[:80]}: {line_of(error)}; leave it out by names=") from error
    # Patterns are left to the server: one can take for ever, and no time limit holds for `re`.
    kind = extend(kind, {"pattern": lambda *_: None, "patternProperties": lambda *_: None})
    return MCPTool(document, kind(schema, registry=Registry()), server, tool.name)  # fetches no references


class Session:
    """The servers of one attempt, and `folder`, in which those run that are its own."""

    def __init__(self, of: MCPTools) -> None:
        self._of, self.servers, self.ONCE = of, list[Any](), (*of._functions,)
        self._files = TemporaryDirectory(ignore_cleanup_errors=True)
        self.folder = Path(self._files.name)

    async def open(self, start: Mapping[str, str | bytes]) -> None:
        """Starts them with these files, which `MCPTools.functions` has checked."""
        for name, content in start.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
        for one in self._of.servers:
            self.servers.append(one.begin(self.folder))
        for server in self.servers:
            await server.opened()

    async def close(self) -> None:
        """Ends the servers that are its own, and removes their files."""
        await asyncio.gather(*(server.close() for server in self.servers if not server.of.shared))
        await asyncio.to_thread(self._files.cleanup)
