"""What a YAML file says about each of its keys: the comments, which a YAML parser drops.

Two habits are read. This recipe's files comment a key behind its value and go on below, without a key:

    gate: null       # when the stage has learned enough;
                     # docs/curriculum.md

verl's have the comment above the key, and a check of their own that it is nowhere else. PyYAML's scanner says where a
line's last token ends, so a `#` within a text is none of a comment's.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's where PyYAML was built with it: verl's files are long, and there are fifty of them."""


@dataclass(frozen=True)
class Key:
    """One key of a file."""

    line: int
    """From 1."""
    comment: str
    """On one line; empty where there is none."""
    leaf: bool
    """Whether a value stands there, and not a section with keys of its own."""


def read_keys(path: Path, above: bool = False) -> dict[str, Key]:
    """The keys of a YAML file, with dots (`stage.gate`), in its order.

    Args:
        above: the comment of a key stands above it, not behind.
    """
    text = path.read_text(encoding="utf-8")
    lines, ends = text.splitlines(), _ends(text)
    found: dict[str, Key] = {}
    commented: set[int] = set()
    for name, line, leaf in _names(yaml.compose(text, Loader=Loader), ""):
        first = line not in commented  # of several keys on a line, the comment is the first one's
        commented.add(line)
        comment = (_above(lines, line) if above else _behind(lines, ends, line)) if first else ""
        found[name] = Key(line + 1, comment, leaf)
    return found


def _ends(text: str) -> dict[int, int]:
    """Line -> the column after its last token, of lines that have one."""
    ends: dict[int, int] = {}
    for token in yaml.scan(text, Loader=Loader):
        if token.start_mark.index < token.end_mark.index:
            end = token.end_mark
            ends[end.line] = max(ends.get(end.line, 0), end.column)
    return ends


def _names(node: yaml.Node | None, path: str) -> Iterator[tuple[str, int, bool]]:
    """Name, line from 0, and whether it is a leaf. What an alias (`*name`) repeats is the other place's."""
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        if key.tag == "tag:yaml.org,2002:merge":
            continue
        here = value.start_mark.index >= key.end_mark.index
        section = isinstance(value, yaml.MappingNode) and bool(value.value)
        yield f"{path}{key.value}", key.start_mark.line, not section
        if section and here:
            yield from _names(value, f"{path}{key.value}.")


def _behind(lines: list[str], ends: dict[int, int], line: int) -> str:
    rest = lines[line][ends.get(line, 0) :].strip()
    if not rest.startswith("#"):
        return ""
    words = [rest]
    for below in range(line + 1, len(lines)):
        if below in ends or not (more := lines[below].strip()).startswith("#"):
            break
        words.append(more)
    return _joined(words)


def _above(lines: list[str], line: int) -> str:
    words: list[str] = []
    while line > 0 and (more := lines[line - 1].strip()).startswith("#"):
        words.insert(0, more)
        line -= 1
    return _joined(words)


def _joined(comments: list[str]) -> str:
    return " ".join(" ".join(comment.lstrip("# ").split()) for comment in comments).strip()
