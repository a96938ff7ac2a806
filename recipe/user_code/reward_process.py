"""A reward in a process of its own, for preflight and rescoring: whatever it does, the caller gets a score or one line.

It may hang with the interpreter's lock held, leave with `os._exit`, crash, change the record it is given or print
without end; nothing of that reaches the caller. Training calls rewards in verl's workers instead
(`recipe.user_code.reward_file`), where they keep what they have loaded for all threads of a worker.

    python -m recipe.user_code.reward_process DESCRIPTOR SOURCE NAME

is that process. Questions come pickled and go back as JSON through the socket of that descriptor.
"""

import asyncio
import inspect
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from threading import Thread
from types import TracebackType
from typing import Any, Self

from recipe.user_code import child, reward_file
from recipe.user_code.raised import file_of, told
from recipe.user_code.reward_arguments import accepted, unnamed
from recipe.user_code.reward_result import RewardError, checked

LOAD_SECONDS = 600.0
"""For importing the reward; a model that it loads there takes its time."""

PATIENCE = 5.0
"""Seconds after which the caller is told what is waited for."""

MOST_PRINTED = 20_000
"""Bytes of what the reward prints that are passed on."""

LONGEST_ANSWER = 2**26
"""Bytes."""


class RewardTimeout(RewardError):
    """It took longer than it may."""


class RewardProcess:
    """To be used with `with`, then called as verl calls a reward. After a failure it answers no more.

    Args:
        source: path of a Python file, or `pkg://package.module`.
        name: function in it.
        seconds: time limit of a call.
        arguments: the user's own, given with every call.
        tell: gets a line when something takes long, when the reward prints too much, and for each argument that may
            be misspelt.
    """

    def __init__(
        self,
        source: str,
        name: str,
        seconds: float,
        arguments: dict[str, Any] | None = None,
        tell: Callable[[str], None] = lambda line: print(line, flush=True),
    ) -> None:
        self.title = f"the reward {name} of {source}"
        self.source, self.name, self.seconds, self.arguments, self.tell = source, name, seconds, arguments or {}, tell
        self.is_async = False
        self.printed = 0
        """Bytes."""

    def __enter__(self) -> Self:
        """Raises RewardFileError: it cannot be loaded, or does not take one of the arguments."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = child.start(
                "recipe.user_code.reward_process",
                theirs.fileno(),
                self.source,
                self.name,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        self._connection = Connection(ours.detach())
        self._reader = Thread(target=self._pass_on, daemon=True)
        self._reader.start()
        try:
            self.is_async, takes = self._answer(LOAD_SECONDS, "to be imported")
        except RewardError as error:
            self.__exit__(None, None, None)
            raise reward_file.RewardFileError(str(error)) from error
        if takes is not None:
            self._check_arguments(*takes)
        return self

    def _check_arguments(self, names: list[str], takes_any: bool) -> None:
        lines = unnamed(self.arguments, names, self.title, takes_any)
        if lines and not takes_any:
            self.__exit__(None, None, None)
            raise reward_file.RewardFileError(f"{'; '.join(lines)}.")
        for line in lines:
            self.tell(f"NOTE {line}.")

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, _: TracebackType | None) -> None:
        self._connection.close()
        child.end(self._process)
        self._reader.join(5)
        if self.printed > MOST_PRINTED:
            self.tell(
                f"NOTE {self.title} printed {self.printed} bytes; the first {MOST_PRINTED} are above. In training all "
                "of it goes into the log."
            )

    def __call__(self, **question: Any) -> float | dict[str, Any]:
        """A score, as `reward_result.checked` gives it.

        Raises:
            RewardError: there is none; one line that names the reward.
        """
        return self._answer(self.seconds, "to return a score", {**question, **self.arguments})

    def _answer(self, seconds: float, what: str, question: dict[str, Any] | None = None) -> Any:
        end = time.monotonic() + seconds
        try:
            if question is not None:
                self._connection.send(question)
            if not self._connection.poll(min(PATIENCE, seconds)):
                self.tell(f"waiting for {self.title} {what}, up to {seconds:g} s")
                if not self._connection.poll(max(0.0, end - time.monotonic())):
                    child.end(self._process)
                    raise RewardTimeout(f"{self.title} took longer than {seconds:g} s {what}")
            answer = json.loads(self._connection.recv_bytes(LONGEST_ANSWER))
        except (EOFError, OSError) as error:
            how = child.ending(self._process)
            unclear = f"closed its connection or answered with more than {LONGEST_ANSWER} bytes"
            raise RewardError(f"{self.title} {how or unclear}") from error
        if "error" in answer:
            raise RewardError(answer["error"])
        return answer["value"]

    def _pass_on(self) -> None:
        """What the reward prints, as far as it is passed on."""
        assert self._process.stdout is not None
        with self._process.stdout as output:
            while part := os.read(output.fileno(), 65_536):
                shown = part[: max(0, MOST_PRINTED - self.printed)].decode("utf-8", "replace")
                self.printed += len(part)
                if shown:
                    print(shown, end="", flush=True)


def _serve(descriptor: int, source: str, name: str) -> None:
    connection = Connection(descriptor)
    title = f"the reward {name} of {source}"
    function: Callable[..., Any]
    file: str | None = None  # of the function, once it is loaded

    def answer(work: Callable[[], Any]) -> bool:
        fault = None
        try:
            text = json.dumps({"value": work()}, default=list)
        except reward_file.RewardFileError as error:
            fault = str(error)
        except RewardError as error:
            fault = f"{title} {error}"
        except BaseException as error:  # SystemExit and KeyboardInterrupt of the user's code too
            fault = f"{title} raised {told(error, file)}"
        with suppress(Exception):  # what was printed goes before the answer; afterwards this process may be killed
            sys.stdout.flush()
        connection.send_bytes((text if fault is None else json.dumps({"error": fault})).encode())
        return fault is None

    def load() -> tuple[bool, Any]:
        nonlocal function, file
        function = reward_file.load(source, name)
        file = file_of(function)
        return inspect.iscoroutinefunction(function), accepted(function)

    if not answer(load):
        return
    with suppress(EOFError, OSError), asyncio.Runner() as runner:
        while True:
            question = connection.recv()
            answer(lambda question=question: checked(_called(runner, function, question)))  # type: ignore[misc]


def _called(runner: asyncio.Runner, function: Callable[..., Any], question: dict[str, Any]) -> Any:
    """All calls in one event loop, as in training: a client that the reward keeps belongs to the loop of its first."""
    result = function(**question)
    return runner.run(result) if inspect.iscoroutine(result) else result


if __name__ == "__main__":
    _serve(int(sys.argv[1]), sys.argv[2], sys.argv[3])
