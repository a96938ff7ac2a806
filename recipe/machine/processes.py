"""Run a training so that nothing of it outlives us, and clear up after one that was killed outright.

Ray and vLLM start many processes, rename them, and some survive their parent. On Linux a launch adopts the orphans of
its child. It also writes marks into `launch.json` of the run's folder: a token that every process has in its
environment, the child's session, and one folder for temporary files. The next start ends what still has these marks.
A note that came with a copy of the run's folder is ignored, and a folder is removed only if it holds the token itself.
"""

import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from interaction.masked import masked_text
from recipe.files import Damaged, StateFile
from recipe.machine import loopback
from recipe.machine.cluster import TOKEN, TOKEN_FILE, ClusterError, ask

NOTE = "launch.json"
"""In a run's folder: the launch that is at work there, or was killed."""
LOCK = ".lock"
"""In a run's folder: locked by the start that trains into it, and names its process."""
TEMP = "bfcl-"
"""How the name of a launch's temporary folder begins."""
LONGEST_TEMP = 24
"""Characters of the folder that temporary files may be in: a socket's path has 107 at most, and Ray adds 70."""
SHARED_MEMORY = ("psm_", "sem.mp-", "verl_weights_", "plasma", "nccl-")
"""Beginnings of the names that Python, verl, Ray and NCCL give to their files in /dev/shm."""
AGAIN = 2.0
"""Seconds after which an interrupt is thrown again where the first one got lost."""
PATIENCE = 10.0
"""Seconds for Ray to end its workers on other nodes itself."""


@dataclass(frozen=True)
class Mark:
    """How to recognise what belongs to one launch, on any node: it has nothing that comes from elsewhere (`ask`)."""

    token: str
    temp: str
    """Folder of its temporary files."""
    pid: int | None = None
    """Its first process, which leads its session; None until that runs."""
    created: float = 0.0
    """When the kernel started that process: its number alone may have gone to another one since."""


@dataclass(frozen=True, kw_only=True)
class Launch(Mark, StateFile):
    """What the next start has to know of this one."""

    log: str
    folder: tuple[int, int]
    """Device and inode of the run's folder: a copy has others."""
    cluster: str | None = None
    """Address of the Ray cluster that it has joined."""


def identity(folder: Path) -> tuple[int, int]:
    """What tells a folder from its copies, and stays if it is moved on its disk."""
    state = folder.stat()
    return state.st_dev, state.st_ino


def end_with_parent() -> None:
    """Have this process terminated when its parent ends, however that ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)  # PR_SET_PDEATHSIG


def adopt_orphans() -> None:
    """Make this process the reaper of its descendants, so that `end_descendants` finds those whose parent has ended."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def _in_child() -> None:
    end_with_parent()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a script started with & would hand down "ignore"


class Interruptible:
    """A block that SIGINT and SIGTERM end with KeyboardInterrupt, also where a script with & has them ignored.

    Python drops an exception that leaves a destructor, so it is thrown again every AGAIN seconds. While `thrown` is
    false nothing is thrown; the block reads `signalled` itself, and its end raises.
    """

    def __init__(self, thrown: bool = True) -> None:
        self.thrown, self.signalled = thrown, False
        self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)}

    def __enter__(self) -> "Interruptible":
        for number in self._before:
            signal.signal(number, self._take)
        return self

    def _take(self, *_: object) -> None:
        self.signalled = True
        signal.setitimer(signal.ITIMER_REAL, AGAIN)
        if self.thrown:
            raise KeyboardInterrupt

    def __exit__(self, *_: object) -> None:
        self.thrown = False
        if self.signalled:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self.signalled:
            raise KeyboardInterrupt


@contextmanager
def alone(run: Path) -> Iterator[Path]:
    """Make sure that nobody else trains into the run's folder, and clear what a killed start has left of itself.

    Yields:
        Where `run` notes its launch.

    Raises:
        SystemExit: another start is at work in this run.
        OSError: the folder cannot be written, or its files cannot be locked.
    """
    run.mkdir(parents=True, exist_ok=True)
    note = run / NOTE
    with (run / LOCK).open("a+", errors="replace") as lock, Interruptible():
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # ends with this process, however that ends
        except BlockingIOError:
            lock.seek(0)
            owner = lock.read(20).strip() or "unknown"
            sys.exit(f"{run} is in use: process {owner} trains into it. Wait for it, end it, or set RUN=another-name.")
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        try:
            launch = Launch.read(note)
            if launch and launch.folder != identity(run):
                print(f"{note} came with a copy of another run: it is ignored", flush=True)
            elif launch and (found := clear(launch, run)):
                print(f"the last start was killed; cleared {', '.join(found)}", flush=True)
        except Damaged as error:
            print(f"{error}. What the last start may have left running is not known", flush=True)
        note.unlink(missing_ok=True)
        yield note


def run(command: list[str], log: Path, watch: Callable[[], None], note: Path) -> int:
    """Run `command` with its output in `log`, calling `watch` once a second; returns its exit status.

    An interrupt or SIGTERM is passed on to the child once; after 10 seconds, and after every end of the child,
    whatever is left of it is ended and removed. `note` says until then what belongs to it.

    Raises:
        KeyboardInterrupt: after everything has ended, if this process was interrupted or told to terminate.
    """
    adopt_orphans()
    log.parent.mkdir(parents=True, exist_ok=True)
    base = tempfile.gettempdir() if len(tempfile.gettempdir()) <= LONGEST_TEMP else "/tmp"
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    child, code, launch = None, None, None
    with Interruptible(thrown=False) as block:
        try:
            token, temp = uuid.uuid4().hex, tempfile.mkdtemp(prefix=TEMP, dir=base)
            kernels = {"TORCHINDUCTOR_CACHE_DIR": f"{cache}/torchinductor"}  # compiled kernels outlive the launch
            ray = {"RAY_TMPDIR": temp} if loopback.cluster(nodes=1) is None else {}  # a named cluster has its own
            launch = Launch(token, temp, log=str(log), folder=identity(note.parent))
            (Path(temp) / TOKEN_FILE).write_text(token)
            launch.write(note)  # before the child exists: its environment shows the token from the beginning
            with log.open("ab") as output:
                child = subprocess.Popen(
                    command,
                    stdout=output,
                    stderr=output,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                    preexec_fn=_in_child,
                    env={**kernels, **os.environ, **ray, TOKEN: token, "TMPDIR": temp},
                )
            launch = replace(launch, pid=child.pid, created=psutil.Process(child.pid).create_time())
            launch.write(note)
            while code is None and not block.signalled:
                try:
                    code = child.wait(timeout=1.0)
                except subprocess.TimeoutExpired:
                    try:
                        block.thrown = True  # it may wait for a terminal that takes nothing more
                        watch()
                    finally:
                        block.thrown = False
        finally:
            if child is not None and code is None:
                child.send_signal(signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    child.wait(timeout=10.0)
            end_descendants(at_once=code == 0)
            if launch is not None:
                noted = Launch.read_or_none(note)  # the child adds the cluster that it has joined
                clear(noted or launch, note.parent, keep_logs=code not in (0, None))
                note.unlink(missing_ok=True)
    assert code is not None
    return code


def note_cluster(run: Path, address: str) -> None:
    """Note that the launch which this process is of joins a cluster."""
    launch = Launch.read_or_none(run / NOTE)
    if launch is not None and launch.token == os.environ.get(TOKEN):
        replace(launch, cluster=address).write(run / NOTE)


def clear(launch: Launch, run: Path, keep_logs: bool = True) -> list[str]:
    """End the processes of a launch and remove its files, on the other nodes of its cluster too.

    Args:
        keep_logs: copy Ray's logs beside the launch's own before they are removed.

    Returns:
        What was found; empty when there was nothing.
    """
    found = _clear_nodes(launch, launch.cluster) if launch.cluster else []
    found, temp = found + end(living(launch, run)), _own_temp(launch)
    if temp is not None and keep_logs and (sessions := sorted(temp.glob("**/session_2*/logs"))):
        with suppress(OSError):  # they may be what filled the disk
            kept = (run / "logs" / Path(launch.log).name).with_suffix(".ray")
            shutil.copytree(sessions[-1], kept, symlinks=True, copy_function=_copy_masked, dirs_exist_ok=True)
    return found + _clear_files(temp)


def _copy_masked(log: str, copy: str) -> None:
    Path(copy).write_text(masked_text(Path(log).read_text(errors="replace")))


def _own_temp(launch: Mark) -> Path | None:
    """The launch's temporary folder; None for a folder that does not hold its token."""
    temp = Path(launch.temp)
    with suppress(OSError, UnicodeDecodeError):
        ours = temp.name.startswith(TEMP) and not temp.is_symlink() and temp.stat().st_uid == os.getuid()
        if ours and (temp / TOKEN_FILE).read_text() == launch.token:
            return temp
    return None


def living(launch: Mark, run: Path) -> list[psutil.Process]:
    """Living processes of the launch: those with its token, and those of its session that write into its folders.

    Ray's workers write their titles over their environment, so that the token cannot be read there.
    """
    mark, found = f"{TOKEN}={launch.token}".encode(), []
    folders = f"{run.resolve()}/", f"{(_own_temp(launch) or run).resolve()}/"
    session = launch.pid
    with suppress(psutil.NoSuchProcess):
        if session and psutil.pid_exists(session) and psutil.Process(session).create_time() - launch.created > 1.0:
            session = None  # the number of a later process
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.pid in (os.getpid(), 1) or process.status() == psutil.STATUS_ZOMBIE:
                continue
            marked = mark in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
            of_session = os.getsid(process.pid) == session
            if marked or (of_session and any(file.path.startswith(folders) for file in process.open_files())):
                found.append(process)
    return found


def end(processes: list[psutil.Process]) -> list[str]:
    """End the processes: SIGTERM, and after 5 seconds SIGKILL. Returns a line on those that still lived."""
    names = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            names.append(process.name())
            process.terminate()
    _, alive = psutil.wait_procs(processes, timeout=5.0)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=5.0)
    return [f"{len(names)} processes ({', '.join(sorted(set(names)))})"] if names else []


def end_descendants(at_once: bool = False) -> None:
    """End everything that descends from this process; `at_once` without a word, where nothing is left for it to do."""
    left = psutil.Process().children(recursive=True)
    for process in left if at_once else ():
        with suppress(psutil.NoSuchProcess):
            process.kill()
    end(left)


def _clear_files(temp: Path | None) -> list[str]:
    """Remove what a launch whose processes have ended has left in shared memory and in temporary files."""
    found = []
    if temp is not None:
        if removed := _clear_shared_memory((temp / TOKEN_FILE).stat().st_ctime):
            found.append(f"{removed} files in shared memory")
        found.append(f"temporary files in {temp}")
        shutil.rmtree(temp, ignore_errors=True)
    sockets = [*Path("/tmp").glob("rl-colocate-zmq-*.sock")]  # verl's, whose path is fixed
    with suppress(OSError):
        listening = Path("/proc/net/unix").read_text()
        for path in sockets:
            with suppress(FileNotFoundError):  # another start has cleared it
                if path.lstat().st_uid == os.getuid() and str(path) not in listening:
                    path.unlink()
    return found


def _clear_shared_memory(since: float) -> int:
    """Remove files of ours, as new as the launch and with such a name, that no process maps. Returns how many."""
    unused = set()
    for path in Path("/dev/shm").glob("*"):
        with suppress(FileNotFoundError):
            state = path.lstat()
            if path.name.startswith(SHARED_MEMORY) and state.st_uid == os.getuid() and state.st_ctime >= since:
                unused.add(path)
    for maps in Path("/proc").glob("[0-9]*/maps") if unused else ():
        with suppress(OSError):
            unused -= {Path(line.split()[-1]) for line in maps.read_text().splitlines() if "/dev/shm" in line}
    for path in unused:
        path.unlink(missing_ok=True)
    return len(unused)


def _clear_nodes(launch: Launch, address: str) -> list[str]:
    """Ask each node of the cluster to clear what the launch has left there: Ray ends its own workers only."""
    asked = {"token": launch.token, "temp": launch.temp}
    try:
        answer = ask(address, f"{__name__}:clear_here", asked, {"TMPDIR": str(Path(launch.temp).parent)})
    except ClusterError as error:
        return [f"nothing on other nodes: {error}"]
    return [f"{node.fault or ', '.join(node.answer)} on {node}" for node in answer.nodes if node.fault or node.answer]


def clear_here(asked: dict[str, Any], node: str, nodes: list[str]) -> list[str]:
    """End what is left of a launch on this node, and remove its files. Returns what was found.

    Runs on each node, with the code of this checkout, which was the same there when the launch began.
    """
    launch = Mark(asked["token"], asked["temp"])
    last = time.monotonic() + PATIENCE
    while (left := living(launch, Path(launch.temp))) and time.monotonic() < last:
        time.sleep(0.5)
    return end(left) + _clear_files(_own_temp(launch))
