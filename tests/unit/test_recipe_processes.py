"""Nothing of a stage outlives the curriculum, however it ends."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from recipe import processes

ORPHAN = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
open(sys.argv[1], "w").write(str(child.pid))
"""


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are found through Linux's subreaper")
def test_a_process_that_its_parent_left_behind_is_ended(tmp_path: Path):
    note = tmp_path / "pid"
    code = processes.run([sys.executable, "-c", ORPHAN, str(note)], tmp_path / "log", lambda: None)
    assert code == 0
    assert not alive(int(note.read_text()))


def test_the_exit_status_and_the_output_of_the_child_are_kept(tmp_path: Path):
    code = processes.run([sys.executable, "-c", "print('said'); exit(3)"], tmp_path / "log", lambda: None)
    assert code == 3
    assert (tmp_path / "log").read_text() == "said\n"


def test_a_long_child_is_watched(tmp_path: Path):
    seen: list[float] = []
    processes.run([sys.executable, "-c", "import time; time.sleep(2.5)"], tmp_path / "log", lambda: seen.append(1))
    assert len(seen) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_child_and_what_it_started(tmp_path: Path, number: signal.Signals):
    note = tmp_path / "pid"
    waiting = ORPHAN + "time.sleep(300)\n"
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)

    def interrupt() -> None:
        while not note.exists() or not note.read_text():
            time.sleep(0.05)
        os.kill(os.getpid(), number)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        processes.run([sys.executable, "-c", waiting, str(note)], tmp_path / "log", lambda: None)
    assert not alive(int(note.read_text()))
    assert psutil.Process().children(recursive=True) == []
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers


def test_a_child_is_told_when_the_curriculum_is_killed_outright(tmp_path: Path):
    note = tmp_path / "pid"
    child = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(300)"
    log = str(tmp_path / "log")
    parent = (
        "import sys; from pathlib import Path; from recipe import processes\n"
        f"processes.run([sys.executable, '-c', {child!r}, {str(note)!r}], Path({log!r}), lambda: None)"
    )
    process = subprocess.Popen([sys.executable, "-c", parent])
    while not note.exists() or not note.read_text():
        time.sleep(0.05)
    process.kill()
    process.wait()
    end = time.time() + 10
    while alive(int(note.read_text())) and time.time() < end:
        time.sleep(0.1)
    assert not alive(int(note.read_text()))
