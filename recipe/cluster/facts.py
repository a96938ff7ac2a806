"""What a node is: its code, packages, files, variables and memory. Runs on each node, and imports nothing of ours.

`look` leaves a file in the run's folder, and `seen`, when all nodes have looked, reads what the others have left: a
folder is shared if each node reads what each has written. `recipe.preflight.machine` judges what they say.
"""

import contextlib
import hashlib
import importlib.metadata
import os
import platform
import socket
import sys
import time
from pathlib import Path
from typing import Any

import psutil

SEEN_WITHIN = 10.0
"""Seconds: a file system over a network shows another node's new file a little later."""


def look(asked: dict[str, Any], node: str, nodes: list[str]) -> dict[str, Any]:
    """What this node is (`describe`), and `wrote`: None, or why it cannot write into the folder `asked["shared"]`."""
    return {**describe(asked), "wrote": _write(Path(asked["shared"]), node)}


def describe(asked: dict[str, Any]) -> dict[str, Any]:
    """What this machine is.

    Args:
        asked: `root`: the checkout; `code`: its folders of source; `packages`: their names; `folder`: where relative
            paths start; `secrets`, `variables`: names of variables; `salt`: any text; `paths`: files and folders that
            are read.
    """
    return {
        "name": socket.gethostname(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "folder": os.path.isdir(asked["folder"]),
        "code": _code(Path(asked["root"]), asked["code"]),
        "packages": _packages(asked["packages"]),
        "secrets": {name: _mark(asked["salt"], os.environ[name]) for name in asked["secrets"] if os.environ.get(name)},
        "variables": {name: os.environ[name] for name in asked["variables"] if name in os.environ},
        "paths": {path: _size(Path(path)) for path in asked["paths"]},
        "memory": psutil.virtual_memory().total,
    }


def seen(asked: dict[str, Any], node: str, nodes: list[str]) -> list[str]:
    """Ids of the nodes whose file this one reads."""
    end = time.monotonic() + SEEN_WITHIN
    while True:
        found = [other for other in nodes if _reads(Path(asked["shared"]) / other, other)]
        if len(found) == len(nodes) or time.monotonic() > end:
            return found
        time.sleep(0.5)


def forget(asked: dict[str, Any], node: str, nodes: list[str]) -> None:
    """Remove this node's file, and the folder when nothing is left in it."""
    shared = Path(asked["shared"])
    with contextlib.suppress(OSError):
        (shared / node).unlink(missing_ok=True)
        shared.rmdir()


def _code(root: Path, folders: list[str]) -> dict[str, str] | None:
    """Source file -> its sum; None where there is no checkout."""
    if not root.is_dir():
        return None
    paths = [path for name in folders for kind in ("py", "yaml", "json") for path in (root / name).rglob(f"*.{kind}")]
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in sorted(paths)}


def _packages(names: list[str]) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _mark(salt: str, value: str) -> str:
    """What tells equal from different, and nothing else."""
    return hashlib.sha256(f"{salt}{value}".encode()).hexdigest()[:16]


def _size(path: Path) -> int | None:
    """Bytes of a file, or of the files in a folder, without those below it; None where there is nothing."""
    try:
        if path.is_dir():
            return sum(inside.stat().st_size for inside in path.iterdir() if inside.is_file())
        return path.stat().st_size
    except OSError:
        return None


def _write(shared: Path, node: str) -> str | None:
    """Leave this node's file; None, or why it cannot be left."""
    try:
        shared.mkdir(exist_ok=True)
        (shared / node).write_text(node)
    except OSError as error:
        return f"{error.strerror}: {error.filename}"
    return None


def _reads(path: Path, text: str) -> bool:
    try:
        return path.read_text() == text
    except OSError:
        return False
