"""The boundary around code of the user's that training calls: it may raise, exit or hang, and is told of in one line.

A call runs in a thread of its own, because verl's is needed again when the call does not come back. A thread cannot be
ended from outside: one that hangs is left behind and counted, and while there are `MOST_HANGING` no more are started; a
call waits its time limit for one of them to return, because they may be slow and nothing worse. Where the
hanging code lets no other thread run (a regular expression that backtracks for ever), this process ends itself after
`GRACE` seconds more and prints where it stood. In preflight and rescoring the code has a process of its own
(`recipe.user_code.reward_process`), which can be killed at once.
"""

import asyncio
import faulthandler
import sys
from collections.abc import Awaitable, Callable
from threading import Condition, Event, Lock, Thread
from typing import Any

from interaction.words import line_of

MOST_HANGING = 8
"""Calls of this process that run past their limit; with so many no further one is started."""

GRACE = 30.0
"""Seconds after a time limit at which a process ends in which nothing else can run."""


class UserCodeError(RuntimeError):
    """The user's code failed. The message is one line."""


def call(function: Callable[..., Any], seconds: float, /, *args: Any, **kwargs: Any) -> Any:
    """What the function returns. Its own arguments may have any name, `seconds` and `function` too.

    Raises:
        UserCodeError: it raised or exited, has not returned within `seconds`, or was not started in as many because too
            many calls before it run past their limit.
    """
    with _returned:
        if not _returned.wait_for(lambda: len(_left_behind) < MOST_HANGING, seconds):
            raise UserCodeError(
                f"is not called: {len(_left_behind)} calls run past their time limit, and within {seconds:g} s none of "
                "them has returned. If it is slow and does not hang, set a higher reward.timeout"
            )
    outcome: list[tuple[bool, Any]] = []
    done = Event()

    def run() -> None:
        try:
            outcome.append((True, function(*args, **kwargs)))
        except BaseException as error:  # SystemExit too: it would end this thread without a word
            outcome.append((False, error))
        finally:
            done.set()
            with _returned:
                _left_behind.discard(thread)
                _returned.notify_all()

    thread = Thread(target=run, name="user code", daemon=True)
    with _Watched(seconds + GRACE):
        thread.start()
        if not done.wait(seconds):
            with _returned:
                if not done.is_set():
                    _left_behind.add(thread)
            raise UserCodeError(f"has not returned within {seconds:g} s")
    returned, value = outcome[0]
    if returned:
        return value
    raise UserCodeError(f"raised {line_of(value)}") from value


async def call_async(function: Callable[..., Awaitable[Any]], seconds: float, /, *args: Any, **kwargs: Any) -> Any:
    """The same for a coroutine function, which runs in the event loop of its caller and shares it with others."""
    try:
        async with asyncio.timeout(seconds) as limit:
            return await function(*args, **kwargs)
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        if isinstance(error, TimeoutError) and limit.expired():
            raise UserCodeError(f"has not returned within {seconds:g} s") from error
        raise UserCodeError(f"raised {line_of(error)}") from error


_left_behind: set[Thread] = set()
_returned = Condition()
"""Guards the calls left behind, and tells when one of them returns."""
_lock = Lock()
_running = 0


class _Watched:
    """Ends this process when no thread of Python's can run for so many seconds.

    The clock is `faulthandler`'s, which needs no turn of its own; every call sets it anew, and the last one to end
    stops it.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __enter__(self) -> None:
        global _running
        with _lock:
            _running += 1
            if sys.__stderr__ is not None:
                faulthandler.dump_traceback_later(self.seconds, exit=True, file=sys.__stderr__)

    def __exit__(self, *_: object) -> None:
        global _running
        with _lock:
            _running -= 1
            if not _running:
                faulthandler.cancel_dump_traceback_later()
