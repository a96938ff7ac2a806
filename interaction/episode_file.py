"""The JSONL files of played episodes, `<record_dir>/{train,val}/<step>.jsonl`: one line an episode, with its score.

On several machines a step's episodes are in parts, `<step>.<part>.jsonl`, one for each process that writes some. The
name without part stands for all of them (`parts_of`). A line begins with what is needed to choose it (step, task,
score, metrics) and ends with what is long, so that readers of gigabytes read beginnings.
"""

import json
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from typing_extensions import TypedDict

ASIDE = "aside"
"""Folder of a run for what was set aside; a run by its form, so that it can be reported as one."""
Play = TypeVar("Play")


class Tokens(TypedDict):
    """What verl trains on, by which a stored episode can be trained on later."""

    prompt: list[int]
    response: list[int]
    mask: list[int]
    """1 for a token of the model, 0 for one of the environment."""
    logprobs: list[float] | None
    """The engine's, 0 on tokens of the environment; None where it gave none."""


def path_of(folder: str | Path, split: str, step: int, part: str = "") -> Path:
    """The file of the episodes of one training step, or of the validation after it.

    Args:
        part: its name, where there are several; later launches sort behind earlier ones.
    """
    return Path(folder) / split / f"{step:06d}{'.' if part else ''}{part}.jsonl"


def whole_of(path: Path) -> Path:
    """The name of a step's file without its part."""
    return path.with_name(f"{path.name.partition('.')[0]}.jsonl")


def parts_of(path: Path) -> list[Path]:
    """The files of a step, in the order of launches: the one of this name, if it is there, and its parts."""
    if path != whole_of(path):
        return [path]
    return [*([path] if path.exists() else []), *sorted(path.parent.glob(f"{path.stem}.*.jsonl"))]


def played_in(folder: Path) -> list[Path]:
    """A name for each step below a folder with runs, without what was set aside."""
    found = folder.glob("**/rollouts/*/*.jsonl")
    return sorted({whole_of(path) for path in found if ASIDE not in path.relative_to(folder).parts})


def steps_in(folder: Path) -> list[Path]:
    """A name for each step in a folder, in their order, whether it has one file or parts."""
    return sorted({whole_of(path) for path in folder.glob("*.jsonl")})


def append(path: Path, line: Mapping[str, Any]) -> None:
    """Write a line at the end of a file, in one write: appends of several workers do not mix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    left = json.dumps(line, ensure_ascii=False).encode() + b"\n"
    with path.open("ab", buffering=0) as file:
        while left:  # again only where the system took a part
            left = left[file.write(left) :]


def last_plays(plays: Iterable[tuple[Hashable, str | None, Play]]) -> list[Play]:
    """Of (episode, launch, play): of an episode that was played again after a resume, the plays of its last launch.

    Several of one launch all count: dynamic sampling may draw a task twice.
    """
    kept: dict[Hashable, tuple[str | None, list[Play]]] = {}
    for key, launch, play in plays:
        if launch is None or key not in kept or kept[key][0] != launch:
            kept[key] = launch, []
        kept[key][1].append(play)
    return [play for _, played in kept.values() for play in played]
