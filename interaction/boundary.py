"""The boundary around a user's code, environments and rewards: it may raise, exit or hang, and ends nothing else.

A call runs in a thread of its own, so that its caller goes on when it does not come back. In that thread SystemExit and
KeyboardInterrupt are the code's own; Ctrl-C reaches the main thread.

A thread cannot be ended from outside. A late one is asked to end (SystemExit is raised at its next line of Python) and
left behind. With `MOST_HANGING` left, a call waits its time limit for one of them to end; then this process ends. Where
the code lets no other thread run (a regular expression that backtracks for ever), the process ends `GRACE` seconds
after the limit and prints where it stood.
"""

import asyncio
import ctypes
import faulthandler
import os
import time
from collections.abc import Awaitable, Callable
from threading import Lock, Thread
from traceback import walk_tb
from typing import Any

from interaction.words import line_of

CALL_SECONDS = 30.0
"""For a call of an environment, where no setting says otherwise."""
LOAD_SECONDS = 300.0
"""For importing an environment and making its tasks."""
MOST_HANGING = 3
GRACE = 30.0
MODULE = "user_file_"
"""How the modules begin that users' files are loaded as."""


class UserCodeError(RuntimeError):
    """The user's code raised what is no Exception, such as SystemExit. The message is one line."""


class Hangs(UserCodeError):
    """It has not returned in time."""


def raised(error: BaseException) -> str:
    """An exception in one line, with the last line of a user's file that it came through."""
    if isinstance(error, UserCodeError):
        return str(error)
    places = [
        f" at {frame.f_code.co_filename.rpartition('/')[2]}:{line}"
        for frame, line in walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).startswith(MODULE) and not frame.f_code.co_filename.startswith("<")
    ]
    return line_of(error) + (places[-1] if places else "")


def how(error: BaseException) -> str:
    """The same as the end of a sentence about a call."""
    return str(error) if isinstance(error, Hangs) else f"raises {raised(error)}"


def call(function: Callable[..., Any], seconds: float, /, *args: Any, **kwargs: Any) -> Any:
    """What the function returns.

    Raises:
        Exception: what the function raised.
        UserCodeError: it raised what is no Exception, or has not returned within `seconds` (`Hangs`).
    """
    _wait_for_room(seconds)
    _running.append(seconds)
    before = _watched
    if max(_running) > before:
        _put_off()
    if not before:
        Thread(target=_watch, name="watch of user code", daemon=True).start()
    found: list[tuple[BaseException | None, Any]] = []
    process = os.getpid()

    def work() -> None:
        try:
            found.append((None, function(*args, **kwargs)))
        except BaseException as error:
            found.append((error, None))
        if os.getpid() != process:
            os._exit(0)  # a copy of this process that the code has forked

    thread = Thread(target=work, name="user code", daemon=True)
    try:
        thread.start()
        thread.join(seconds)
        if not found:
            _late.append(thread)
            raise Hangs(f"has not returned within {seconds:g} s")
    except BaseException:  # Ctrl-C too
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit))
        raise
    finally:
        _running.remove(seconds)
    error, value = found[0]
    if error is None:
        return value
    if isinstance(error, Exception):
        raise error
    raise UserCodeError(raised(error)) from error


async def call_async(function: Callable[..., Awaitable[Any]], seconds: float, /, *args: Any, **kwargs: Any) -> Any:
    """The same for a coroutine function, which runs in the event loop of its caller and shares it with others."""
    try:
        async with asyncio.timeout(seconds) as limit:
            return await function(*args, **kwargs)
    except (Exception, asyncio.CancelledError) as error:
        if isinstance(error, TimeoutError) and limit.expired():
            raise Hangs(f"has not returned within {seconds:g} s") from error
        raise
    except BaseException as error:
        raise UserCodeError(raised(error)) from error


class Limited:
    """An object of the user's: whatever it is asked for is a call with a limit, and is named where it fails."""

    def __init__(self, of: Any, seconds: float) -> None:
        self._of, self._seconds = of, seconds

    def __getattr__(self, name: str) -> Any:
        if name == "over":  # an attribute, or a property
            return self._call(name, lambda: self._of.over)

        def method(*args: Any, **kwargs: Any) -> Any:
            function = f"{args[0].name!r}"[:80] if name == "call" else ""
            return self._call(f"{name}({function})", lambda: getattr(self._of, name)(*args, **kwargs))

        return method

    def _call(self, name: str, function: Callable[[], Any]) -> Any:
        try:
            value = call(function, self._seconds)
        except UserCodeError as error:
            raise type(error)(f"{name}: {error}") from error
        if hasattr(type(value), "__await__"):
            raise UserCodeError(f"{name}: {getattr(value, '__qualname__', value)} is async, and nothing awaits it")
        return value


_late: list[Thread] = []
_running: list[float] = []  # limits
_watched = 0.0  # the longest of them, when `_put_off` was called last
_lock = Lock()


def _forked() -> None:
    global _watched, _lock
    _running.clear()
    _watched, _lock = 0.0, Lock()


os.register_at_fork(before=faulthandler.cancel_dump_traceback_later, after_in_child=_forked)


def _wait_for_room(seconds: float) -> None:
    end = time.monotonic() + seconds
    while len(_late) >= MOST_HANGING:
        _late[:] = [thread for thread in _late if thread.is_alive()]
        if time.monotonic() > end:
            line = f"{len(_late)} calls of a user's code hang: none has returned within {seconds:g} s more. "
            os.write(2, f"{line}This process ends; if the code is only slow, raise its time limit\n".encode())
            os._exit(1)
        time.sleep(0.01)


def _watch() -> None:
    while _put_off():
        time.sleep(1)


def _put_off() -> bool:
    """While calls run, put off the end of this process, which comes if nothing else runs; then call it off.

    The clock is that of faulthandler, which needs no turn of Python's.
    """
    global _watched
    with _lock:
        _watched = max(_running, default=0.0)
        if _watched:
            faulthandler.dump_traceback_later(_watched + GRACE, exit=True, file=2)
        else:
            faulthandler.cancel_dump_traceback_later()
        return bool(_watched)
