"""Makes the page of BFCL's executable classes: functions, arguments and initial state, from the installed package."""

import json
from functools import cache
from typing import Any

from table_cells import code, name, row, words

from bfcl_env.entries.form import FILE, FOLDER, initial_keys
from bfcl_env.source import CATEGORIES, CLASS_MODULES, VERSION, function_docs, lines_of, read_data

PAGE = "reference/classes.md"
LONGEST = 300
"""Characters of a value."""

START = f"""# BFCL's classes

[Your own tasks](../your_data.md) can use BFCL's eight executable classes without code. This page lists their functions
(`involved_classes`), the arguments (`ground_truth`) and the keys of the initial state (`initial_config`), as in
bfcl-eval {VERSION}. The descriptions are BFCL's; the model reads them.

A task has all functions of its classes. A key that `initial_config` leaves out takes the class's default. The last
column shows a value from one of BFCL's own tasks. A file system is a tree: `root` has one folder, in which the task
begins; a folder is `{FOLDER}`, a file `{FILE}`. `echo` writes to an existing file; `touch` creates one.
"""
ABOUT, WHAT = "This tool ", "Tool description: "


def page() -> str:
    """The page in Markdown, a section for each class."""
    parts = [START]
    for owner in CLASS_MODULES:
        docs = function_docs()[owner]
        parts += [f"## {owner}\n", f"{_about(next(iter(docs.values()))['description'])}\n", *_state(owner), ""]
        parts += [row("function", "arguments", "what it does"), row("---", "---", "---")]
        parts += [
            row(name(function), _arguments(doc["parameters"]), words(doc["description"].partition(WHAT)[2]))
            for function, doc in docs.items()
        ]
        parts.append("")
    return "\n".join(parts)


def _about(description: str) -> str:
    """What BFCL says of the class at the beginning of each of its functions."""
    return words(description.partition(WHAT)[0].strip().replace(ABOUT, "It ", 1))


def _state(owner: str) -> list[str]:
    keys = initial_keys(owner)
    if not keys:
        return ["It has no initial state: leave it out of `initial_config`."]
    rows = [row("key", "where it is left out", "in one of BFCL's tasks"), row("---", "---", "---")]
    return rows + [row(name(key), _own(owner, key, value), _given(owner, key, value)) for key, value in keys.items()]


def _own(owner: str, key: str, value: Any) -> str:
    """The class's own value of a key."""
    if value is None and owner == "GorillaFileSystem":
        return "an empty folder"
    return code(json.dumps(list(value) if isinstance(value, set) else value), LONGEST)


def _given(owner: str, key: str, own: Any) -> str:
    """Another value of BFCL's tasks, that shows most of its form: the longest that can be shown; empty ones aside."""
    tasks = (json.loads(text)["initial_config"].get(owner, {}) for text in _rows())
    values = {json.dumps(task[key]) for task in tasks if task.get(key) not in ({}, [], "", None, own)}
    if not values:
        return ""
    fits = [text for text in values if len(text) <= LONGEST]
    return code(max(fits, key=lambda text: (len(text), text)) if fits else min(values, key=len), LONGEST)


@cache
def _rows() -> list[str]:
    return lines_of(read_data()[f"BFCL_v4_{CATEGORIES[0]}.json"])


def _arguments(parameters: dict[str, Any]) -> str:
    """Each with its type, its value where it is left out, and what BFCL says of it."""
    return "<br>".join(
        f"`{argument}`: {_type(document)}{_default(document, argument in parameters['required'])}. "
        + words(document["description"])
        for argument, document in parameters["properties"].items()
    )


def _type(document: dict[str, Any]) -> str:
    if document["type"] == "array":
        return f"array of {document['items']['type']}"
    if "properties" in document:
        return f"dict of {', '.join(f'`{field}`' for field in document['properties'])}"
    return str(document["type"])


def _default(document: dict[str, Any], required: bool) -> str:
    if required:
        return ""
    return f", {code(json.dumps(document['default']))} if left out" if "default" in document else ", may be left out"
