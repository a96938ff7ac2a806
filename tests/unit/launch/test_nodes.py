"""What a launch leaves on a node of a cluster is found, ended and removed there, and nothing else is."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest

from recipe.cluster import workers
from recipe.launch import nodes, remains

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

ROOT = Path(__file__).parents[3]
WORKER = f"import {workers.__name__} as w, time; w.begin(); print('begun', flush=True); time.sleep(300)"
"""A process that begins as Ray's workers do."""

Start = Callable[..., subprocess.Popen]


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch) -> Iterator[remains.Launch]:
    monkeypatch.setattr(nodes, "PATIENCE", 0.1)
    token = uuid4().hex
    temp = f"/tmp/{remains.TEMP}{token[:8]}"
    yield remains.Launch(token, time.time(), temp, log="")
    shutil.rmtree(temp, ignore_errors=True)


@pytest.fixture
def start(launch: remains.Launch) -> Iterator[Start]:
    children: list[subprocess.Popen] = []

    def begin(code: str = WORKER, **environment: str) -> subprocess.Popen:
        given = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), workers.FOLDER: "/tmp", "TMPDIR": launch.temp}
        child = subprocess.Popen([sys.executable, "-c", code], env=given | environment, stdout=-1, text=True)
        children.append(child)
        assert child.stdout is not None and child.stdout.readline() == "begun\n"
        return child

    yield begin
    for child in children:
        child.kill()
        child.wait()


def asked(launch: remains.Launch) -> dict[str, Any]:
    return {"token": launch.token, "started": launch.started, "temp": launch.temp}


def hidden(worker: subprocess.Popen, launch: remains.Launch) -> None:
    """Ray's workers write titles over their environment; here it has another token from the beginning."""
    assert worker.pid not in [process.pid for process in remains.marked(launch)]
    (Path(launch.temp) / remains.TOKEN_FILE).write_text(launch.token)


def test_workers_and_what_they_have_started_are_ended_and_their_files_removed(
    launch: remains.Launch, start: Start
) -> None:
    worker = start(BFCL_LAUNCH="a title")
    hidden(worker, launch)
    child = start("import time; print('begun', flush=True); time.sleep(300)", BFCL_LAUNCH=launch.token)
    other = start("import time; print('begun', flush=True); time.sleep(300)", BFCL_LAUNCH="another")
    found = nodes.clear_here(asked(launch), "node", ["node"])
    assert found[0].startswith("2 processes") and launch.temp in found[-1]
    assert not psutil.pid_exists(worker.pid) and not psutil.pid_exists(child.pid) and other.poll() is None
    assert not Path(launch.temp).exists()
    assert nodes.clear_here(asked(launch), "node", ["node"]) == []


@pytest.mark.parametrize("text", ["1", "", "no number"])
def test_a_number_that_another_process_has_now_ends_nobody(launch: remains.Launch, start: Start, text: str) -> None:
    worker = start(BFCL_LAUNCH="a title")
    hidden(worker, launch)
    noted = Path(launch.temp) / workers.PROCESSES
    (noted / str(worker.pid)).write_text(text)
    for name in ("1", "0", "-1", "not-a-number", "99999999999"):
        (noted / name).write_text("1")
    found = nodes.clear_here(asked(launch), "node", ["node"])
    assert found == [f"temporary files in {launch.temp}"]
    assert worker.poll() is None


def test_a_folder_of_another_launch_is_left_alone(launch: remains.Launch, start: Start) -> None:
    worker = start(BFCL_LAUNCH="of another launch")
    assert nodes.clear_here(asked(launch), "node", ["node"]) == []
    assert worker.poll() is None and Path(launch.temp).exists()


def test_a_launch_notes_the_cluster_it_joins_and_no_other_launch_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / nodes.NOTE
    remains.note(path, remains.Launch("token", 1.0, "/tmp/x", "log"))
    monkeypatch.setenv(remains.TOKEN, "another")
    nodes.note(tmp_path, "10.0.0.1:6379")
    before = remains.read(path)
    assert before is not None and before.cluster is None
    monkeypatch.setenv(remains.TOKEN, "token")
    nodes.note(tmp_path, "10.0.0.1:6379")
    after = remains.read(path)
    assert after is not None and after.cluster == "10.0.0.1:6379" and after.token == "token"


def test_where_the_cluster_is_gone_that_is_said_and_this_machine_is_cleared(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    token = uuid4().hex
    temp = remains.make_temp(token, "/tmp")
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], env={remains.TOKEN: token})
    launch = remains.Launch(token, time.time(), temp, str(tmp_path / "log"), cluster=address)
    remains.note(tmp_path / nodes.NOTE, launch)
    found = nodes.clear(tmp_path / nodes.NOTE)
    assert address in found[0] and "nothing on other nodes" in found[0]
    assert any("1 processes" in line for line in found)
    assert not Path(temp).exists() and not (tmp_path / nodes.NOTE).exists()
    assert not psutil.pid_exists(child.pid)
