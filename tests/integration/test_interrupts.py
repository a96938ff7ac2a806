"""Interrupts a command 500 times at random moments; each time it ends, and everything that it has started.

    pytest -m slow -s tests/integration/test_interrupts.py

The command is a fork of this file with a cheap child, so that 500 of them take three minutes.
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

TIMES, AT_ONCE = 500, 8
SIGNALS = (signal.SIGINT, signal.SIGTERM)
CHILD = "setsid sleep 3000.{number} & exec sleep 3000.{number}"


class Destroyed:
    """Python drops an exception that leaves this destructor."""

    def __del__(self) -> None:
        sum(range(2000))


def command(folder: Path, number: int) -> None:
    """What recipe.train does around a training, with much logging and many destructors."""
    import logging

    from recipe.launch import processes

    log = logging.getLogger("log")
    log.addHandler(logging.FileHandler(folder / "said"))

    def watch() -> None:
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            log.warning("said")
            Destroyed()

    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    with processes.alone(folder) as note:
        watch()
        processes.run(["bash", "-c", CHILD.format(number=number)], folder / "log", watch, note)


def main(root: Path) -> None:
    """Start all, and print for each: signal, seconds until it came, seconds until the end, exit status."""
    from recipe.launch import processes  # noqa: F401  once, before the forks

    chance, running, left = random.Random(0), {}, list(range(TIMES))
    while left or running:
        while left and len(running) < AT_ONCE:
            number = left.pop()
            (folder := root / str(number)).mkdir()
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # in Python's own hooks after a fork they get lost
            if not (pid := os.fork()):
                status = 1
                try:
                    signal.signal(signal.SIGINT, signal.default_int_handler)
                    command(folder, number)
                except KeyboardInterrupt:
                    status = 130
                finally:
                    os._exit(status)
            kind = chance.choice(SIGNALS)
            running[pid] = (kind, time.monotonic() + chance.uniform(0, 4), False)
        time.sleep(0.01)
        for pid, (kind, at, sent) in list(running.items()):
            now = time.monotonic()
            if not sent and now >= at:
                os.kill(pid, kind)
                running[pid] = (kind, now, True)
            elif sent and now > at + 60:
                os.kill(pid, signal.SIGKILL)
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                print(kind.name, f"{now - at:.2f}", os.waitstatus_to_exitcode(status), flush=True)
                del running[pid]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="orphans are found through Linux's subreaper")
def test_no_interrupt_gets_lost_and_nothing_is_left_running(tmp_path: Path):
    done = subprocess.run([sys.executable, __file__, str(tmp_path)], capture_output=True, text=True)
    ends = [line.split() for line in done.stdout.splitlines()]
    seconds = sorted(float(end[1]) for end in ends)
    dropped = done.stderr.count("Exception ignored")
    print(
        f"{len(ends)} interrupts, {dropped} of them dropped by Python; seconds to the end: median {seconds[250]:.2f}, "
        f"99 % {seconds[-5]:.2f}, longest {seconds[-1]:.2f}; statuses {sorted({end[2] for end in ends})}"
    )
    left = [
        process for process in psutil.process_iter(["cmdline"]) if "3000." in " ".join(process.info["cmdline"] or ())
    ]
    assert done.returncode == 0 and len(ends) == TIMES and not left
    # the second is a SIGTERM before the command had begun to listen
    assert {(end[0], end[2]) for end in ends} <= {("SIGINT", "130"), ("SIGTERM", "130"), ("SIGTERM", "-15")}
    assert seconds[-1] < 40


if __name__ == "__main__":
    main(Path(sys.argv[1]))
