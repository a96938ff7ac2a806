"""Code of the user's that raises, exits, hangs or stops its whole process is told of in one line, and costs little."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from recipe.user_code import boundary
from recipe.user_code.boundary import MOST_HANGING, UserCodeError, call, call_async

ROOT = Path(__file__).parents[3]


class Rude(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def raises(error):
    def function(*_, **__):
        raise error

    return function


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("two\nlines"), "raised ValueError: two lines"),
        (SystemExit(0), "raised SystemExit: 0"),
        (KeyboardInterrupt(), "raised KeyboardInterrupt"),
        (GeneratorExit(), "raised GeneratorExit"),
        (TimeoutError(), "raised TimeoutError"),
        (TimeoutError("mine"), "raised TimeoutError: mine"),
        (RecursionError("deep"), "raised RecursionError: deep"),
        (MemoryError(), "raised MemoryError"),
        (Rude(), "raised Rude: \\(its text cannot be had\\)"),
        (ValueError("x" * 10**6), "raised ValueError: x{300}\\.\\.\\. at test_boundary.py:[0-9]+$"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_whatever_is_raised_becomes_one_line(error, said):
    with pytest.raises(UserCodeError, match=said):
        call(raises(error), 5)

    async def waits():
        raise error

    with pytest.raises(UserCodeError, match=said):
        asyncio.run(call_async(waits, 5))


COST = """
import time
from recipe.user_code.boundary import call

costs = []
for _ in range(10):
    began = time.process_time()  # of this process alone, whatever else the machine does
    for _ in range(50):
        call(int, 5)
    costs.append((time.process_time() - began) / 50)
print(min(costs))
"""


def test_what_returns_is_given_back_and_costs_less_than_a_millisecond():
    assert call(lambda *args, **kwargs: (args, kwargs), 5, 1, x=2) == ((1,), {"x": 2})
    # in a process of its own: the threads that other tests have left behind in this one take its time too
    said = subprocess.run([sys.executable, "-c", COST], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert float(said) < 1e-3


def test_the_arguments_of_the_code_may_have_any_name():
    assert call(lambda **kwargs: kwargs, 5, seconds=1, function=2, args=3) == {"seconds": 1, "function": 2, "args": 3}

    async def echo(**kwargs):
        return kwargs

    assert asyncio.run(call_async(echo, 5, seconds=1, function=2)) == {"seconds": 1, "function": 2}


def test_what_hangs_is_left_behind_and_counted_and_after_some_none_is_started(monkeypatch):
    monkeypatch.setattr(boundary, "_left_behind", set())
    release, called = threading.Event(), []

    def hangs():
        called.append(1)
        release.wait()

    try:
        for _ in range(MOST_HANGING):
            with pytest.raises(UserCodeError, match="has not returned within 0.01 s"):
                call(hangs, 0.01)
        with pytest.raises(UserCodeError, match=f"is not called: {MOST_HANGING} calls run past .*reward.timeout"):
            call(hangs, 0.01)
        assert len(called) == MOST_HANGING
    finally:
        release.set()
    assert call(int, 10) == 0, "what came back after all is not counted"


def test_a_call_waits_for_slow_ones_before_it_and_is_made(monkeypatch):
    monkeypatch.setattr(boundary, "_left_behind", set())
    release = threading.Event()
    try:
        for _ in range(MOST_HANGING):
            with pytest.raises(UserCodeError, match="has not returned"):
                call(release.wait, 0.01)
        threading.Timer(0.2, release.set).start()
        assert call(int, 30) == 0
    finally:
        release.set()


def test_a_coroutine_that_never_ends_is_cancelled():
    with pytest.raises(UserCodeError, match="has not returned within 0.01 s"):
        asyncio.run(call_async(asyncio.Event().wait, 0.01))


def test_a_cancelled_caller_is_no_failure_of_the_code():
    async def run():
        task = asyncio.create_task(call_async(asyncio.Event().wait, 5))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())


def test_code_that_lets_nothing_else_run_ends_its_process_and_shows_where_it_stood():
    script = (
        "import re\nfrom recipe.user_code import boundary\nboundary.GRACE = 0.5\n"
        "def my_reward():\n    return re.match('(a|a)*$', 'a' * 60 + 'b')\n"
        "boundary.call(my_reward, 0.5)\n"
    )
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, env=os.environ)
    assert done.returncode == 1 and "in my_reward" in done.stderr
    assert time.monotonic() - began < 30
