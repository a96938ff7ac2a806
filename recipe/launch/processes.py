"""Run a child so that nothing of it outlives us: Ray and vLLM start many processes, and some survive their parent.

On Linux a process can declare itself the reaper of its descendants: orphans then become its own children, instead of
init's, and can be found and ended whatever they call themselves. Elsewhere only the child's own tree is ended. What is
left when this process itself is killed outright, `recipe.launch.remains` finds at the next start.
"""

import ctypes
import errno
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
from dataclasses import replace
from pathlib import Path

import psutil

from recipe import loopback
from recipe.launch import nodes, remains

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

LOCK = ".lock"
"""In a run's folder: locked by the start that trains into it, and names its process."""

IN_USE = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES)
"""What taking a lock ends with where another process has it; anything else is the file system's fault."""

LONGEST_TEMP = 24
"""Characters of the folder that temporary files may be in: a socket's path has 107 at most, and Ray adds 70."""


AGAIN = 2.0
"""Seconds after which an interrupt is thrown again where the first one got lost."""


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def end_with_parent() -> None:
    """Have this process terminated when its parent ends, however that ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def adopt_orphans() -> None:
    """Make this process the reaper of its descendants, so that `end_descendants` finds those whose parent has ended."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


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


def end_descendants() -> int:
    """End everything that descends from this process. Returns how many there were."""
    left = psutil.Process().children(recursive=True)
    remains.end(left)
    return len(left)


@contextmanager
def alone(run: Path) -> Iterator[Path]:
    """Make sure that nobody else trains into the run's folder, and clear what a killed start has left of itself.

    Yields:
        Where `run` notes its launch.

    Raises:
        SystemExit: another start is at work in this run, or the file system cannot tell.
    """
    run.mkdir(parents=True, exist_ok=True)
    launch = run / nodes.NOTE
    with (run / LOCK).open("a+", errors="replace") as lock, Interruptible():
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # ends with this process, however that ends
        except OSError as error:
            if error.errno not in IN_USE:
                sys.exit(
                    f"{run} is on a file system that cannot lock files ({error.strerror}), so that two starts could "
                    "train into it at once. Set paths.run to a folder on another one, or mount this one with locks."
                )
            lock.seek(0)
            owner = lock.read(20).strip() or "unknown"
            sys.exit(
                f"{run} is in use: process {owner} trains into it. Wait for it or end it, or set RUN=another-name."
            )
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        if reason := remains.foreign(launch):
            print(f"{reason}; the note is ignored, nothing was ended or removed", flush=True)
        if found := nodes.clear(launch):
            print(f"the last start was killed; cleared {', '.join(found)}", flush=True)
        yield launch


def _environment(token: str, temp: str) -> dict[str, str]:
    """The child's: the token, and one folder for what Ray, vLLM and verl would strew over /tmp."""
    own = {remains.TOKEN: token, "TMPDIR": temp}
    # torch keeps compiled kernels under TMPDIR; they outlive the launch, where no other user can put theirs
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    own["TORCHINDUCTOR_CACHE_DIR"] = os.environ.get("TORCHINDUCTOR_CACHE_DIR", f"{cache}/torchinductor")
    if loopback.cluster(nodes=1) is None:
        own["RAY_TMPDIR"] = temp  # but a cluster that the user has named is looked for where he started it
    return {**os.environ, **own}


def run(command: list[str], log: Path, watch: Callable[[], None], note: Path, grace: float = 10.0) -> int:
    """Run `command` with its output in `log`, calling `watch` once a second; returns its exit status.

    An interrupt or SIGTERM is passed on to the child once; after `grace` seconds, and after every end of the child,
    whatever is left of it is ended and removed. `note` says until then what belongs to it.

    Raises:
        KeyboardInterrupt: after everything has ended, if this process was interrupted or told to terminate.
    """
    adopt_orphans()
    log.parent.mkdir(parents=True, exist_ok=True)
    base = tempfile.gettempdir() if len(tempfile.gettempdir()) <= LONGEST_TEMP else "/tmp"
    child, code, launch = None, None, None
    with Interruptible(thrown=False) as block:
        try:
            token = uuid.uuid4().hex
            run_folder = remains.Folder.of(note.parent)
            launch = remains.Launch(token, time.time(), remains.make_temp(token, base), str(log), run=run_folder)
            remains.note(note, launch)  # before the child exists: its environment shows the token from the beginning
            with log.open("ab") as output:
                child = subprocess.Popen(
                    command,
                    stdout=output,
                    stderr=output,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                    preexec_fn=_in_child,
                    env=_environment(token, launch.temp),
                )
            remains.note(note, replace(launch, pid=child.pid, created=psutil.Process(child.pid).create_time()))
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
                    child.wait(timeout=grace)
            end_descendants()
            nodes.clear(note, keep_logs=code not in (0, None))
            if launch is not None:  # where the note could not be written, nobody else knows of it
                shutil.rmtree(launch.temp, ignore_errors=True)
    assert code is not None
    return code
