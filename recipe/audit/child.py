"""A process of its own for code of the user's, which can be ended at once with everything that it has started."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any

import psutil

from recipe.launch.processes import adopt_orphans, end_with_parent

PATIENCE = 2.0
"""Seconds for a process to end that has closed its connection."""


def start(module: str, descriptor: int, *arguments: str, **streams: Any) -> subprocess.Popen[bytes]:
    """Run a module with the number of a descriptor, which it inherits, and arguments. `streams` are those of Popen."""
    return subprocess.Popen(
        [sys.executable, "-m", module, str(descriptor), *arguments],
        pass_fds=[descriptor],
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for us; what the user's code has started is ended with it
        preexec_fn=_in_child,
        **streams,
    )


def _in_child() -> None:
    end_with_parent()
    adopt_orphans()


def end(process: subprocess.Popen[bytes]) -> None:
    """End the process and what it has started, in whatever session. Its number is its own until it is waited for."""
    if process.returncode is None:
        started = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for one in started:
            with suppress(psutil.NoSuchProcess):
                one.kill()


def ending(process: subprocess.Popen[bytes]) -> str | None:
    """How a process ended whose connection is closed; None if it goes on without one."""
    with suppress(subprocess.TimeoutExpired):
        status = process.wait(PATIENCE)
        if status < 0:
            return f"was ended by signal {-status} ({signal.Signals(-status).name})"
        return f"ended its process with status {status}"
    return None
