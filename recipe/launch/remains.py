"""Find and remove what a launch leaves behind when it, or whoever started it, was killed outright.

Nobody cleans up after `kill -9`, so a launch writes down beforehand how to recognise what is its own: it is the leader
of a session of its own, carries a token in its environment, and keeps its temporary files (Ray's sockets and logs,
vLLM's sockets, verl's locks) in one folder. Ray and vLLM rename their processes and start process groups, but none
leaves the session. The next start reads the note and clears what is left.

The note is a file, so it may have come with a copy of the run's folder, or from anybody. It names the folder it was
written in, and is ignored in any other; and it is not believed: a process is ended, and a folder removed, only if it
carries the launch's token itself, or is of the launch's session and at work in its folders.
"""

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import psutil
from pydantic import Field

from interaction.masked import masked_text
from recipe.files import Damaged, StateFile, read_text
from recipe.typed import STRICT

TOKEN = "BFCL_LAUNCH"
"""Environment variable that every process of a launch has; set means that somebody watches over this process."""

TEMP = "bfcl-"
"""How the name of a launch's temporary folder begins."""

TOKEN_FILE = "launch"
"""In that folder: the launch's token."""

SHARED_MEMORY = ("psm_", "sem.mp-", "verl_weights_", "plasma", "nccl-")
"""Beginnings of the names that Python, verl, Ray and NCCL give to their files in /dev/shm."""


@dataclass(frozen=True)
class Folder:
    """Which folder on this machine: a copy is another one, and one that was moved on its disk is the same."""

    __pydantic_config__ = STRICT
    path: str
    device: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> "Folder":
        """The folder at `path`."""
        state = path.stat()
        return cls(str(path.resolve()), state.st_dev, state.st_ino)

    def is_(self, other: "Folder") -> bool:
        """Whether both are one. A restart of the machine may change a device's number; then the path tells."""
        return self.inode == other.inode and (self.device == other.device or self.path == other.path)


@dataclass(frozen=True)
class Launch:
    """How to recognise what belongs to one launch."""

    __pydantic_config__ = STRICT
    token: Annotated[str, Field(pattern=r"^\w{1,64}$")]
    started: float
    """Seconds since the epoch, for people: a note is not believed."""
    temp: str
    """Folder of its temporary files."""
    log: str
    pid: int | None = None
    """Its first process, which leads its session; None until that runs."""
    created: float = 0.0
    """When the kernel started that process: a number alone may have gone to another one since."""
    run: Folder | None = None
    """The folder that it works in; None in notes of before it was kept."""
    cluster: str | None = None
    """Address of the Ray cluster that it has joined (`recipe.launch.nodes`)."""


LAUNCH = StateFile(Launch)


def note(path: Path, launch: Launch) -> None:
    """Write down a launch where `clear` finds it."""
    LAUNCH.write(path, launch)


def read(path: Path) -> Launch | None:
    """The launch noted in `path`; None if there is none, or a damaged note."""
    return LAUNCH.read_or_none(path)


def make_temp(token: str, base: str) -> str:
    """A new folder in `base` for the temporary files of a launch, which says whose it is."""
    temp = tempfile.mkdtemp(prefix=TEMP, dir=base)
    (Path(temp) / TOKEN_FILE).write_text(token)
    return temp


def foreign(path: Path) -> str | None:
    """Why the note in `path` says nothing about what may be cleared here; None if it does, or if there is none."""
    try:
        launch = LAUNCH.read(path)
    except Damaged as error:
        return f"{error}. What that launch may have left running is not known"
    if launch and launch.run and not launch.run.is_(Folder.of(path.parent)):
        return f"{path} is of a start in {launch.run.path}, of which this folder is a copy"
    return None


def clear(path: Path, keep_logs: bool = True) -> list[str]:
    """End the processes of the launch noted in `path` and remove its files and the note.

    Args:
        keep_logs: copy Ray's logs beside the launch's own before they are removed.

    Returns:
        What was found, a line each; empty when there was nothing.
    """
    launch = None if foreign(path) else read(path)
    if launch is None:
        path.unlink(missing_ok=True)
        return []
    found: list[str] = []
    temp = own_temp(launch)
    if names := end(living(launch, path.parent)):
        found.append(f"{len(names)} processes ({', '.join(sorted(set(names)))})")
    if temp is not None and keep_logs:
        if (logs := next(iter(sorted(temp.glob("**/session_2*/logs"), reverse=True)), None)) is not None:
            with suppress(OSError, shutil.Error):  # they may be what filled the disk
                kept = _log(launch, path).with_suffix(".ray")
                shutil.copytree(logs, kept, symlinks=True, copy_function=_copy_masked, dirs_exist_ok=True)
    found += clear_files(launch)
    path.unlink(missing_ok=True)
    return found


def _copy_masked(log: str, copy: str) -> None:
    Path(copy).write_text(masked_text(Path(log).read_text(errors="replace")))


def clear_files(launch: Launch) -> list[str]:
    """Remove what a launch whose processes have ended has left in shared memory and in temporary files."""
    found, temp = [], own_temp(launch)
    if temp is not None:
        if removed := _clear_shared_memory((temp / TOKEN_FILE).stat().st_ctime):
            found.append(f"{removed} files in shared memory")
        found.append(f"temporary files in {temp}")
        shutil.rmtree(temp, ignore_errors=True)
    _clear_sockets()
    return found


def own_temp(launch: Launch) -> Path | None:
    """The launch's temporary folder; None for anything else that its note may name."""
    temp, places = Path(launch.temp), (Path(tempfile.gettempdir()).resolve(), Path("/tmp").resolve())
    if not temp.name.startswith(TEMP) or temp.parent.resolve() not in places:
        return None
    with suppress(OSError, Damaged):
        state = temp.lstat()
        if stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid() and read_text(temp / TOKEN_FILE) == launch.token:
            return temp
    return None


def _log(launch: Launch, note: Path) -> Path:
    """The launch's log: in its run, wherever that is now."""
    log = Path(launch.log)
    inside = log.resolve().is_relative_to(note.parent.resolve())
    return log if inside else note.parent / "logs" / log.name


def living(launch: Launch, run: Path) -> list[psutil.Process]:
    """Living processes of the launch: those that carry its token, and those of its session that work in its folders.

    Ray's workers write their titles over their environment, so that the token cannot be read there.
    """
    found, folders = marked(launch), [str(run.resolve())]
    if temp := own_temp(launch):
        folders.append(str(temp.resolve()))
    within = re.compile("|".join(f"{re.escape(folder)}/" for folder in folders))
    for process in _others():
        with suppress(psutil.Error, OSError):
            if process not in found and _of_session(process, launch) and _at_work(process, within):
                found.append(process)
    return found


def marked(launch: Launch) -> list[psutil.Process]:
    """Living processes that carry the launch's token in their environment."""
    mark, found = f"{TOKEN}={launch.token}".encode(), []
    for process in _others():
        with suppress(psutil.Error, OSError):
            if mark in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                found.append(process)
    return found


def _others() -> Iterator[psutil.Process]:
    """Living processes but this one and the first."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid not in (os.getpid(), 1) and process.status() != psutil.STATUS_ZOMBIE:
                yield process


def _of_session(process: psutil.Process, launch: Launch) -> bool:
    if launch.pid is None or os.getsid(process.pid) != launch.pid:
        return False
    with suppress(psutil.NoSuchProcess):  # if another process has the number now, nothing is left of the session
        return abs(psutil.Process(launch.pid).create_time() - launch.created) <= 1.0
    return True


def _at_work(process: psutil.Process, within: re.Pattern[str]) -> bool:
    """Whether the process has a file open in one of the folders: its output goes to a log there."""
    opened = []
    for link in Path(f"/proc/{process.pid}/fd").iterdir():
        with suppress(OSError):
            opened.append(os.readlink(link))
    return any(within.match(target) for target in opened)


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
