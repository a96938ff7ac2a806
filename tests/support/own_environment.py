"""The environment that docs/inventory.py writes by hand, and changed copies of it."""

from collections.abc import Sequence
from pathlib import Path

from interaction.environment import Task

GOLD = '[GoldMessage(calls=(self.call,)), GoldMessage(answer="done")]'
VERDICTS = "Verdicts((TurnResult(self.begin().user, self.passed),), self.passed)"
"""Pieces of the example that tests replace."""


def example() -> str:
    return (Path(__file__).parents[2] / "docs" / "inventory.py").read_text()


def write_example(folder: Path) -> Path:
    path = folder / "inventory.py"
    path.write_text(example())
    return path


def write_namesake(folder: Path, tasks: Sequence[Task], category: str = "move") -> Path:
    """The same with the ids and clusters of another environment's tasks."""
    names = [(task.id, task.cluster) for task in tasks]
    text = example().replace('Task(f"move_{number}", str(number), ', f"Task(*{names!r}[number], ")
    text = text.replace("range(60)", f"range({len(names)})")
    path = folder / "inventory.py"
    path.write_text(text.replace('category: str = "move"', f'category: str = "{category}"'))
    return path
