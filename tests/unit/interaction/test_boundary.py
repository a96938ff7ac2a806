"""Code of the user's that raises, exits, hangs or stops its whole process is told of in one line, and costs little."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest

from interaction import boundary
from interaction.boundary import MOST_HANGING, Hangs, ToolUnavailable, UserCodeError, call, call_async, raised, waited
from interaction.call import Call

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


def test_code_that_lets_nothing_else_run_or_hangs_often_ends_its_process_unless_it_waits():
    work = "def work():\n    return re.match('(a|a)*$', 'a' * 60 + 'b')\n"
    often = "for _ in range(9):\n    try: boundary.call(time.sleep, 0.2, 3600)\n    except boundary.Hangs: pass\n"
    forks = "boundary.call(int, 0.5)\nif os.fork(): sys.exit(os.wait()[1] >> 8)\n"
    waits = "boundary.PAUSES, boundary.MOST_WAITING = (0,) * 9, 4\n"
    for what in ("asyncio.to_thread(time.sleep, 99)", "time.sleep(99)"):  # neither ends the process, or keeps it
        waits += f"try: boundary.patiently(lambda: boundary.waited(lambda: {what}, 0.05))\n"
        waits += "except boundary.ToolUnavailable as error: print(error, file=sys.stderr)\n"
    for code, status, said in (
        (f"{work}boundary.call(work, 0.5)\n", 1, "in work"),
        (f"{work}{forks}boundary.call(work, 0.5)\n", 1, "in work"),
        (often, 1, "calls of a user's code hang"),
        (waits, 0, "4 calls of a user's code hang"),
    ):
        script = f"import asyncio, os, re, sys, time\nfrom interaction import boundary\nboundary.GRACE = 4\n{code}"
        began = time.monotonic()
        done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert done.returncode == status and time.monotonic() - began < 30 and said in done.stderr, code


COROUTINES = {
    "await asyncio.Event().wait()": [3, ToolUnavailable, "has not returned within 0.1 s"],
    "while True:\n  with suppress(asyncio.CancelledError): await asyncio.sleep(9)": [3, ToolUnavailable],
    "await asyncio.to_thread(time.sleep, 3)": [3, ToolUnavailable],
    "while True: pass": [1, ToolUnavailable, "never yields, so that the event loop was stopped"],
    "asyncio.current_task().cancel(); await asyncio.sleep(0)": [1, UserCodeError, "CancelledError"],
    "sys.exit(3)": [1, UserCodeError, "SystemExit: 3"],
    "asyncio.get_running_loop().call_soon(sys.exit); await asyncio.sleep(.01)": [1],
    "asyncio.get_running_loop().stop(); await asyncio.sleep(.01)": [1],
    "os.fork()": [1],
}
"""What a coroutine does, late after 0.1 s where the tool is unavailable: how often it is tried, how that ends."""


def tried(work):
    """How often work is tried, and what it raises or returns."""
    tries = []
    try:
        value = boundary.patiently(lambda: tries.append(1) or work())
    except Exception as error:
        return [len(tries), type(error), str(error)]
    return [len(tries), value]


def test_a_service_of_a_class_by_hand_is_asked_again_but_not_for_what_is_done_once(monkeypatch):
    monkeypatch.setattr(boundary, "PAUSES", (0, 0))
    for name, times in (("look", 3), ("pay", 1)):
        desk = Mock(ONCE=("pay",), UNAVAILABLE=(ConnectionError,), **{"call.side_effect": ConnectionError})
        with pytest.raises(ToolUnavailable, match=name):
            boundary.Limited(desk, 5, waits=True).call(Call(name, {}))
        assert desk.call.call_count == times


@pytest.mark.filterwarnings("ignore:coroutine")
def test_a_hostile_coroutine_costs_none_beside_it_its_call(monkeypatch):
    monkeypatch.setattr(boundary, "_late", {})
    monkeypatch.setattr(boundary, "PAUSES", (0.01, 0.01))
    monkeypatch.setattr(boundary, "ANSWER_SECONDS", 0.2)
    with ThreadPoolExecutor() as pool:
        for code, end in COROUTINES.items():
            exec(f"async def hostile():\n {code}", globals())
            beside = [pool.submit(tried, partial(waited, lambda: asyncio.sleep(0.2, 1), 5)) for _ in range(4)]
            found = tried(partial(waited, globals()["hostile"], 0.1 if ToolUnavailable in end else 5))
            assert found[: len(end)] == end, code
            assert [one.result(5)[-1] for one in beside] == [1] * 4, code
    with suppress(ChildProcessError):
        assert call(os.waitpid, 5, -1, 0)[1] == 0, "the copy of this process has ended"
