"""Code of the user's that raises, exits, hangs or stops its whole process is told of in one line, and costs little."""

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from interaction import boundary
from interaction.boundary import MOST_HANGING, Hangs, UserCodeError, call, call_async, raised

ROOT = Path(__file__).parents[3]


class Rude(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_whatever_is_raised_is_an_exception_and_one_line():
    for error, said in (
        (ValueError("two\nlines"), "ValueError: two lines"),
        (SystemExit(0), "SystemExit: 0"),
        (GeneratorExit(), "GeneratorExit"),
        (TimeoutError("mine"), "TimeoutError: mine"),
        (Rude(), "Rude: (its text cannot be had)"),
        (ValueError("x" * 10**6), f"ValueError: {'x' * 300}..."),
    ):

        def raises(error=error):
            raise error

        async def waits(error=error):
            raise error

        for code in (lambda raises=raises: call(raises, 5), lambda waits=waits: asyncio.run(call_async(waits, 5))):
            with pytest.raises(type(error) if isinstance(error, Exception) else UserCodeError) as found:
                code()
            assert raised(found.value) == said


def test_what_is_late_is_left_behind_and_a_call_waits_for_some_to_return(monkeypatch):
    monkeypatch.setattr(boundary, "_late", {})
    release = threading.Event()
    try:
        for _ in range(MOST_HANGING):
            with pytest.raises(Hangs, match="has not returned within 0.01 s"):
                call(release.wait, 0.01)
        threading.Timer(0.2, release.set).start()
        assert call(int, 30) == 0
    finally:
        release.set()


async def test_a_coroutine_that_never_ends_is_cancelled_and_a_cancelled_caller_is_no_failure_of_it():
    with pytest.raises(Hangs, match="has not returned within 0.01 s"):
        await call_async(asyncio.Event().wait, 0.01)
    task = asyncio.create_task(call_async(asyncio.Event().wait, 5))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_code_that_lets_nothing_else_run_or_hangs_often_ends_its_process_and_says_so():
    work = "def work():\n    return re.match('(a|a)*$', 'a' * 60 + 'b')\n"
    often = "for _ in range(9):\n    try: boundary.call(time.sleep, 0.2, 3600)\n    except boundary.Hangs: pass\n"
    forks = "boundary.call(int, 0.5)\nif os.fork(): sys.exit(os.wait()[1] >> 8)\n"
    for code, said in (
        (f"{work}boundary.call(work, 0.5)\n", "in work"),
        (f"{work}{forks}boundary.call(work, 0.5)\n", "in work"),
        (often, "calls of a user's code hang"),
    ):
        script = f"import os, re, sys, time\nfrom interaction import boundary\nboundary.GRACE = 4\n{code}"
        began = time.monotonic()
        done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and time.monotonic() - began < 30 and said in done.stderr, code
