"""Which of a stage's stored episodes a step was trained on, where that is not the step they were played for.

A stage that plays a batch and then trains on it writes each step's episodes to that step's file. One that goes on
playing while it trains writes them under the step at which their prompt was handed out, and lists in `trained.jsonl`
what each step was trained on.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from recipe.files import lines

TRAINED_FILE = "trained.jsonl"


def note(stage: Path, step: int, keys: Iterable[str], tags: Iterable[Mapping[str, Any]]) -> None:
    """Add a line for a step.

    Args:
        keys: of its samples in verl's queue, `<uid>_<rollout>_<number of the output>`.
        tags: of the same; `global_steps` is the step at which the prompt was handed out.
    """
    played: dict[int, set[str]] = defaultdict(set)
    for key, tag in zip(keys, tags, strict=True):
        if not tag.get("is_padding", False):
            played[int(tag["global_steps"])].add(key.rsplit("_", 2)[0])
    line = {"step": step, "played": {str(number): sorted(uids) for number, uids in sorted(played.items())}}
    with (stage / TRAINED_FILE).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def files_of(stage: Path, step: int) -> dict[Path, set[str] | None]:
    """Files with a step's episodes, each with the uids of the groups in it that are meant; None: all.

    Of a step that was trained again after a resume the last time counts.
    """
    folder = stage / "rollouts" / "train"
    if not (stage / TRAINED_FILE).exists():
        return {folder / f"{step:06d}.jsonl": None}
    played: dict[str, list[str]] | None = None
    for _, line in lines(stage / TRAINED_FILE):
        try:
            content = json.loads(line)
        except ValueError:  # a crash has cut it off
            continue
        if content["step"] == step:
            played = content["played"]
    if played is None:  # of a launch that played and trained in turn
        return {folder / f"{step:06d}.jsonl": None}
    return {folder / f"{int(number):06d}.jsonl": set(uids) for number, uids in played.items()}
