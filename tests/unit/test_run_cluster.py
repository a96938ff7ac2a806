"""run_cluster.sh: the first node is the head, the others join it, and the head's files go when it ends.

With a `ray` that notes how it was called and listens as Ray's head does.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RAY = f"""#!{sys.executable}
import json, os, pathlib, socket, sys, time
names = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")
called = {{"arguments": sys.argv[1:], **{{name: os.environ[name] for name in names}}}}
pathlib.Path(f"called-{{os.getpid()}}.json").write_text(json.dumps(called))
if "--head" in sys.argv:
    port = next(argument for argument in sys.argv if argument.startswith("--port=")).split("=")[1]
    listening = socket.create_server(("127.0.0.1", int(port)))
    time.sleep(60)
time.sleep(60)
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of one script, with a `.venv` of one command."""
    folder = tmp_path / "a checkout"
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "profile").write_text("cpu\n")
    (folder / ".venv" / "stamp").touch()
    (folder / ".venv" / "bin" / "python").symlink_to(sys.executable)
    ray = folder / ".venv" / "bin" / "ray"
    ray.write_text(RAY)
    ray.chmod(0o755)
    shutil.copy(ROOT / "run_cluster.sh", folder)
    (folder / "recipe").mkdir()
    shutil.copy(ROOT / "recipe" / "scripts.sh", folder / "recipe")
    return folder


class Nodes:
    """Terminals in which the script runs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.children = folder, list[subprocess.Popen]()

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen:
        given = {name: value for name, value in os.environ.items() if name not in ("HARDWARE", "CLUSTER")}
        child = subprocess.Popen(
            ["bash", "run_cluster.sh", *arguments],
            cwd=self.folder,
            env=given | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.children.append(child)
        return child

    def calls(self, number: int) -> list[dict[str, Any]]:
        """How Ray was called, once it was so often; the head's first."""
        end = time.monotonic() + 120
        while len(found := list(self.folder.glob("called-*.json"))) < number or not all(map(os.path.getsize, found)):
            assert time.monotonic() < end, f"{len(found)} of {number} calls"
            time.sleep(0.05)
        return sorted(
            (json.loads(path.read_text()) for path in found), key=lambda one: "--head" not in one["arguments"]
        )


@pytest.fixture
def nodes(checkout: Path) -> Iterator[Nodes]:
    nodes = Nodes(checkout)
    yield nodes
    for child in nodes.children:
        child.terminate()
        child.wait(60)


@pytest.fixture
def port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return unused.getsockname()[1]


def test_the_first_is_the_head_and_the_others_join_it_with_its_token(nodes: Nodes, port: int) -> None:
    options = ["--node-ip-address=127.0.0.1", f"--port={port}"]
    head = nodes.start(*options)
    nodes.calls(1)
    nodes.start("--num-gpus", "4")
    first, second = nodes.calls(2)
    folder = nodes.folder / "outputs" / "cluster"
    token = folder / "token"
    assert {"start", "--block", "--head", *options, "--num-cpus=8", "--num-gpus=1"} <= set(first["arguments"])
    assert {"start", "--block", f"--address=127.0.0.1:{port}", "--num-cpus=8"} <= set(second["arguments"])
    assert "--num-gpus=1" not in second["arguments"] and "--head" not in second["arguments"]
    for call in (first, second):
        assert (call["RAY_AUTH_MODE"], call["RAY_AUTH_TOKEN_PATH"]) == ("token", str(token))
    assert len(token.read_text()) == 64 and token.stat().st_mode & 0o077 == 0
    sourced = subprocess.run(
        ["bash", "-c", 'source "$1" && env', "-", str(folder / "environment")], capture_output=True, text=True
    ).stdout
    assert f"RAY_ADDRESS=127.0.0.1:{port}\n" in sourced and f"RAY_AUTH_TOKEN_PATH={token}\n" in sourced
    head.send_signal(signal.SIGTERM)
    head.wait(60)
    assert [path.name for path in folder.iterdir()] == ["token"]
