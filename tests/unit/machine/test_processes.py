"""Nothing of a start outlives it, however it ends; what a killed one has left is cleared, and nothing else is."""

import json
import mmap
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import psutil
import pytest
from ray import cloudpickle

from recipe.machine import processes
from recipe.machine.cluster import TOKEN, TOKEN_FILE
from recipe.machine.processes import NOTE, TEMP, Launch, alone, identity, living

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

STAYS = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # or it would end with its parent
open(sys.argv[1], "w").write(str(os.getpid()))
time.sleep(300)
"""
STARTER = """
import sys
from pathlib import Path
from recipe.machine import processes
run = Path(sys.argv[1])
with processes.alone(run) as note:
    processes.run([sys.executable, "-c", sys.argv[2], str(run / "pid")], run / "logs" / "x.log", lambda: None, note)
"""
SIGNALS = (signal.SIGINT, signal.SIGTERM)
TWO = ["bash", "-c", "setsid sleep 900.5 & exec sleep 29.5"]


def alive(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def until(true):
    end = time.time() + 20
    while not true():
        assert time.time() < end
        time.sleep(0.05)


@pytest.fixture
def start(tmp_path):
    """Starts a run: its folder, its starter, its child."""
    started = []

    def begin(code=STAYS):
        (run := tmp_path / "a").mkdir()
        note = run / "pid"
        starter = subprocess.Popen([sys.executable, "-c", STARTER, str(run), code])
        until(lambda: note.exists() and note.read_text())
        until(lambda: Launch.read(run / NOTE).pid is not None)
        started.append((Launch.read(run / NOTE), starter, child := int(note.read_text())))
        return run, starter, child

    yield begin
    for launch, starter, child in started:
        starter.kill()
        starter.wait()
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        processes.clear(launch, tmp_path)


def run_code(code, folder, watch=lambda: None, *given):
    return processes.run([sys.executable, "-c", code, *given], folder / "x.log", watch, folder / NOTE)


def test_status_and_output_are_kept_a_long_child_is_watched_and_an_orphan_is_ended(tmp_path, monkeypatch):
    assert run_code("print('said'); exit(3)", tmp_path) == 3
    assert (tmp_path / "x.log").read_text() == "said\n"
    seen, cleared, note = [], [], tmp_path / NOTE
    monkeypatch.setattr(processes, "_clear_nodes", lambda _, address: cleared.append(address) or [])

    def watch():  # and the child joins a cluster meanwhile
        seen.append(replace(Launch.read(note), cluster="a:1").write(note))

    run_code("import time; time.sleep(3.5)", tmp_path, watch)
    assert len(seen) >= 2 and cleared == ["a:1"]
    shell = "trap 'echo > asked; exit' TERM; sleep 300 & echo $! > pid_; mv pid_ pid; wait"
    code = f"import os, subprocess as s, sys, time; os.chdir(sys.argv[1]); s.Popen(['sh', '-c', {shell!r}], "
    code += "env={}, start_new_session=True)\nwhile not os.path.exists('pid'): time.sleep(0.01)"
    assert run_code(code, tmp_path, lambda: None, str(tmp_path)) == 0
    assert not alive(int((tmp_path / "pid").read_text())) and not (tmp_path / "asked").exists(), "all, and at once"


class Swallows:
    """Python drops an exception that leaves a destructor; what is left of it is a line on stderr."""

    def __init__(self, work):
        self.work = work

    def __del__(self):
        self.work()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_ends_the_command_also_in_a_frame_that_drops_exceptions(tmp_path):
    def interrupt():
        Swallows(lambda: (os.kill(os.getpid(), numbers.pop()), time.sleep(0.01)))

    def while_it_runs(note):
        processes.run(TWO, tmp_path / "log", interrupt, note)

    def before_it_starts(note):
        interrupt()
        processes.run(TWO, tmp_path / "log", lambda: None, note)

    def while_it_computes(_):
        interrupt()
        for _ in range(200):
            time.sleep(0.1)

    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGINT]
    handlers = [signal.getsignal(each) for each in (*SIGNALS, signal.SIGALRM)]
    for command in (while_it_runs, before_it_starts, while_it_computes):
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt), alone(tmp_path) as note:
            command(note)
        assert time.monotonic() - began < 15, command
        assert psutil.Process().children(recursive=True) == []
    assert [signal.getsignal(each) for each in (*SIGNALS, signal.SIGALRM)] == handlers


LEAVES_MUCH = """
import os, socket, subprocess, sys, tempfile, time
from multiprocessing import shared_memory, resource_tracker
sock = socket.socket(socket.AF_UNIX); sock.bind(os.path.join(tempfile.gettempdir(), "socket"))
memory = shared_memory.SharedMemory(create=True, size=4096)
resource_tracker.unregister(memory._name, "shared_memory")
code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)"
titled = subprocess.Popen([sys.executable, "-c", code], env={"PATH": "title"}, preexec_fn=os.setpgrp)
time.sleep(0.5)
open(sys.argv[1] + ".memory", "w").write(memory.name)
open(sys.argv[1], "w").write(str(titled.pid))
time.sleep(300)
"""


def test_a_child_ends_with_its_killed_starter_and_the_next_start_clears_what_it_left(start, capsys):
    run, starter, orphan = start(LEAVES_MUCH)
    memory = Path("/dev/shm") / (run / "pid.memory").read_text().strip("/")
    launch = Launch.read(run / NOTE)
    assert launch.pid and memory.exists() and (Path(launch.temp) / "socket").exists()
    starter.kill()
    starter.wait()
    until(lambda: not alive(launch.pid))
    moved = run.rename(run.with_name("moved"))
    with alone(moved):
        pass
    said = capsys.readouterr().out
    assert "the last start was killed; cleared" in said
    assert "shared memory" in said or not memory.exists()  # another start on this machine may have been quicker
    assert not alive(orphan) and not memory.exists()
    assert not Path(launch.temp).exists() and not (moved / NOTE).exists()
    with alone(moved):
        pass
    assert capsys.readouterr().out == ""


def test_a_run_in_use_is_refused_and_a_copy_of_it_ends_nothing(start, tmp_path, capsys):
    run, starter, child = start()
    launch = Launch.read(run / NOTE)
    with pytest.raises(SystemExit, match=f"process {starter.pid} trains into it"), alone(run):
        pass
    with alone(Path(shutil.copytree(run, tmp_path / "b"))):
        assert (tmp_path / "b" / ".lock").read_text() == str(os.getpid())
    said = capsys.readouterr().out
    assert "came with a copy of another run" in said and said.count("\n") == 1
    assert alive(child) and starter.poll() is None and Path(launch.temp).is_dir() and Launch.read(run / NOTE) == launch
    starter.kill()
    starter.wait()
    with alone(run):
        pass


def test_a_note_that_names_what_is_not_the_launchs_harms_nothing_and_a_damaged_one_is_said(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(processes, "SHARED_MEMORY", (mine := f"of_a_test_{uuid4().hex}_",))  # another start clears psm_
    (run := tmp_path / "run").mkdir()
    bystander = subprocess.Popen(["sleep", "300"], start_new_session=True)
    temporary = Path(tempfile.mkdtemp(prefix=TEMP))
    (link := temporary.with_name(f"{temporary.name}-link")).symlink_to(tmp_path)
    (temporary / TOKEN_FILE).write_text("a" * 32)  # another launch's
    (tmp_path / TOKEN_FILE).write_text("b" * 32)
    shared = Path(tempfile.mkstemp(prefix=mine, dir="/dev/shm")[1])
    theirs = {"pid": bystander.pid, "created": psutil.Process(bystander.pid).create_time()}
    good = {"token": "b" * 32, "temp": "/tmp/bfcl-none", "log": "x.log", "folder": identity(run)}
    notes = [theirs, theirs | {"created": 1.0}, {"pid": os.getsid(0)}, {"pid": -1}, {"token": ""}]
    notes += [{"temp": str(folder)} for folder in (temporary, tmp_path, link, "/tmp", "")]
    try:
        for note in notes:
            (run / NOTE).write_text(json.dumps(good | note))
            with alone(run):
                pass
            assert bystander.poll() is None and shared.exists() and temporary.exists() and tmp_path.exists(), note
        assert [path.name for path in run.iterdir()] == [".lock"]
        (run / NOTE).touch()
        capsys.readouterr()
        with alone(run):
            pass
        said = capsys.readouterr().out
        assert "launch.json" in said and "is not known" in said and said.count("\n") == 1
    finally:
        bystander.kill()
        shutil.rmtree(temporary)
        shared.unlink()
        link.unlink()


def test_temporary_files_are_gone_and_the_logs_of_ray_are_kept_after_a_bad_end(tmp_path):
    code = (
        "import os, pathlib, sys; temp = pathlib.Path(os.environ['RAY_TMPDIR']); print(temp)\n"
        "old, logs = (temp / 'ray' / f'session_{year}' / 'logs' for year in (2025, 2026))\n"
        "old.mkdir(parents=True); logs.mkdir(parents=True); (logs / 'gone').symlink_to('/no/such/file')\n"
        "(logs / 'raylet.err').write_text('WANDB_API_KEY=hunter2'); sys.exit(int(sys.argv[1]))"
    )
    for status in (0, 1):
        log = tmp_path / "run" / "logs" / f"stage{status}.log"
        processes.run([sys.executable, "-c", code, str(status)], log, lambda: None, tmp_path / "run" / NOTE)
        assert not Path(log.read_text().strip()).exists()
        kept = log.with_suffix(".ray") / "raylet.err"
        assert kept.exists() is kept.with_name("gone").is_symlink() is bool(status)
        assert not status or "hunter2" not in kept.read_text()


@pytest.fixture
def launch(monkeypatch):
    """A launch with a folder of temporary files, and no process yet."""
    monkeypatch.setattr(processes, "PATIENCE", 0.1)
    token, temp = uuid4().hex, tempfile.mkdtemp(prefix=TEMP)
    (Path(temp) / TOKEN_FILE).write_text(token)
    yield Launch(token, temp, log="x.log", folder=(0, 0))
    shutil.rmtree(temp, ignore_errors=True)


@pytest.mark.parametrize("here", [True, False])
def test_what_has_the_token_is_ended_on_a_node_and_here_where_the_cluster_is_gone(here, tmp_path, launch):
    ours, other = (subprocess.Popen(["sleep", "300"], env={TOKEN: token}) for token in (launch.token, "another"))
    assert [process.pid for process in living(launch, tmp_path)] == [ours.pid]
    with socket.create_server(("127.0.0.1", 0)) as unused:
        joined = replace(launch, cluster=f"127.0.0.1:{unused.getsockname()[1]}")
    asked = {"token": launch.token, "temp": launch.temp}
    found = processes.clear(joined, tmp_path) if here else processes.clear_here(asked, "node", ["node"])
    assert found[int(here)].startswith("1 processes") and launch.temp in found[-1]
    assert not alive(ours.pid) and other.poll() is None and not Path(launch.temp).exists()
    assert processes.clear_here(asked, "node", ["node"]) == []
    other.kill()
    cloudpickle.register_pickle_by_value(processes)
    travels = cloudpickle.dumps(processes.clear_here)
    cloudpickle.unregister_pickle_by_value(processes)
    assert b"recipe.files" not in travels and b"interaction" not in travels, "a node may lack this checkout"


def test_the_process_that_leads_the_session_is_known_by_what_it_writes_and_when_it_began(tmp_path, launch):
    files = [(tmp_path / "log").open("w"), (Path(launch.temp) / "log").open("w"), subprocess.DEVNULL]
    leaders = [subprocess.Popen(["sleep", "300"], start_new_session=True, stdout=file) for file in files]
    try:
        for number, leader in enumerate(leaders):
            led = replace(launch, pid=leader.pid, created=psutil.Process(leader.pid).create_time())
            assert [process.pid for process in living(led, tmp_path)] == [leader.pid] * (number < 2)
            assert living(replace(led, created=led.created - 10), tmp_path) == [], "its number is a later process's now"
    finally:
        for leader in leaders:
            leader.kill()
            leader.wait()


def test_only_files_of_the_launch_that_nobody_uses_are_removed_and_its_last_logs_of_ray_kept(
    tmp_path, launch, monkeypatch
):
    monkeypatch.setattr(processes, "SHARED_MEMORY", (mine := f"of_a_test_{uuid4().hex}_",))
    temp, shared = Path(launch.temp), Path("/dev/shm")
    old, new, used, other = files = [shared / name for name in (f"{mine}1", f"{mine}2", f"{mine}3", f"not_{mine}")]
    stale, heard = (Path(f"/tmp/rl-colocate-zmq-{launch.token}-{name}.sock") for name in ("stale", "heard"))
    for number in (1, 2):
        (logs := temp / "ray" / f"session_202{number}" / "logs").mkdir(parents=True)
        (logs / "out").write_text(str(number))
        (logs / "gone").symlink_to("/no/such/file")
    (kept := tmp_path / "logs" / "x.ray").mkdir(parents=True)
    try:
        old.touch()
        while (temp / TOKEN_FILE).stat().st_ctime <= old.stat().st_ctime:
            (temp / TOKEN_FILE).write_text(launch.token)
        for file in files[1:]:
            file.write_text("x")
        with used.open("r+") as file, mmap.mmap(file.fileno(), 1), socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(heard))
            with socket.socket(socket.AF_UNIX) as ended:
                ended.bind(str(stale))
            for other_user in (os.getuid() - 1, os.getuid() + 1):
                with monkeypatch.context() as patch:
                    patch.setattr(os, "getuid", lambda user=other_user: user)
                    assert processes.clear(launch, tmp_path) == [] and temp.exists()
            assert processes.clear(launch, tmp_path)[0].startswith("1 ") and not temp.exists()
            assert [file.exists() for file in (*files, stale, heard)] == [True, False, True, True, False, True]
    finally:
        for file in (*files, stale, heard):
            file.unlink(missing_ok=True)
    assert (kept / "out").read_text() == "2" and (kept / "gone").is_symlink()
