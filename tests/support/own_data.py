"""The data set that docs/your_data.md shows, as a file."""

import json
import re
from pathlib import Path
from typing import Any

DOCUMENT = Path(__file__).parents[2] / "docs" / "your_data.md"


def example() -> list[dict[str, Any]]:
    """Its entries, as a reader copies them."""
    return json.loads(example_text())


def example_text() -> str:
    found = re.search(r"```json\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def write_example(folder: Path) -> Path:
    path = folder / "office.json"
    path.write_text(example_text())
    return path
