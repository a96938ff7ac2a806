"""The environment that docs/your_environment.md shows, as a file."""

import re
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "your_environment.md"


def example() -> str:
    """Its code, as a reader copies it."""
    found = re.search(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def write_example(folder: Path) -> Path:
    path = folder / "inventory.py"
    path.write_text(example())
    return path
