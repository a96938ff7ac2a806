"""Servers of the Model Context Protocol as tools: real ones, as processes and over HTTP on the loopback."""

import json
import socket
import subprocess
import sys
import time
from contextlib import suppress

import psutil
import pytest

from interaction.boundary import Hangs, ToolUnavailable, waited
from interaction.conversation import Conversation
from interaction.environment import register
from interaction.mcp_tools import MCPTools
from interaction.protocol import get_protocol
from interaction.tool_environment import ToolTask

SERVER = """
import json, os, sys, time
from typing import Annotated
from pydantic import Field
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image
from mcp_types import CallToolResult, TextContent
server = MCPServer("demo")
@server.tool()
def add(a: int, b: int = 2) -> int:
    return a + b
@server.tool()
def pay(euros: Annotated[float, Field(multiple_of=0.01)]) -> float:
    return euros
@server.tool(name="about-it")
def about(path: str = "") -> str:
    found = {"pid": os.getpid(), "home": os.environ["HOME"], "env": [*os.environ], "here": sorted(os.listdir())}
    return json.dumps(found | {"text": path and open(path).read()})
@server.tool()
def answer(kind: str, context: Context) -> CallToolResult:
    if kind == "die":
        print("a last word", file=sys.stderr, flush=True)
        os._exit(3)
    texts = {"error": "no such row", "long": "x" * 200_000, "header": (context.headers or {}).get("x-key")}
    content = [TextContent(text=texts[kind])] if kind in texts else []
    content += [Image(data=b"1", format="png").to_image_content()] if kind == "picture" else []
    data = {"rows": [1]} if kind == "data" else None
    return CallToolResult(content=content, structured_content=data, is_error=kind == "error")

port = [int(word) for word in sys.argv[1:] if word.isdigit()]
server.run(**({"transport": "streamable-http", "port": port[0]} if port else {}))
time.sleep(100 * ("stay" in sys.argv))
"""
OTHER = "import sys, time\nfrom interaction.boundary import waited\nfrom interaction.mcp_tools import MCPTools\n" + (
    "tools = MCPTools(sys.argv[1:])\nfunctions, session = tools.functions({}), waited(tools, 60)\n"
    "print(waited(functions['about_it'].run, 60, session, '', {}), flush=True)\ntime.sleep(100)"
)


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    (folder := tmp_path_factory.mktemp("mcp")).joinpath("server.py").write_text(SERVER)
    (folder / "mcp_desk.py").write_text("def load_tasks(): return []")
    register({"mcp_desk": str(folder / "mcp_desk.py")})
    return [sys.executable, str(folder / "server.py")]


@pytest.fixture(scope="module")
def tools(command):
    return MCPTools(command, env={"NAMED": "1"})


def play(tools, *messages, start=(), check=lambda *_: True):
    """What a model reads first, the calls that it makes with these messages, and the record."""
    task = ToolTask("mcp_desk", "t", tools, ["Hello"], dict(start), check=check)
    with Conversation(task, get_protocol("python_calls", docs="signature")) as talk:
        shown = "".join(message["content"] for message in talk.start())
        for message in messages:
            talk.reply(message() if callable(message) else message)
        record = talk.record()
    return shown, [call for turn in record.turns for step in turn.steps for call in step.calls], record


def about(tools, path="", **task):
    _, calls, record = play(tools, f"[about_it(path={path!r})]", "ok", **task)
    return json.loads(calls[0].result) | {"passed": record.outcome.passed}


def ends(pid):
    with suppress(psutil.NoSuchProcess):
        for _ in range(200):
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
            time.sleep(0.1)
        return False
    return True


def test_functions_are_the_servers_and_so_are_their_results(tools):
    kinds = ", ".join(f"answer(kind={kind!r})" for kind in ("error", "data", "picture", "long"))
    shown, calls, _ = play(tools, f"[add(a='1'), add(), nothing(x=1), {kinds}, add(a=1), pay(euros=1{'0' * 400})]")
    assert 'add(a: int, b: int = 2)\npay(euros: float)\nabout_it(path: str = "")\nanswer(kind: str)' in shown
    bad = "bad_arguments"
    errors = [bad, bad, "unknown_function", "execution", None, None, None, None, bad]
    assert [call.error for call in calls] == errors and calls[0].result == "a: '1' is not of type 'integer'"
    _, needed, _, error, data, picture, long, added, _ = (call.result for call in calls)
    assert needed == "arguments: 'a' is a required property" and error == "no such row"
    assert (data, picture, added) == ('{"rows":[1]}', "[image image/png]", "3")
    assert len(long) < 100_100 and long.endswith("[100000 more characters]")


def test_an_attempt_has_a_process_and_a_folder_of_its_own_and_no_key_of_ours(tools, monkeypatch):
    def check(session, turn, calls, words):
        folders.append(session.folder)
        return "about_it" in session.ONCE and (session.folder / "a/b.txt").read_text() == "words"

    monkeypatch.setenv("SECRET_KEY", "k")
    folders, start = [], {"a/b.txt": "words", "c": b"\xff"}
    one, two = (about(tools, "a/b.txt", start=start, check=check) for _ in range(2))
    assert one["passed"] and one["text"] == "words" and one["here"] == ["a", "c"] and one["home"] == str(folders[0])
    assert "NAMED" in one["env"] and "SECRET_KEY" not in one["env"]
    assert one["home"] != two["home"] and one["pid"] != two["pid"] and ends(one["pid"]) and not folders[0].exists()


def test_what_cannot_be_used_is_said(command, tools, monkeypatch):
    one, other = (MCPTools(command, names=["add"], prefix=prefix) for prefix in ("", "b_"))
    for words, found, start in [
        ("no command 'nosuch'", MCPTools("nosuch --x"), {}),
        ("no function ['sub']", MCPTools(command, names=["sub"]), {}),
        ("two functions are called add", MCPTools([one, one]), {}),
        ("takes no files", MCPTools(command, shared=True), {"a": ""}),
        ("expected a relative path", tools, {"a/../../x": ""}),
        ("expected a relative path", tools, {"/x": ""}),
    ]:
        assert words in play(found, start=start)[2].fault
    with monkeypatch.context() as patch:
        patch.setattr("interaction.mcp_tools.MAX_DOCS", 100)
        assert "more than 100 characters" in play(MCPTools(command))[2].fault
    assert "a check" in play(tools, check=None)[2].fault
    shown, calls, _ = play(MCPTools([one, other]), "[b_add(a=5)]")
    assert calls[0].result == "7" and "\nadd(" in shown and "about_it" not in shown


def test_a_server_that_is_lost_or_does_not_start_is_no_fault_of_the_model(tools, monkeypatch):
    async def stuck():
        time.sleep(3)

    def replace_the_event_loop():
        with pytest.raises(Hangs):
            waited(stuck, 0.1)
        return "[add(a=1)]"

    monkeypatch.setattr("interaction.boundary.PAUSES", ())
    never = [MCPTools("sleep 60", start_timeout=1), MCPTools([sys.executable, "-c", "raise ValueError(3)"])]
    for words, found, *messages in [
        ("lost.*a last word", tools, "[answer(kind='die')]"),
        ("lost", tools, "[add(a=1)]", replace_the_event_loop),
        ("not started within 1 s", never[0]),
        ("ValueError: 3", never[1]),
    ]:
        with pytest.raises(ToolUnavailable, match=words):
            play(found, *messages)
    found = [one.info for one in psutil.process_iter(["pid", "ppid", "cmdline"])]  # None of one that has just ended
    left = [one["pid"] for one in found if one["ppid"] == psutil.Process().pid and "server.py" in str(one["cmdline"])]
    assert all(map(ends, left))


def test_a_shared_server_is_started_once_and_again_when_it_has_died(command):
    shared = MCPTools(command, shared=True)
    one, two = about(shared), about(shared)
    assert one["pid"] == two["pid"]
    psutil.Process(one["pid"]).kill()
    with pytest.raises(ToolUnavailable):
        play(shared, "[add(a=1)]")
    assert about(shared)["pid"] != one["pid"]


def test_a_server_over_http_gets_the_headers(command, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    tools = MCPTools(f"http://127.0.0.1:{port}/mcp", headers={"x-key": "k"})
    with subprocess.Popen([*command, str(port)], stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(300):
                with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.1)
            _, calls, _ = play(tools, "[answer(kind='header'), add(a=1)]")
            with monkeypatch.context() as patch, pytest.raises(ToolUnavailable):
                patch.setattr("interaction.mcp_server.LOST", (200,))
                play(tools, "[add(a=1)]")
            with pytest.raises(ToolUnavailable):
                play(tools, "[answer(kind='die')]")
        finally:
            server.kill()
    assert [call.result for call in calls] == ["k", "3"]


def test_a_server_ends_with_our_process_however_that_ends(command):
    with subprocess.Popen([sys.executable, "-c", OTHER, *command, "stay"], stdout=subprocess.PIPE, text=True) as parent:
        pid = json.loads(parent.stdout.readline())["pid"]
        alive = psutil.pid_exists(pid)
        parent.kill()
    assert alive and ends(pid)
