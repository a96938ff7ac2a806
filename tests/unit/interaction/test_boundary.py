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

import pytest

from interaction import boundary
from interaction.boundary import MOST_HANGING, Hangs, ToolUnavailable, UserCodeError, call, call_async, raised, waited

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


async def never():
    while True:
        pass


async def swallows():
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


async def cancels():
    asyncio.current_task().cancel()
    await asyncio.sleep(0)


async def exits():
    sys.exit(3)


async def begins_what_exits():
    task = asyncio.create_task(exits())
    await asyncio.sleep(0.01)
    return str(task.done())


async def stops():
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.01)
    return "on"


async def hangs_apart():
    await asyncio.to_thread(time.sleep, 3)


async def forks():
    return "parent" if os.fork() else "child"


async def runs():
    asyncio.run(cancels())


def how_often(work, **kwargs):
    """How often patience tries, and what it ends with."""
    tries = []
    try:
        return len(tries), boundary.patiently(lambda: tries.append(1) or work(), **kwargs)
    except Exception as error:
        return len(tries), type(error), str(error)


@pytest.mark.filterwarnings("ignore:coroutine")
def test_a_hostile_coroutine_costs_none_beside_it_its_call(monkeypatch):
    monkeypatch.setattr(boundary, "_late", {})
    monkeypatch.setattr(boundary, "PAUSES", (0.01, 0.01))
    monkeypatch.setattr(boundary, "ANSWER_SECONDS", 0.2)
    healthy, done = partial(waited, lambda: asyncio.sleep(0.2, 1), 5), []
    with ThreadPoolExecutor() as pool:
        for code, seconds, *end in (
            (asyncio.Event().wait, 0.1, 3, ToolUnavailable, "has not returned within 0.1 s"),
            (swallows, 0.1, 3, ToolUnavailable, "has not returned within 0.1 s"),
            (hangs_apart, 0.1, 3, ToolUnavailable, "has not returned within 0.1 s"),
            (never, 0.1, 1, ToolUnavailable, "never yields, so that the event loop was stopped"),
            (cancels, 5, 1, UserCodeError, "CancelledError"),
            (exits, 5, 1, UserCodeError, "SystemExit: 3"),
            (runs, 5, 1, RuntimeError, "asyncio.run() cannot be called from a running event loop"),
            (begins_what_exits, 5, "True"),
            (stops, 5, "on"),
            (forks, 5, "parent"),
        ):
            siblings = [pool.submit(how_often, healthy) for _ in range(4)]
            found = how_often(partial(waited, code, seconds))
            assert [*found][-len(end) :] == end, code
            done += [sibling.result(5)[-1] for sibling in siblings]
    assert done == [1] * 40
    with suppress(ChildProcessError):
        assert os.waitpid(-1, 0)[1] == 0, "the copy of this process has ended"


def test_a_service_is_asked_again_but_for_what_must_not_be_repeated(monkeypatch):
    monkeypatch.setattr(boundary, "PAUSES", (0, 0))

    def fails(error):
        raise error

    down, lost = partial(fails, ToolUnavailable("down")), partial(fails, KeyError("lost"))
    assert how_often(down)[:2] == (3, ToolUnavailable) and how_often(down, once=True)[:2] == (1, ToolUnavailable)
    assert how_often(lost, kinds=(KeyError,))[:2] == (3, ToolUnavailable) and how_often(lost)[:2] == (1, KeyError)


def test_a_thread_that_a_coroutine_leaves_behind_keeps_no_process_from_its_end():
    code = "with suppress(boundary.Hangs): boundary.waited(lambda: asyncio.to_thread(time.sleep, 60), 0.1)"
    script = f"import asyncio, time\nfrom contextlib import suppress\nfrom interaction import boundary\n{code}"
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, timeout=30).returncode == 0
