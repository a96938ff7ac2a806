"""The file tree of an entry's initial state: what `GorillaFileSystem` would fail on, or pass over in silence."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from bfcl_env.entries.fields import MISSING
from bfcl_env.entries.mistakes import Tell, show

NAMED = "an object with the one folder that an episode begins in: name -> "
FOLDER = '{"type": "directory", "contents": {name: a file or a folder}}'
FILE = '{"type": "file", "content": "its text"}'
INSIDE = {"directory": "contents", "file": "content"}
"""Type -> the key with what is inside."""


def check_file_tree(root: Any, field: str, tell: Tell, note: Callable[[str], None]) -> None:
    """Tells what is wrong with a tree, and notes what does nothing in it.

    Args:
        root: a folder by its name, as `initial_config.GorillaFileSystem.root` has it.
        field: where it stands.
    """
    if not isinstance(root, dict) or not root:
        tell(field, show(root), NAMED + FOLDER)
        return
    first, *others = root
    for name in others:
        note(f"{field}.{name} does nothing: the class reads the first folder alone, {show(first)}")
    folder = root[first]
    if isinstance(folder, dict) and folder.get("type") != "directory":
        if "type" in folder:
            note(f"{field}.{first}.type does nothing: the one that root names is a folder in any case")
        folder = {**folder, "type": "directory"}
    _check_node(folder, f"{field}.{first}", ("directory",), tell, note)


def _check_node(node: Any, field: str, types: tuple[str, ...], tell: Tell, note: Callable[[str], None]) -> None:
    expected = " or ".join({"directory": FOLDER, "file": FILE}[kind] for kind in types)
    if not isinstance(node, dict):
        tell(field, show(node), expected)
        return
    kind = node.get("type")
    if kind not in types:
        found = show(kind) if "type" in node else _nearest("type", node)
        tell(f"{field}.type", found, " or ".join(f'"{name}"' for name in types))
        return
    inside = INSIDE[kind]
    for key in node.keys() - {"type", inside}:
        if inside in node or not get_close_matches(key, [inside], cutoff=0.6):
            note(f"{field}.{key} does nothing: the class reads type and {inside}")
    if inside not in node:
        tell(f"{field}.{inside}", _nearest(inside, node), expected)
    elif kind == "file":
        if not isinstance(node["content"], str):
            tell(f"{field}.content", show(node["content"]), "the file's text, which may be empty")
    elif not isinstance(node["contents"], dict):
        tell(f"{field}.contents", show(node["contents"]), f"an object: name -> {FILE} or {FOLDER}")
    else:
        for name, child in node["contents"].items():
            _check_node(child, f"{field}.contents.{name}", ("file", "directory"), tell, note)


def _nearest(key: str, node: Mapping[str, Any]) -> str:
    """That a key is not there, with the one that may stand for it."""
    meant = get_close_matches(key, [str(name) for name in node], n=1, cutoff=0.6)
    return f"{MISSING}, but {show(meant[0])}" if meant else MISSING
