"""A note of a launch ends and removes what is that launch's own, and nothing else, whoever wrote it or copied it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from recipe.launch import processes, remains

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
from recipe.launch import processes
run = Path(sys.argv[1])
with processes.alone(run) as note:
    processes.run([sys.executable, "-c", sys.argv[2], str(run / "pid")], run / "logs" / "x.log", lambda: None, note)
"""
BYSTANDER = "import sys, time; print('up', flush=True); time.sleep(300)"


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.fixture
def started(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen, int]]:
    """A run at work: its folder, its starter, its child."""
    run = tmp_path / "a"
    run.mkdir()
    starter = subprocess.Popen([sys.executable, "-c", STARTER, str(run), STAYS])
    end = time.time() + 60
    while not (run / "pid").exists() or not (run / "pid").read_text() or remains.read(run / "launch.json").pid is None:
        assert time.time() < end
        time.sleep(0.05)
    child = int((run / "pid").read_text())
    yield run, starter, child
    starter.kill()
    starter.wait()
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    remains.clear(run / "launch.json")


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen]:
    """A process of somebody else, in a session of its own."""
    process = subprocess.Popen([sys.executable, "-c", BYSTANDER], start_new_session=True, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"up\n"
    yield process
    process.kill()
    process.wait()


def test_a_copy_of_a_run_at_work_ends_nothing_and_says_so(started, tmp_path, capsys):
    run, starter, child = started
    launch = remains.read(run / "launch.json")
    copy = Path(shutil.copytree(run, tmp_path / "b"))
    with processes.alone(copy):
        pass
    said = capsys.readouterr().out
    assert f"launch.json is of a start in {run}, of which this folder is a copy; the note is ignored" in said
    assert said.count("\n") == 1
    assert alive(child) and starter.poll() is None and Path(launch.temp).is_dir()
    assert remains.read(run / "launch.json") == launch


def test_a_run_that_was_moved_after_a_kill_clears_what_it_has_left(started, tmp_path, capsys):
    run, starter, child = started
    launch = remains.read(run / "launch.json")
    starter.kill()
    starter.wait()
    run.rename(tmp_path / "moved")
    with processes.alone(tmp_path / "moved"):
        pass
    assert "the last start was killed; cleared 1 processes" in capsys.readouterr().out
    assert not alive(child) and not Path(launch.temp).exists()


def test_a_note_of_an_earlier_release_is_read_and_ends_what_carries_its_token(tmp_path, capsys):
    child = subprocess.Popen([sys.executable, "-c", BYSTANDER], env={**os.environ, remains.TOKEN: "a" * 32})
    note = {"token": "a" * 32, "started": time.time(), "temp": "/tmp/bfcl-none", "log": "logs/x.log"}
    (tmp_path / "launch.json").write_text(json.dumps({**note, "pid": None, "created": 0.0}))
    with processes.alone(tmp_path):
        pass
    assert not alive(child.pid) and "cleared 1 processes" in capsys.readouterr().out


def hostile(run: Path, bystander: subprocess.Popen, folders: list[Path]) -> list[dict]:
    """Notes that name others' processes and folders, as exactly as somebody who knows them could."""
    own = vars(remains.Folder.of(run))
    pid, created = bystander.pid, psutil.Process(bystander.pid).create_time()
    good = {"token": "b" * 32, "started": time.time() + 60, "temp": "/tmp/bfcl-none", "log": "x.log", "run": own}
    return [
        {**good, "pid": pid, "created": created},
        {**{key: value for key, value in good.items() if key != "run"}, "pid": pid, "created": created},
        {**good, "pid": 1, "created": psutil.Process(1).create_time()},
        {**good, "pid": os.getsid(0), "created": 0.0},
        {**good, "pid": 0},
        {**good, "pid": -1},
        {**good, "pid": 10**30},
        {**good, "token": ""},
        {**good, "token": "="},
        *({**good, "temp": str(folder)} for folder in folders),
        *({**good, "started": started} for started in (0.0, -1e300)),
        {**good, "log": "../../../../../../etc/x.log"},
    ]


def test_a_hostile_note_harms_nothing(tmp_path, bystander):
    run, theirs = tmp_path / "run", tmp_path / "bfcl-theirs"
    run.mkdir()
    temporary = Path(tempfile.mkdtemp(prefix=remains.TEMP))
    link = temporary.with_name(f"{temporary.name}-link")
    link.symlink_to(theirs)
    shared = Path(tempfile.mkstemp(prefix="psm_", dir="/dev/shm")[1])
    try:
        for folder in (theirs, temporary, tmp_path / "home"):
            (folder / "session_2" / "logs").mkdir(parents=True)
            (folder / "session_2" / "logs" / "file").write_text("mine")
        (theirs / remains.TOKEN_FILE).write_text("b" * 32)
        folders = [theirs, temporary, tmp_path / "home", link, Path("/"), Path("/tmp"), Path("."), Path("")]
        for note in hostile(run, bystander, folders):
            (run / "launch.json").write_text(json.dumps(note))
            with processes.alone(run):
                pass
            assert bystander.poll() is None and shared.exists(), note
            for folder in (theirs, temporary, tmp_path / "home"):
                assert (folder / "session_2" / "logs" / "file").exists(), note
        assert sorted(path.name for path in run.iterdir()) == [".lock"]
    finally:
        shutil.rmtree(temporary)
        shared.unlink()
        link.unlink()


CONTENTS = [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"token": 3}', b'{"version": 7}']


@pytest.mark.parametrize("content", CONTENTS, ids=lambda content: repr(content[:15]))
def test_a_damaged_note_is_said_and_does_not_stop_the_start(tmp_path, capsys, content):
    (tmp_path / "launch.json").write_bytes(content)
    with processes.alone(tmp_path):
        pass
    said = capsys.readouterr().out
    assert "launch.json" in said and "What that launch may have left running is not known" in said
    assert said.count("\n") == 1


def test_a_start_whose_note_cannot_be_written_leaves_no_temporary_folder(tmp_path, monkeypatch):
    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device", "launch.json")

    monkeypatch.setattr(remains, "note", fails)
    before = set(Path(tempfile.gettempdir()).glob(f"{remains.TEMP}*"))
    with pytest.raises(OSError, match="No space"):
        processes.run([sys.executable, "-c", ""], tmp_path / "log", lambda: None, tmp_path / "launch.json")
    assert set(Path(tempfile.gettempdir()).glob(f"{remains.TEMP}*")) <= before


def test_a_copied_lock_locks_nothing(started, tmp_path):
    run, _, _ = started
    copy = Path(shutil.copytree(run, tmp_path / "b"))
    assert (copy / ".lock").read_text().isdecimal()
    with pytest.raises(SystemExit, match="is in use"), processes.alone(run):
        pass
    with processes.alone(copy):
        assert (copy / ".lock").read_text() == str(os.getpid())
