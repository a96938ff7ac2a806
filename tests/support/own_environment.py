"""The environment that docs/your_tools.md writes by hand, as a file."""

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
    return re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)[1]


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
