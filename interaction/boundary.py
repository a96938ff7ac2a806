"""The boundary around a user's code, environments and rewards: it may raise, exit or hang, and ends nothing else.

A call runs in a thread of its own, so that its caller goes on when it does not come back. In that thread SystemExit and
KeyboardInterrupt are the code's own; Ctrl-C reaches the main thread.

A thread cannot be ended from outside. A late one is asked to end (SystemExit is raised at its next line of Python) and
left behind. With `MOST_HANGING` left, a call waits its time limit for one of them to end; then this process ends, or,
with `MOST_WAITING` threads left that wait for a service, that service is unavailable. Where the code lets no other
thread run (a regular expression that backtracks for ever), the process ends `GRACE` seconds after the limit and prints
where it stood.

Of code that waits for a service, coroutines run in one event loop of their own. A late one is cancelled; if the loop
does not answer then, because a coroutine never yields, another takes its place. What ran beside that coroutine is tried
again; it is not, for it would stop the next loop too.
"""

import asyncio
import ctypes
import faulthandler
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from inspect import isawaitable
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from traceback import walk_tb
from typing import Any

from interaction.words import line_of

CALL_SECONDS = 30.0
"""For a call of an environment, where no setting says otherwise."""
LOAD_SECONDS = 300.0
"""For importing an environment and making its tasks."""
MOST_HANGING, MOST_WAITING = 3, 256
"""Late threads of code that computes, and of code that waits."""
GRACE = 30.0
ANSWER_SECONDS = 1.0
"""Within which an event loop answers in which nothing hangs."""
PAUSES = (0.5, 2.0, 8.0)
"""Seconds before a service is asked again."""
MODULE = "user_file_"
"""How the modules begin that users' files are loaded as."""


class UserCodeError(RuntimeError):
    """The user's code raised what is no Exception, such as SystemExit. The message is one line."""


class Hangs(UserCodeError):
    """It has not returned in time."""


class ToolUnavailable(RuntimeError):
    """A service behind the tools does not answer: the episode is played again, and then dropped. It is never scored."""


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


def call(function: Callable[..., Any], seconds: float, /, *args: Any, most: int = MOST_HANGING, **kwargs: Any) -> Any:
    """What the function returns.

    Args:
        most: late threads of such calls, of which the next ends this process, or is refused where code waits.

    Raises:
        Exception: what the function raised.
        UserCodeError: it raised what is no Exception, or has not returned within `seconds` (`Hangs`).
    """
    late = _late.setdefault(most, [])
    _wait_for_room(late, most, seconds)
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
    with _watched_for(seconds):
        try:
            thread.start()
            thread.join(seconds)
            if not found:
                late.append(thread)
                raise Hangs(f"has not returned within {seconds:g} s")
        except BaseException:  # Ctrl-C too
            _end(thread)
            raise
    return _what(*found[0])


def _what(error: BaseException | None, value: Any) -> Any:
    if error is None:
        return value
    if isinstance(error, Exception):
        raise error
    raise UserCodeError(raised(error)) from error


def _end(thread: Thread) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit))


def waited(function: Callable[..., Any], seconds: float, /, *args: Any, **kwargs: Any) -> Any:
    """As `call`, for code that waits: what it returns is awaited within the same time, if it is a coroutine."""
    until = time.monotonic() + seconds
    value = call(function, seconds, *args, most=MOST_WAITING, **kwargs)
    return awaited(value, max(until - time.monotonic(), 0.0), seconds) if isawaitable(value) else value


def awaited(coroutine: Awaitable[Any], left: float, seconds: float) -> Any:
    """What a coroutine returns, which runs in the event loop of all such. Raises as `call` does.

    Raises:
        ToolUnavailable: another coroutine has stopped that loop.
    """
    found: SimpleQueue[_Found] = SimpleQueue()
    with _watched_for(seconds):
        host = _host(found)
        host.soon(host.begin, coroutine, found)
        try:
            error, value = found.get(timeout=left)
        except Empty:
            late = Hangs(f"has not returned within {seconds:g} s")
            error, value = late if host.answers() else host.why(found), None
        finally:  # after Ctrl-C too
            host.soon(host.end, found)
    return _what(error, value)


_Found = tuple[BaseException | None, Any]


class _Stopped(ToolUnavailable):
    """The event loop was stopped because of another coroutine."""


class _NeverYields(Hangs):
    """A coroutine that stopped the event loop, and would stop the next one."""


class _Host:
    """An event loop for users' coroutines, in a thread of its own.

    That thread may be ended at any line of Python, so it holds no lock that others wait for: a `SimpleQueue` has none.
    """

    def __init__(self) -> None:
        self.loop, self.process, self.ended = asyncio.new_event_loop(), os.getpid(), False
        self.loop.set_default_executor(Apart())
        self.running = dict[SimpleQueue[_Found], asyncio.Task[None] | None]()
        self.stuck: SimpleQueue[_Found] | None = None
        self.thread = Thread(target=self._work, name="coroutines of user code", daemon=True)
        self.thread.start()

    def soon(self, function: Callable[..., Any], *args: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(function, *args)

    def begin(self, coroutine: Awaitable[Any], found: SimpleQueue[_Found]) -> None:
        async def work() -> None:
            try:
                found.put((None, await coroutine))
            except BaseException as error:  # SystemExit would stop the loop
                found.put((error, None))
            if os.getpid() != self.process:
                os._exit(0)  # a copy of this process that the code has forked

        self.running[found] = task = self.loop.create_task(work())
        task.add_done_callback(lambda _: found.put((asyncio.CancelledError(), None)))  # before it has begun

    def end(self, found: SimpleQueue[_Found]) -> None:
        if (task := self.running.pop(found, None)) is not None:
            task.cancel()

    def _work(self) -> None:
        while not self.ended:
            try:
                self.loop.run_forever()  # it returns where a coroutine stops the loop
            except Exception:
                self._give_up()
            except BaseException:  # a task that a coroutine has begun raised SystemExit, or `_give_up` did
                pass
        with suppress(BaseException):
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_complete(asyncio.sleep(0))
            self.loop.close()

    def answers(self) -> bool:
        """Whether the loop still answers; another takes its place if not."""
        there: SimpleQueue[None] = SimpleQueue()
        self.soon(there.put, None)
        try:
            there.get(timeout=ANSWER_SECONDS)
        except Empty:
            self._give_up()
        return not self.ended

    def _give_up(self) -> None:
        global _hosting, stopped_loops
        with _lock:
            if self.ended:
                return
            self.ended, _hosting = True, None if _hosting is self else _hosting
            stopped_loops += 1
            running, task = self.running.copy(), asyncio.current_task(self.loop)
            self.stuck = next((found for found, one in running.items() if one and one is task), None)
            _late.setdefault(MOST_WAITING, []).append(self.thread)
        for found in running:
            found.put((self.why(found), None))
        self.soon(self.loop.stop)
        _end(self.thread)

    def why(self, found: SimpleQueue[_Found]) -> Exception:
        """Why a coroutine's loop was stopped."""
        if self.stuck is found:
            return _NeverYields("never yields, so that the event loop was stopped")
        return _Stopped("a coroutine beside it never yields, so that the event loop was stopped")


class Apart(ThreadPoolExecutor):
    """A thread for each piece of work: those that hang keep no other from beginning, and no process from its end."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = Future[Any]()
        future.set_running_or_notify_cancel()

        def work() -> None:
            try:
                future.set_result(function(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        Thread(target=work, name="user code", daemon=True).start()
        return future


def _host(found: SimpleQueue[_Found]) -> _Host:
    """The event loop that is to find this."""
    global _hosting
    with _lock:
        if _hosting is None or _hosting.process != os.getpid():
            _hosting = _Host()
        _hosting.running[found] = None
        return _hosting


def patiently(work: Callable[[], Any], kinds: tuple[type[Exception], ...] = (), once: bool = False) -> Any:
    """What work with a service gives, which is tried again after `PAUSES` where the service fails.

    Args:
        kinds: what is raised then, beside `ToolUnavailable` and `Hangs`.
        once: not to try it again.

    Raises:
        ToolUnavailable: the service does not answer.
    """
    failures: tuple[type[Exception], ...] = (ToolUnavailable, Hangs, *kinds)
    pauses = [*PAUSES]
    while True:
        try:
            return work()
        except failures as error:
            if once or not pauses or isinstance(error, _NeverYields):
                raise ToolUnavailable(str(error) if isinstance(error, ToolUnavailable) else raised(error)) from error
            pause = pauses[0] if isinstance(error, _Stopped) else pauses.pop(0)
        time.sleep(pause)


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
    """An object of the user's: whatever it is asked for is a call with a limit, and is named where it fails.

    One that waits is asked again where its service fails, but for `close`, and methods and functions in its `ONCE`.
    """

    def __init__(self, of: Any, seconds: float, waits: bool = False) -> None:
        self._of, self._seconds, self._waits = of, seconds, waits

    def __getattr__(self, name: str) -> Any:
        if name == "over":  # an attribute, or a property
            return self._call(name, lambda: self._of.over)

        def method(*args: Any, **kwargs: Any) -> Any:
            function = args[0].name if name == "call" else ""
            once = {name, function} & {"close", *getattr(self._of, "ONCE", ())}
            shown = f"{function!r}"[:80] if function else ""
            return self._call(f"{name}({shown})", lambda: getattr(self._of, name)(*args, **kwargs), bool(once))

        return method

    def _call(self, name: str, function: Callable[[], Any], once: bool = False) -> Any:
        try:
            if self._waits:
                kinds = getattr(self._of, "UNAVAILABLE", ())
                return patiently(lambda: waited(function, self._seconds), kinds, once)
            value = call(function, self._seconds)
        except ToolUnavailable as error:  # or a class of the user's that is one
            raise ToolUnavailable(f"{name}: {error}") from error
        except UserCodeError as error:
            raise type(error)(f"{name}: {error}") from error
        if hasattr(type(value), "__await__"):
            raise UserCodeError(
                f"{name}: {getattr(value, '__qualname__', value)} is async; its class needs WAITS = True"
            )
        return value


_late: dict[int, list[Thread]] = {}
_hosting: _Host | None = None
stopped_loops = 0
"""So many event loops were stopped; objects that began in one, such as an HTTP session, may work in no other."""
_running: list[float] = []  # limits
_watched = 0.0  # the longest of them, when `_put_off` was called last
_lock = Lock()


def _forked() -> None:
    global _watched, _lock, _hosting
    _running.clear()
    _watched, _lock, _hosting = 0.0, Lock(), None


os.register_at_fork(before=faulthandler.cancel_dump_traceback_later, after_in_child=_forked)


@contextmanager
def _watched_for(seconds: float) -> Iterator[None]:
    """While code runs, this process ends if nothing else runs for longer."""
    _running.append(seconds)
    try:
        before = _watched
        if max(_running) > before:
            _put_off()
        if not before:
            Thread(target=_watch, name="watch of user code", daemon=True).start()
        yield
    finally:
        _running.remove(seconds)


def _wait_for_room(late: list[Thread], most: int, seconds: float) -> None:
    end = time.monotonic() + seconds
    while len(late) >= most:
        late[:] = [thread for thread in late if thread.is_alive()]
        if time.monotonic() > end:
            line = f"{len(late)} calls of a user's code hang: none has returned within {seconds:g} s more. "
            if late is not _late.get(MOST_HANGING):
                raise ToolUnavailable(line)
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
