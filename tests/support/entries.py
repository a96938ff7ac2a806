"""Entries of a data set of one's own, and files of them."""

import json
from pathlib import Path
from typing import Any

PROPERTIES = {
    "gauge": {"type": "string", "description": "Its name."},
    "digits": {"type": "integer", "description": "Decimal places, 2 if not given."},
}
PARAMETERS = {"type": "dict", "properties": PROPERTIES, "required": ["gauge"]}
GAUGE = {"name": "read_gauge", "description": "Read a gauge of the plant.", "parameters": PARAMETERS}


def says(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def multi_turn(number: int = 0, **changes: Any) -> dict[str, Any]:
    """An entry of two turns on a file system; `changes` replace its fields, None leaves one out."""
    folder, box = {"type": "directory", "contents": {}}, f"box{number}"
    entry = {
        "id": f"multi_turn_base_{number}",
        "question": [says(f"Make a folder named {box}."), says("Go there, and make the empty file note.txt.")],
        "initial_config": {"GorillaFileSystem": {"root": {f"home{number}": folder}}},
        "involved_classes": ["GorillaFileSystem"],
        "ground_truth": [[f"mkdir(dir_name='{box}')"], [f"cd(folder='{box}')", "touch(file_name='note.txt')"]],
    }
    return _changed(entry, changes)


def single_turn(number: int = 0, **changes: Any) -> dict[str, Any]:
    """An entry of one call of a function of its own; `changes` as above."""
    entry = {
        "id": f"simple_python_{number}",
        "question": [says(f"What does gauge {number} show?")],
        "function": [GAUGE],
        "ground_truth": [{"read_gauge": {"gauge": [f"{number}", f"gauge {number}"], "digits": ["", 2]}}],
    }
    return _changed(entry, changes)


def write(folder: Path, content: Any, name: str = "plant.json") -> Path:
    """A file of these entries, or of this text or these bytes."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    content = content if isinstance(content, str | bytes) else json.dumps(content, indent=1)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def _changed(entry: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**entry, **changes}.items() if value is not None}
