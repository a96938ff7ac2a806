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


def raises(error):
    def function(*_, **__):
        raise error

    return function


def test_whatever_is_raised_is_an_exception_and_one_line():
    for error, said in (
        (ValueError("two\nlines"), "ValueError: two lines"),
        (SystemExit(0), "SystemExit: 0"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (GeneratorExit(), "GeneratorExit"),
        (TimeoutError("mine"), "TimeoutError: mine"),
        (RecursionError("deep"), "RecursionError: deep"),
        (Rude(), "Rude: (its text cannot be had)"),
        (ValueError("x" * 10**6), f"ValueError: {'x' * 300}..."),
    ):

        async def waits(error=error):
            raise error

        for code in (lambda error=error: call(raises(error), 5), lambda waits=waits: asyncio.run(call_async(waits, 5))):
            with pytest.raises(type(error) if isinstance(error, Exception) else UserCodeError) as found:
                code()
            assert raised(found.value) == said


def test_what_is_late_is_left_behind_and_a_call_waits_for_some_to_return(monkeypatch):
    monkeypatch.setattr(boundary, "_late", [])
    release = threading.Event()
    try:
        for _ in range(MOST_HANGING):
            with pytest.raises(Hangs, match="has not returned within 0.01 s"):
                call(release.wait, 0.01)
        threading.Timer(0.2, release.set).start()
        assert call(int, 30) == 0
    finally:
        release.set()


def test_what_loops_for_ever_is_ended(monkeypatch):
    monkeypatch.setattr(boundary, "_late", late := [])

    def loops():
        while True:
            pass

    with pytest.raises(Hangs):
        call(loops, 0.1)
    late[0].join(30)
    assert not late[0].is_alive()


def test_a_coroutine_that_never_ends_is_cancelled_and_a_cancelled_caller_is_no_failure_of_it():
    with pytest.raises(Hangs, match="has not returned within 0.01 s"):
        asyncio.run(call_async(asyncio.Event().wait, 0.01))

    async def run():
        task = asyncio.create_task(call_async(asyncio.Event().wait, 5))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())


def ended(code):
    """What a process says that calls the user's code `work`; it ends with status 1."""
    script = f"import os, re, sys, time\nfrom interaction import boundary\nboundary.GRACE = 4\n{code}"
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and time.monotonic() - began < 30
    return done.stderr


def test_code_that_lets_nothing_else_run_ends_its_process_and_shows_where_it_stood():
    work = "def work():\n    return re.match('(a|a)*$', 'a' * 60 + 'b')\n"
    assert "in work" in ended(f"{work}boundary.call(work, 0.5)\n")
    assert "in work" in ended(
        f"{work}boundary.call(int, 0.5)\nif os.fork(): sys.exit(os.wait()[1] >> 8)\nboundary.call(work, 0.5)\n"
    )


def test_a_few_that_hang_end_the_process_with_one_line():
    hang = (
        "for _ in range(9):\n    try: boundary.call(time.sleep, 0.2, 3600)\n    except boundary.Hangs: print('late')\n"
    )
    assert ended(hang).count("\n") == 1
