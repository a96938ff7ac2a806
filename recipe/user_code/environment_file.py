"""A user's environment, tried in a process of its own before anything starts: it may raise, exit or hang there.

    python -m recipe.user_code.environment_file NAME FILE

plays gold, an answer at once and calls that nothing knows on a few tasks, and prints what is wrong, if anything is.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from interaction import Conversation, get_protocol
from interaction.call import Call
from interaction.environment import (
    READERS,
    AskUser,
    GoldMessage,
    Request,
    Task,
    UserWords,
    load_tasks,
    options_of,
    register,
)
from interaction.gold import play_gold
from interaction.outcome import ToolResult, Verdicts
from recipe.user_code.raised import line_of

SECONDS = 60.0
"""For all of it."""

TRIED = 4
"""Tasks that are played."""

METHODS = ("begin", "call", "facts", "answer", "hear", "cut", "verdicts", "close")
FIELDS = ("environment", "id", "category", "cluster", "part")
MARK = "environment: "
LONGEST = 2_000
"""Characters of what is wrong, which may be a whole list."""


class EnvironmentFault(ValueError):
    """An environment that cannot be played. The message says what to change."""


def check_file(name: str, path: str, seconds: float = SECONDS) -> None:
    """Try an environment.

    Raises:
        EnvironmentFault: it cannot be played, or not within `seconds`.
    """
    command = [sys.executable, "-m", "recipe.user_code.environment_file", name, path]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise EnvironmentFault(
            f"a few tasks were not played within {seconds:g} s; expected milliseconds each"
        ) from error
    said = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if done.returncode or not said:
        why = said[-1].removeprefix(MARK) if said else f"its process ended with status {done.returncode}"
        document = "your_data" if Path(path).suffix in READERS else "your_environment"
        raise EnvironmentFault(f"{why}. docs/{document}.md has what is expected")


def trial(name: str) -> None:
    """Play a few tasks of a registered environment.

    Raises:
        EnvironmentFault: something is not as `interaction.environment` says.
        ValueError: its tasks cannot be loaded.
    """
    try:
        tasks = load_tasks(name)
    except SystemExit as error:
        raise EnvironmentFault(f"its file raises {line_of(error)}") from error
    if not tasks:
        raise EnvironmentFault("load_tasks() gives no task")
    for task in tasks.values():
        if lacks := [field for field in FIELDS if not isinstance(getattr(task, field, None), str)]:
            raise EnvironmentFault(f"a task lacks {', '.join(lacks)}, or it is no text")
        if task.environment != name:
            raise EnvironmentFault(f"task {task.id} names the environment {task.environment!r}; expected {name!r}")
        if task.part not in ("train", "choose", "report"):
            raise EnvironmentFault(f"task {task.id} has part {task.part!r}; expected train, choose or report")
    _check_clusters(tasks.values())
    _called("Options", lambda: options_of(name))
    for task in islice(tasks.values(), TRIED):
        _try(task)


def _check_clusters(tasks: Iterable[Task]) -> None:
    sides: dict[str, str] = {}
    for task in tasks:
        if sides.setdefault(task.cluster, task.part) != task.part:
            raise EnvironmentFault(f"cluster {task.cluster!r} has tasks in {sides[task.cluster]} and in {task.part}")


def _try(task: Task) -> None:
    """One task: the types of what it gives, then whole conversations with gold, an answer and a call of nothing."""
    where = f"task {task.id}: "
    environment = _called(f"{where}open()", task.open)
    if lacks := [method for method in METHODS if not callable(getattr(environment, method, None))]:
        raise EnvironmentFault(f"{where}what open() gives has no {', '.join(lacks)}")
    first = _called(f"{where}begin()", environment.begin)
    _expect(f"{where}begin()", first, Request | AskUser)
    if isinstance(first, Request):
        _check_request(f"{where}begin()", first)
    _expect(f"{where}call()", _called(f"{where}call()", lambda: environment.call(Call("nothing", {}))), ToolResult)
    _expect(f"{where}facts()", _called(f"{where}facts()", environment.facts), Mapping)
    _expect(f"{where}verdicts()", _called(f"{where}verdicts()", environment.verdicts), Verdicts)
    for _ in range(2):
        _called(f"{where}close()", environment.close)
    gold = _called(f"{where}gold()", lambda: list(task.gold()))
    for item in gold:
        _expect(f"{where}gold()", item, GoldMessage | UserWords)
    protocol = get_protocol("think_xml")
    if gold:
        _, record = _called(f"{where}gold", lambda: play_gold(task, protocol))
        if record.fault or record.outcome is None or not record.outcome.passed:
            how = record.fault or f"it ended with {record.stop_reason}"
            raise EnvironmentFault(f"{where}its gold does not pass: {how}")
    for text in (protocol.render_answer("t", "done"), protocol.render_calls("t", [Call("nothing", {"x": [1]})])):
        with Conversation(task, protocol, max_steps_per_turn=2) as conversation:
            conversation.begin()
            for _ in range(20):
                if conversation.done or conversation.asks:
                    break
                conversation.reply(text)
            record = conversation.record()
        if record.stop_reason == "environment_error":
            raise EnvironmentFault(f"{where}{record.fault}")
        try:
            json.dumps(record.to_dict(), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise EnvironmentFault(f"{where}its facts or texts are no JSON: {error}") from error


def _check_request(where: str, request: Request) -> None:
    for function in request.functions:
        if not isinstance(function, Mapping) or not {"name", "description", "parameters"} <= function.keys():
            raise EnvironmentFault(f"{where} gives a function without name, description and parameters")


def _expect(where: str, value: Any, kind: Any) -> None:
    if not isinstance(value, kind):
        expected = " or ".join(item.__name__ for item in getattr(kind, "__args__", (kind,)))
        raise EnvironmentFault(f"{where} gives {type(value).__name__}; expected {expected}")


def _called(where: str, function: Callable[[], Any]) -> Any:
    try:
        return function()
    except EnvironmentFault:
        raise
    except (Exception, SystemExit) as error:
        raise EnvironmentFault(f"{where} raises {line_of(error)}") from error


def main() -> int:
    """Entry point of the process."""
    name, path = sys.argv[1:]
    try:
        register({name: path})
        trial(name)
    except (EnvironmentFault, ValueError) as error:
        why = " ".join(str(error).split())
        print(f"\n{MARK}{why if len(why) <= LONGEST else f'{why[:LONGEST]}...'}")
        return 1
    print(f"\n{MARK}ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
