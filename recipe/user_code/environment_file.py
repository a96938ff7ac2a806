"""A user's environment, tried in a process of its own before anything starts: it may raise, exit or hang there.

    python -m recipe.user_code.environment_file DESCRIPTOR NAME FILE

plays gold, an answer at once and calls that nothing knows on a few tasks, and writes into the descriptor what is wrong,
or nothing. What the environment prints goes nowhere.
"""

import signal
import sys
from itertools import islice
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from subprocess import DEVNULL

from interaction import get_protocol
from interaction.contract import called
from interaction.environment import READERS, Task, load_tasks, read_options, register
from interaction.gold import check_task, play_gold
from recipe.user_code import child

SECONDS = 60.0
"""For all of it."""

TRIED = 4
"""Tasks that are played."""

LONGEST = 2_000
"""Characters of what is wrong, which may be a whole list."""


class EnvironmentFault(ValueError):
    """An environment that cannot be played. The message says what to change."""


def check_file(name: str, path: str, seconds: float = SECONDS) -> None:
    """Try an environment.

    Raises:
        EnvironmentFault: it cannot be played, or not within `seconds`.
    """
    ours, theirs = Pipe(duplex=False)
    with ours:
        with theirs:
            process = child.start(__name__, theirs.fileno(), name, path, stdout=DEVNULL, stderr=DEVNULL)
        try:
            late = f"a few tasks were not played within {seconds:g} s; expected milliseconds each"
            why = ours.recv_bytes().decode() if ours.poll(seconds) else late
        except EOFError:
            why = f"the environment {child.ending(process) or 'closed its connection'}"
        finally:
            child.end(process)
    if why:
        document = "your_data" if Path(path).suffix in READERS else "your_environment"
        raise EnvironmentFault(f"{why}. docs/{document}.md has what is expected")


def trial(name: str) -> None:
    """Play a few tasks of a registered environment.

    Raises:
        ValueError: something is not as `interaction.environment` says.
    """
    tasks = load_tasks(name)
    settings = read_options(name, {})
    for task in islice(tasks.values(), TRIED):
        check_task(task, settings)
        _play(task)


def _play(task: Task) -> None:
    """A whole conversation with gold."""
    where, protocol = f"task {task.id}: ", get_protocol("think_xml")
    if any(True for _ in task.gold()):
        record = called(f"{where}gold", lambda: play_gold(task, protocol)[1])
        if record.fault or record.outcome is None or not record.outcome.passed:
            how = record.fault or f"it ended with {record.stop_reason}"
            raise EnvironmentFault(f"{where}its gold does not pass: {how}")


def main() -> None:
    """Entry point of the process."""
    descriptor, name, path = sys.argv[1:]
    why = ""
    try:
        register({name: path})
        trial(name)
    except ValueError as error:
        why = " ".join(str(error).split())
    Connection(int(descriptor), readable=False).send_bytes(why[:LONGEST].encode(errors="replace"))
    signal.pause()  # until we are ended, with what the environment has started


if __name__ == "__main__":
    main()
