"""Run a child so that nothing of it outlives us: Ray and vLLM start many processes, and some survive their parent.

On Linux a process can declare itself the reaper of its descendants: orphans then become its own children, instead of
init's, and can be found and ended whatever they call themselves. Elsewhere only the child's own tree is ended.
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def end_with_parent() -> None:
    """Have this process terminated when its parent ends, however that ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _in_child() -> None:
    end_with_parent()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a script started with & would hand down "ignore"


def end_descendants(grace: float = 5.0) -> int:
    """End everything that descends from this process: SIGTERM, after `grace` seconds SIGKILL. Returns how many."""
    left = psutil.Process().children(recursive=True)
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _, alive = psutil.wait_procs(left, timeout=grace)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=grace)
    return len(left)


def run(command: list[str], log: Path, watch: Callable[[], None], grace: float = 20.0) -> int:
    """Run `command` with its output in `log`, calling `watch` once a second; returns its exit status.

    An interrupt or SIGTERM is passed on to the child once; after `grace` seconds, and after every end of the child,
    whatever is left of it is ended.

    Raises:
        KeyboardInterrupt: after everything has ended, if this process was interrupted or told to terminate.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    log.parent.mkdir(parents=True, exist_ok=True)
    child = None
    try:
        with log.open("ab") as output:
            child = subprocess.Popen(
                command,
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=_in_child,
            )
        while True:
            try:
                return child.wait(timeout=1.0)
            except subprocess.TimeoutExpired:
                watch()
    except KeyboardInterrupt:
        for number in before:  # a second Ctrl-C must not stop the cleaning up
            signal.signal(number, signal.SIG_IGN)
        if child is not None:
            try:
                os.kill(child.pid, signal.SIGINT)
                child.wait(timeout=grace)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                pass
        raise
    finally:
        end_descendants()
        for number, handler in before.items():
            signal.signal(number, handler)
