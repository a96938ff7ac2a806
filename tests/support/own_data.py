"""The data set that docs/your_data.md shows, as a file."""

import json
import re
from pathlib import Path
from typing import Any


def example() -> list[dict[str, Any]]:
    """Its entries, as a reader copies them."""
    text = (Path(__file__).parents[2] / "docs" / "your_data.md").read_text()
    (found,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    return json.loads(found)


def write_example(folder: Path) -> Path:
    path = folder / "office.json"
    path.write_text(json.dumps(example()))
    return path
