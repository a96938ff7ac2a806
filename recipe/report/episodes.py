"""The stored episodes of a run: which of them a page shows, and which took longest.

A run of production size stores gigabytes of them. A line of `rollouts/{train,val}/<step>.jsonl` begins with the numbers
to choose by and ends with the episode. Only chosen lines are read whole.
"""

import heapq
import json
import math
import random
from collections.abc import Hashable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from interaction.environment import task_key_of
from interaction.episode_file import last_plays, parts_of, steps_in
from interaction.words import cut
from recipe.evaluation.store import EPISODES, finished_lines
from recipe.files import LONGEST_LINE, lines
from recipe.stage.metrics_log import read_steps

TRAIN_STEPS = 12
"""Training steps of a stage from which episodes are taken, the first and the last among them."""
LONGEST_TEXT = 6000
"""Characters of one text that a page shows; long_context results have up to 70,000."""
MOST = 10
"""Of a stage's slowest episodes."""
DAMAGE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What reading a line raises that a crash has cut off."""


@dataclass(frozen=True)
class Place:
    """Where an episode is stored, and the beginning of its line."""

    stage: str
    split: str
    path: Path
    offset: int
    header: dict[str, Any]


def headers(path: Path) -> list[Place]:
    """The episodes of a step that count (`last_plays`), in all parts of its file, without their conversations."""
    return last_plays(_plays(path))


def _plays(path: Path) -> Iterator[tuple[Hashable, str | None, Place]]:
    split, stage = path.parent.name, path.parents[2].name
    for part in parts_of(path):
        for offset, line in lines(part):
            with suppress(*DAMAGE):
                header = _header(line)
                key = task_key_of(header), header["session_id"]
                yield key, header.get("launch"), Place(stage, split, part, offset, header)


def _header(line: bytes) -> dict[str, Any]:
    """All of a line but its episode, which is not read where it comes last, as training writes it."""
    begins, header = line.partition(b', "episode": ')[0], dict[str, Any]()
    with suppress(ValueError):
        header = json.loads(begins + b"}") if line.endswith(b"\n") else {}
    if "reward" not in header:
        header = json.loads(line)
        del header["episode"]
    reward = {name: value for name, value in header["reward"].items() if math.isfinite(value)}
    score = header.get("score")
    finite = isinstance(score, int | float) and math.isfinite(score)
    return {**header, "reward": reward, "score": score if finite else None, "step": int(header["step"])}


def read_record(place: Place) -> dict[str, Any] | None:
    """The whole line of an episode but for its tokens; None if the rest of the line is no episode."""
    with place.path.open("rb") as file:
        file.seek(place.offset)
        line = file.readline(LONGEST_LINE)
    with suppress(*DAMAGE):
        record: dict[str, Any] = json.loads(line, parse_constant=str)  # a browser reads no NaN
        record.pop("tokens", None)  # a page shows texts
        return record if isinstance(record["episode"]["turns"], list) else None
    return None


def read_records(path: Path) -> list[dict[str, Any]]:
    """The whole episodes of a step, as `headers` finds them."""
    return [record for place in headers(path) if (record := read_record(place)) is not None]


def validation_files(stage: Path) -> list[Path]:
    """The validations of a stage that have whole episodes, in the order of steps: the names of their files.

    One that was not played to its end has not been logged, and is left out: its short episodes came first.
    """
    logged = read_steps(stage)
    return [path for path in steps_in(stage / "rollouts" / "val") if int(path.stem) in logged and headers(path)]


def choose(stages: list[Path], limit: int) -> list[Place]:
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
                solved = place.header["reward"].get("acc", 0.0) == 1.0
                (other if solved or path != files[-1] else failed).append(place)
        steps = steps_in(stage / "rollouts" / "train")
        few = min(TRAIN_STEPS, len(steps))
        for number in range(few):  # at equal distances
            trained += headers(steps[round(number * (len(steps) - 1) / max(few - 1, 1))])
    chosen: list[Place] = []
    for places, most in ((failed, max(limit // 2, limit - len(trained))), (trained, limit), (other, limit)):
        count = min(len(places), most, limit - len(chosen))
        chosen += random.Random(0).sample(places, count)
    return chosen


def load(places: Iterable[Place]) -> Iterator[dict[str, Any]]:
    """The episodes with their stage, validation before training; texts over `LONGEST_TEXT` are cut, with a mark."""
    for place in sorted(places, key=lambda place: (place.stage, place.split != "val", place.path, place.offset)):
        if (record := read_record(place)) is not None:
            yield {"stage": place.stage, **shortened(record)}


def of_evaluation(folder: Path) -> list[dict[str, Any]]:
    """The episodes that an evaluation keeps, as lines of a run, those that failed first; none of another folder."""
    found = finished_lines(folder / EPISODES).values() if (folder / EPISODES).is_file() else ()
    lines = [
        {"stage": folder.name, "split": line["part"], "step": 0, "session_id": line["sample"], "reward": {}}
        | {"task_id": line["task_id"], "episode": line["episode"]}
        | {"score": float(bool(record.outcome and record.outcome.passed))}
        for line, record in found
    ]
    return sorted(lines, key=itemgetter("score"))


def shortened(value: Any) -> Any:
    """A line with its texts cut to `LONGEST_TEXT`."""
    if isinstance(value, dict):
        return {name: shortened(item) for name, item in value.items()}
    if isinstance(value, list):
        return [shortened(item) for item in value]
    return cut(value, LONGEST_TEXT) if isinstance(value, str) else value


def slowest(stages: Iterable[Path]) -> list[list[str]]:
    """The cells of a table: of each stage the training episodes that took longest, for which a step waits."""
    rows = [["stage", "step", "sample", "slowest episodes", "seconds", "engine", "environment", "user"]]
    for stage in stages:
        played = (place.header for path in steps_in(stage / "rollouts" / "train") for place in headers(path))
        timed = (header for header in played if (header.get("seconds") or {}).get("total") is not None)
        for header in heapq.nlargest(MOST, timed, key=lambda header: header["seconds"]["total"]):
            waited = [header["seconds"].get(name) for name in ("total", "generate", "environment", "user")]
            names = [stage.name, str(header["step"]), str(header["session_id"]), header["task_id"]]
            rows.append([*names, *("-" if seconds is None else f"{seconds:.2f}" for seconds in waited)])
    return rows if len(rows) > 1 else []
