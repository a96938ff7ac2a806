"""What tests of the search share: models that read where they stand, and one task of the maze."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from interaction.call import Call
from recipe import evaluate
from support.evaluation import PROTOCOL, kept, serving
from support.maze import write_maze

DFSDT = ("--strategy", "dfsdt")
BACK = "\n\nYou have been here before."
"""How what was tried begins."""
ANSWER = PROTOCOL.render_answer("t", "done")
FULL = (400, {"error": {"message": "This model's maximum context length is 64 tokens, your prompt has 900."}})
TIMES = ("generate_seconds", "environment_seconds", "heard_seconds")

Play = Callable[[list[dict[str, str]]], Any]


def calling(*names: str, **arguments: Any) -> str:
    return PROTOCOL.render_calls("t", [Call(name, arguments) for name in names])


LOOK = calling("look")


def told(messages: list[dict[str, str]]) -> bool:
    """Whether the model is told what it has tried."""
    return BACK in messages[-1]["content"]


def untold(messages: list[dict[str, str]]) -> list[dict[str, str]]:
    """What it reads besides."""
    last = messages[-1]
    return [*messages[:-1], {**last, "content": last["content"].split(BACK)[0]}]


def said(messages: list[dict[str, str]]) -> list[str]:
    """The model's messages on the branch."""
    return [message["content"] for message in messages if message["role"] == "assistant"]


def timeless(value: Any) -> Any:
    """Stored lines without what a clock says, and without what only a search keeps."""
    if isinstance(value, dict):
        return {name: timeless(item) for name, item in value.items() if name not in (*TIMES, "search")}
    return [timeless(item) for item in value] if isinstance(value, list) else value


def texts(line: dict[str, Any]) -> list[list[str]]:
    """The model's messages in the episode that is kept, turn by turn."""
    return [[step["text"] for step in turn["steps"]] for turn in line["episode"]["turns"]]


def in_maze(folder: Path, play: Play, *more: str, name: str = "out") -> tuple[dict[str, Any], list[Any]]:
    """The stored line of the first task of the maze, and the conversations that the server was sent."""
    given = ["--environment", str(write_maze(folder)), "--docs", "signature", "--limit", "1", "--split", "test"]
    with serving(play) as server:
        where = ["--endpoint", server.url, "--out", str(folder / name), "--backoff", "0.01"]
        assert evaluate.main([*where, *given, *DFSDT, *more]) == 0
    (line,) = kept(folder / name)
    return line, [request["messages"] for request in server.requests]
