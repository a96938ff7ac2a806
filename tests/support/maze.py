"""An environment, as a file, of three requests: `look` works, every other call is an error.

Nobody may read its gold. What it thinks of an attempt is a setting (`passes`), and so is whether it answers a second
attempt as it did the first (`fickle`).
"""

from pathlib import Path

MAZE = """
from dataclasses import dataclass
from itertools import count

from interaction.environment import EnvironmentBase, Request
from interaction.outcome import ErrorKind, ToolResult, TurnResult, Verdicts

LOOK = {{"name": "look", "description": "Looks.", "parameters": {{"type": "dict", "properties": {{}}, "required": []}}}}
ATTEMPTS = count()


@dataclass(frozen=True)
class Options:
    passes: bool = True
    fickle: bool = False


@dataclass(frozen=True)
class Task:
    id: str
    cluster: str
    environment: str = "{name}"
    category: str = "maze"
    part: str = "test"

    def open(self, **options):
        return Attempt(self.id, Options(**options))

    def gold(self):
        raise AssertionError("gold was read")


class Attempt(EnvironmentBase):
    def __init__(self, task, options):
        self.task, self.passes, self.turn, self.looks = task, options.passes, 0, 0
        self.wall = next(ATTEMPTS) if options.fickle else "grey"

    def begin(self):
        return Request(f"Request 0 of {{self.task}}.", [LOOK])

    def call(self, call):
        facts = {{"gold": 0 if self.passes else None, "needless": not self.passes}}
        if call.name == "look":
            self.looks += 1
            return ToolResult(f"wall {{self.looks}} is {{self.wall}}", facts=facts)
        return ToolResult(f"{{call.name}} is not there", ErrorKind.EXECUTION, facts=facts)

    def facts(self):
        return {{"closeness": float(self.passes)}}

    def answer(self, text):
        self.turn += 1
        return Request(f"Request {{self.turn}} of {{self.task}}.") if self.turn < 3 else None

    def cut(self, reason):
        return self.passes

    def verdicts(self):
        turns = tuple(TurnResult("", self.passes) for turn in range(3))
        return Verdicts(turns, self.passes, {{"maze": float(self.passes)}})


def load_tasks():
    return [Task(f"maze_{{number}}", str(number)) for number in range(8)]
"""


def write_maze(folder: Path) -> Path:
    """Under a name of its own: an environment is known by its name for as long as a process lives."""
    path = folder / f"maze_{folder.name}.py"
    path.write_text(MAZE.format(name=path.stem))
    return path
