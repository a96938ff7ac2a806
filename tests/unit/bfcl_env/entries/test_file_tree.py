"""What is wrong with the file tree of an entry is said with the path to it."""

from collections.abc import Callable
from typing import Any

import pytest
from support.entries import multi_turn, write

from data_prep.__main__ import main as prepare_data

Run = Callable[[Any], str]


def tree(node: Any) -> dict[str, Any]:
    """An entry whose folder holds one thing more."""
    folder = {"type": "directory", "contents": {"a": {"type": "directory", "contents": {"note.txt": node}}}}
    return multi_turn(initial_config={"GorillaFileSystem": {"root": {"home": folder}}})


def root(value: Any) -> dict[str, Any]:
    return multi_turn(initial_config={"GorillaFileSystem": {"root": value}})


ROOT, NODE = (
    "initial_config.GorillaFileSystem.root",
    "initial_config.GorillaFileSystem.root.home.contents.a.contents.note.txt",
)
TREES: dict[str, tuple[dict[str, Any], str]] = {
    "no tree": (root(None), f"{ROOT}: found None; expected an object with the one folder"),
    "a list of folders": (root(["home"]), f"{ROOT}: found ['home']; expected an object with the one folder"),
    "no folder": (root({}), f"{ROOT}: found {{}}; expected an object with the one folder"),
    "a folder as text": (root({"home": "a"}), f'{ROOT}.home: found \'a\'; expected {{"type": "directory"'),
    "a folder without contents": (root({"home": {"type": "directory"}}), f"{ROOT}.home.contents: found nothing; exp"),
    "a folder's list": (root({"home": {"contents": ["a"]}}), f"{ROOT}.home.contents: found ['a']; expected an object"),
    "a file that is text": (tree("words"), f'{NODE}: found \'words\'; expected {{"type": "file", "content"'),
    "no type": (tree({"content": ""}), f'{NODE}.type: found nothing; expected "file" or "directory"'),
    "another type": (tree({"type": "folder", "contents": {}}), f'{NODE}.type: found \'folder\'; expected "file" or "d'),
    "a type that is none": (tree({"type": [], "content": ""}), f"{NODE}.type: found []; expected"),
    "type misspelt": (tree({"typ": "file", "content": ""}), f"{NODE}.type: found nothing, but 'typ'; expected"),
    "content misspelt": (tree({"type": "file", "contnt": ""}), f"{NODE}.content: found nothing, but 'contnt'; exp"),
    "content of a folder": (tree({"type": "file", "contents": ""}), f"{NODE}.content: found nothing, but 'contents'"),
    "contents of a file": (
        tree({"type": "directory", "content": {}}),
        f"{NODE}.contents: found nothing, but 'content'",
    ),
    "content no text": (tree({"type": "file", "content": 7}), f"{NODE}.content: found 7; expected the file's text"),
    "contents no object": (
        tree({"type": "directory", "contents": []}),
        f"{NODE}.contents: found []; expected an object",
    ),
}


@pytest.mark.parametrize("case", TREES)
def test_a_file_tree_says_where_it_is_wrong(case: str, refused: Run) -> None:
    entry, said = TREES[case]
    found = refused([entry])
    assert said in found and "has one mistake" in found


IDLE_IN_A_TREE: dict[str, tuple[dict[str, Any], str]] = {
    "a second folder": (root({"home": {"contents": {}}, "more": 5}), f"{ROOT}.more does nothing: the class reads the"),
    "another type of the first": (root({"home": {"type": "folder", "contents": {}}}), f"{ROOT}.home.type does nothing"),
    "one more key": (tree({"type": "file", "content": "", "mode": 7}), f"{NODE}.mode does nothing: the class reads"),
}


@pytest.mark.parametrize("case", IDLE_IN_A_TREE)
def test_what_does_nothing_in_a_file_tree_is_a_note(case: str, tmp_path, capsys) -> None:
    entry, said = IDLE_IN_A_TREE[case]
    path = write(tmp_path, [entry])
    assert prepare_data(["--json", str(path), "--out", str(tmp_path / "out"), "--docs", "signature"]) == 0
    assert said in capsys.readouterr().out
