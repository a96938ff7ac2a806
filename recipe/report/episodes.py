"""Which stored episodes a page shows. A run of production size stores gigabytes of them, so few lines are read whole.

Every line of `rollouts/{train,val}/<step>.jsonl` begins with what is needed to choose (step, scenario, score, metrics)
and ends with the episode. Choosing looks at the beginnings only, of the first and last validation and of some training
steps of each stage; the chosen lines are then read.
"""

import json
import math
import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interaction.environment import task_id_of, task_key_of
from interaction.episode_file import parts_of, steps_in, whole_of
from recipe.files import LONGEST_LINE, lines

TRAIN_STEPS = 12
"""Training steps of a stage from which episodes are taken, the first and the last among them."""

LONGEST_TEXT = 6000
"""Characters of one text that a page shows; long_context results have up to 70,000."""


@dataclass(frozen=True)
class Place:
    """Where an episode is stored, and the beginning of its line."""

    stage: str
    split: str
    path: Path
    offset: int
    header: dict[str, Any]


DAMAGE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What reading a line raises that a crash has cut off, or that is no episode."""


def headers(path: Path) -> list[Place]:
    """The episodes of a step, in all parts of its file, without their conversations; of one that was repeated after a
    resume the later."""
    found: dict[Hashable, _Played] = {}
    split, stage = path.parent.name, path.parents[2].name
    for part in parts_of(path):
        for offset, line in lines(part):
            if line.endswith(b"\n"):  # or a crash has cut it off
                try:
                    header = _header(line)
                    _keep(found, header, Place(stage, split, part, offset, header))
                except DAMAGE:
                    continue
    return _all(found)


def _header(line: bytes) -> dict[str, Any]:
    """All of a line but its episode, which training writes last; of a line that another program wrote, all is read."""
    begins, mark, _ = line.partition(b', "episode": ')
    try:
        header = json.loads(begins + b"}" if mark else line)
    except ValueError:
        header = json.loads(line)
    header.pop("episode", None)
    reward, score = header.get("reward"), header.get("score")
    numbers = {name: value for name, value in reward.items() if _finite(value)} if isinstance(reward, dict) else {}
    task, step = task_id_of(header), header.get("step", 0)
    if not isinstance(task, str) or not isinstance(step, int):
        raise ValueError("task_id is no text, or step no number")
    category, _, index = task.rpartition("_")  # of lines that say no more: earlier releases knew BFCL only
    said = {"environment": "bfcl", "category": category, "cluster": index} | header
    return {**said, "task_id": task, "step": step, "reward": numbers, "score": score if _finite(score) else None}


def _finite(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:
        return False


def read_records(path: Path) -> list[dict[str, Any]]:
    """The episodes of a step, in all parts of its file; of one that was repeated after a resume the later one."""
    found: dict[Hashable, _Played] = {}
    for _, line in (line for part in parts_of(path) for line in lines(part)):
        try:
            record = json.loads(line)
            record.pop("tokens", None)  # nobody reads them here, and a step's would fill the memory
            _keep(found, whole := _named(record), whole)
        except DAMAGE:
            continue
    return _all(found)


_Played = tuple[str | None, dict[str, Any]]
"""A launch, and what it played of one task and rollout: uid of the group -> episode."""


def _keep(found: dict[Hashable, _Played], header: dict[str, Any], episode: Any) -> None:
    """Put an episode beside others of its launch and in place of those of an earlier one.

    Dynamic sampling may play a task twice in a step, and both groups count. Lines that name no launch are of a time
    when it could not.
    """
    key, launch = (task_key_of(header), header["session_id"]), header.get("launch")
    before = found.get(key)
    others = before[1] if before and launch is not None and before[0] == launch else {}
    found[key] = launch, {**others, str(header.get("uid")): episode}


def _all(found: dict[Hashable, _Played]) -> list[Any]:
    return [episode for _, played in found.values() for episode in played.values()]


def validation_files(stage: Path) -> list[Path]:
    """The validations of a stage that have whole episodes, in the order of steps: the names of their files."""
    return [path for path in steps_in(stage / "rollouts" / "val") if headers(path)]


def choose(stages: list[Path], limit: int, seed: int = 0) -> list[Place]:
    """At most `limit` episodes: failures of each stage's last validation first, then training, then other validations.

    Where there are enough of each, half are validations. The same run gives the same choice.
    """
    failed: list[Place] = []
    other: list[Place] = []
    trained: list[Place] = []
    for stage in stages:
        files = validation_files(stage)
        for path in dict.fromkeys([*files[-1:], *files[:1]]):
            for place in headers(path):
                solved = place.header.get("reward", {}).get("acc", 0.0) == 1.0
                (other if solved or path != files[-1] else failed).append(place)
        for path in _spread(steps_in(stage / "rollouts" / "train"), TRAIN_STEPS):
            trained += headers(path)
    failed = _in_turn(failed, lambda place: (place.stage, place.header["category"]), seed)
    trained = _in_turn(trained, lambda place: whole_of(place.path), seed)
    other = _in_turn(other, lambda place: whole_of(place.path), seed)
    validation = min(len(failed), max(limit // 2, limit - len(trained)))
    chosen = failed[:validation] + trained[: limit - validation]
    return (chosen + other)[:limit]


def load(places: Iterable[Place]) -> Iterator[dict[str, Any]]:
    """The episodes with their stage, validation before training; texts over `LONGEST_TEXT` are cut, with a mark.

    A line whose beginning is whole but whose episode is not is left out: a launch was killed while it wrote, and the
    next one, resumed in the same step, appended to what it found.
    """
    for place in sorted(places, key=lambda place: (place.stage, place.split != "val", place.path, place.offset)):
        if (record := read_record(place)) is not None:
            yield {"stage": place.stage, **_cut(record)}


def read_record(place: Place) -> dict[str, Any] | None:
    """The whole line of an episode but for its tokens; None if what comes after its beginning is no episode."""
    with place.path.open("rb") as file:
        file.seek(place.offset)
        line = file.readline(LONGEST_LINE)
    try:
        record = _named(json.loads(line, parse_constant=str))  # a browser reads no NaN
        record.pop("tokens", None)  # a page shows texts
        return record if isinstance(record["episode"]["turns"], list) else None
    except DAMAGE:
        return None


def _named(line: dict[str, Any]) -> dict[str, Any]:
    """A stored line.

    Raises:
        ValueError: it names no task.
    """
    if not isinstance(task_id_of(line), str):
        raise ValueError("task_id is no text")
    return line


def _spread(paths: list[Path], count: int) -> list[Path]:
    """`count` of the paths at equal distances, the first and the last among them."""
    if len(paths) <= count:
        return paths
    return [paths[round(place * (len(paths) - 1) / (count - 1))] for place in range(count)]


def _in_turn(places: list[Place], group: Callable[[Place], Hashable], seed: int) -> list[Place]:
    """In random order, but so that each group has its turn before any has its next."""
    groups = defaultdict(list)
    for place in random.Random(seed).sample(places, len(places)):
        groups[group(place)].append(place)
    rounds = max(map(len, groups.values()), default=0)
    return [members[number] for number in range(rounds) for members in groups.values() if number < len(members)]


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return f"{value[:LONGEST_TEXT]} ... [{len(value) - LONGEST_TEXT} more characters in the stored episode]"
    if isinstance(value, dict):
        return {name: _cut(item) for name, item in value.items()}
    return [_cut(item) for item in value] if isinstance(value, list) else value
