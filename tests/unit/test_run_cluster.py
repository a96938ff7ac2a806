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

RAY = f"""#!{sys.executable}
import json, os, pathlib, socket, sys, time
names = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")
called = {{"arguments": sys.argv[1:], **{{name: os.environ[name] for name in names}}}}
pathlib.Path(f"called-{{os.getpid()}}.json").write_text(json.dumps(called))
if "--head" in sys.argv:
    port = next(argument for argument in sys.argv if argument.startswith("--port=")).split("=")[1]
    listening = socket.create_server(("127.0.0.1", int(port)))
time.sleep(60)
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of one script, with a `.venv` of one command."""
    folder = tmp_path / "a checkout"
    for name in (".venv/bin", "recipe"):
        (folder / name).mkdir(parents=True)
    (folder / ".venv" / "profile").write_text("cpu\n")
    (folder / ".venv" / "stamp").touch()
    (folder / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (folder / ".venv" / "bin" / "ray").write_text(RAY)
    (folder / ".venv" / "bin" / "ray").chmod(0o755)
    for name in ("run_cluster.sh", "recipe/scripts.sh"):
        shutil.copy(Path(__file__).parents[2] / name, folder / name)
    return folder


@pytest.fixture
def started(checkout: Path) -> Iterator[list[subprocess.Popen]]:
    """Terminals in which the script runs."""
    children = list[subprocess.Popen]()
    yield children
    for child in children:
        child.terminate()
        child.wait(60)


def start(checkout: Path, *arguments: str) -> subprocess.Popen:
    given = {name: value for name, value in os.environ.items() if name not in ("HARDWARE", "CLUSTER")}
    return subprocess.Popen(["bash", "run_cluster.sh", *arguments], cwd=checkout, env=given, stdout=subprocess.DEVNULL)


def calls(checkout: Path, number: int) -> list[dict[str, Any]]:
    """How Ray was called, once it was so often; the head's first."""
    end = time.monotonic() + 120
    while len(found := list(checkout.glob("called-*.json"))) < number or not all(map(os.path.getsize, found)):
        assert time.monotonic() < end, f"{len(found)} of {number} calls"
        time.sleep(0.05)
    return sorted((json.loads(path.read_text()) for path in found), key=lambda one: "--head" not in one["arguments"])


def test_the_first_is_the_head_and_the_others_join_it_with_its_token(checkout: Path, started: list) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    options = ["--node-ip-address=127.0.0.1", f"--port={port}"]
    started.append(head := start(checkout, *options))
    calls(checkout, 1)
    started.append(start(checkout, "--num-gpus", "4"))
    first, second = calls(checkout, 2)
    folder = checkout / "outputs" / "cluster"
    token = folder / "token"
    assert {"start", "--block", "--head", *options, "--num-cpus=8", "--num-gpus=1"} <= set(first["arguments"])
    assert {"start", "--block", f"--address=127.0.0.1:{port}", "--num-cpus=8"} <= set(second["arguments"])
    assert "--num-gpus=1" not in second["arguments"] and "--head" not in second["arguments"]
    for call in (first, second):
        assert (call["RAY_AUTH_MODE"], call["RAY_AUTH_TOKEN_PATH"]) == ("token", str(token))
    assert len(token.read_text()) == 64 and token.stat().st_mode & 0o077 == 0
    said = (folder / "environment").read_text()
    assert f"RAY_ADDRESS=127.0.0.1:{port}\n" in said and "RAY_AUTH_TOKEN_PATH=" in said
    head.send_signal(signal.SIGTERM)
    head.wait(60)
    assert [path.name for path in folder.iterdir()] == ["token"]
