"""The environment that docs/your_tools.md shows, as a file."""

import re
from collections.abc import Sequence
from pathlib import Path

from interaction.environment import Task

DOCUMENT = Path(__file__).parents[2] / "docs" / "your_tools.md"

GOLD = '[GoldMessage(calls=(self.call,)), GoldMessage(answer="done")]'
VERDICTS = "Verdicts((TurnResult(self.begin().user, self.passed),), self.passed)"
"""Pieces of the example that tests replace."""


def example() -> str:
    """Its code, as a reader copies it."""
    return _code()[0]


def example_of_several_turns() -> str:
    """The same with the part that the page replaces for tasks of several turns."""
    first, several = _code()
    return first[: first.index("@dataclass")] + several


def _code() -> list[str]:
    return re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)


def write_example(folder: Path) -> Path:
    path = folder / "inventory.py"
    path.write_text(example())
    return path


def write_namesake(folder: Path, tasks: Sequence[Task], category: str = "move") -> Path:
    """The same with the ids and clusters of another environment's tasks."""
    names = [(task.id, task.cluster) for task in tasks]
    text = example().replace('Task(f"move_{number}", str(number), ', f"Task(*{names!r}[number], ")
    text = text.replace("range(60)", f"range({len(names)})").replace(
        'category: str = "move"', f'category: str = "{category}"'
    )
    path = folder / "inventory.py"
    path.write_text(text)
    return path
