"""Find and remove what a launch leaves behind when it, or whoever started it, was killed outright.

Nobody cleans up after `kill -9`, so a launch writes down beforehand how to recognise what is its own: it is the leader
of a session of its own, carries a token in its environment, and keeps its temporary files (Ray's sockets and logs,
vLLM's sockets, verl's locks) in one folder. Ray and vLLM rename their processes and start process groups, but none
leaves the session. The next start reads the note and clears what is left.
"""

import json
import os
import shutil
import stat
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from recipe.files import write_atomic

TOKEN = "BFCL_LAUNCH"
"""Environment variable that every process of a launch has; set means that somebody watches over this process."""

SHARED_MEMORY = ("psm_", "sem.mp-", "verl_weights_", "plasma", "nccl-")
"""Beginnings of the names that Python, verl, Ray and NCCL give to their files in /dev/shm."""


@dataclass(frozen=True)
class Launch:
    """How to recognise what belongs to one launch."""

    token: str
    started: float
    """Seconds since the epoch."""
    temp: str
    """Folder of its temporary files."""
    log: str
    pid: int | None = None
    """Its first process, which leads its session; None until that runs."""
    created: float = 0.0
    """When the kernel started that process: a number alone may have gone to another one since."""


def note(path: Path, launch: Launch) -> None:
    """Write down a launch where `clear` finds it."""
    write_atomic(path, json.dumps(asdict(launch), indent=1) + "\n")


def read(path: Path) -> Launch | None:
    """The launch noted in `path`; None if there is none."""
    try:
        return Launch(**json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def clear(path: Path, keep_logs: bool = True) -> list[str]:
    """End the processes of the launch noted in `path` and remove its files and the note.

    Args:
        keep_logs: copy Ray's logs beside the launch's own before they are removed.

    Returns:
        What was found, a line each; empty when there was nothing.
    """
    launch = read(path)
    if launch is None:
        return []
    found = []
    if names := end(living(launch)):
        found.append(f"{len(names)} processes ({', '.join(sorted(set(names)))})")
    if removed := _clear_shared_memory(launch.started):
        found.append(f"{removed} files in shared memory")
    temp = Path(launch.temp)
    if temp.is_dir():
        found.append(f"temporary files in {temp}")
        logs = next(iter(sorted(temp.glob("**/session_2*/logs"), reverse=True)), None)
        if keep_logs and logs is not None:
            with suppress(OSError, shutil.Error):  # they may be what filled the disk
                shutil.copytree(logs, Path(launch.log).with_suffix(".ray"), symlinks=True, dirs_exist_ok=True)
        shutil.rmtree(temp, ignore_errors=True)
    _clear_sockets()
    path.unlink(missing_ok=True)
    return found


def living(launch: Launch) -> list[psutil.Process]:
    """Living processes of the launch: those of its session, and those that carry its token."""
    session = launch.pid
    if session is not None:
        with suppress(psutil.NoSuchProcess):
            if abs(psutil.Process(session).create_time() - launch.created) > 1.0:
                session = None  # another process has the number now, so nothing is left of the session
    mark, found = f"{TOKEN}={launch.token}".encode(), []
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        with suppress(psutil.Error, OSError):
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            member = session is not None and os.getsid(process.pid) == session
            if member or mark in Path(f"/proc/{process.pid}/environ").read_bytes():
                found.append(process)
    return found


def end(processes: list[psutil.Process], grace: float = 5.0) -> list[str]:
    """End the processes: SIGTERM, and after `grace` seconds SIGKILL. Returns the names of those that still lived."""
    names = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            names.append(process.name())
            process.terminate()
    _, alive = psutil.wait_procs(processes, timeout=grace)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=grace)
    return names


def _clear_shared_memory(since: float, folder: Path = Path("/dev/shm")) -> int:
    """Remove files of ours, as new as the launch and with such a name, that no process maps. Returns how many."""
    if not folder.is_dir():
        return 0
    candidates = []
    for path in folder.iterdir():
        with suppress(FileNotFoundError):
            state = path.lstat()
            if path.name.startswith(SHARED_MEMORY) and state.st_uid == os.getuid() and state.st_ctime >= since:
                candidates.append(path)
    if not candidates:
        return 0
    mapped: set[str] = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            mapped.update(line.split()[-1] for line in maps.read_text().splitlines() if str(folder) in line)
    unused = [path for path in candidates if str(path) not in mapped]
    for path in unused:
        path.unlink(missing_ok=True)
    return len(unused)


def _clear_sockets(folder: Path = Path("/tmp")) -> None:
    """Remove verl's sockets that nobody listens on; their path is fixed in verl."""
    with suppress(OSError):
        listening = Path("/proc/net/unix").read_text()
        for path in folder.glob("rl-colocate-zmq-*.sock"):
            state = path.lstat()
            if stat.S_ISSOCK(state.st_mode) and state.st_uid == os.getuid() and str(path) not in listening:
                path.unlink(missing_ok=True)
