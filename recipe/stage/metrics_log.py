"""What a stage has logged: numbers of its steps, where their time went, and which episodes they were trained on.

Numbers are read back from `metrics/*.jsonl` (verl's file logger, one file a launch). verl logs how long each part of a
step took (`timing_s/<name>`). The part in which episodes are played is divided by what the average episode waited for
(`train/seconds/<name>`, `interaction/episode_output.py`).

A stage that plays a batch and then trains on it writes each step's episodes to that step's file. One that goes on
playing while it trains writes them under the step at which their prompt was handed out, and lists in `trained.jsonl`
what each step was trained on.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from recipe.files import lines

TRAINED_FILE = "trained.jsonl"

GENERATION, ENVIRONMENT, USERS, REWARDS, REST = "generation", "environment", "users", "rewards", "rest"

TIMED: dict[str, tuple[str, ...]] = {
    GENERATION: ("gen", "switch_wait"),
    ENVIRONMENT: (),
    USERS: (),
    REWARDS: ("reward",),
    "log-probs": ("old_log_prob", "ref"),
    "values": ("values",),
    "update": ("update_actor",),
    "critic update": ("update_critic",),
    "weights": ("update_weights", "switch_to_rollout", "switch_to_trainer"),
    "checkpoint": ("save_checkpoint",),
    "validation": ("testing",),
    REST: (),
}
"""Parts of a step in the order of a drawing, and verl's names for them; `rest` is what is left of the step."""

WAITED = {ENVIRONMENT: "environment", USERS: "user", REWARDS: "reward"}
"""Parts of generation, by their names in `train/seconds/`."""


def read_steps(stage: Path, skip: Collection[str] = ()) -> dict[int, dict[str, float]]:
    """Global step -> metrics of a stage's folder, ascending. A launch's steps, from the first that it trained on,
    replace those of earlier ones; before it, it may have validated the step that it resumed from, which adds to that
    step. A line that is cut off or damaged is left out, and so are the files named in `skip`."""
    steps: dict[int, dict[str, float]] = {}
    for path in sorted(path for path in (stage / "metrics").glob("*.jsonl") if path.name not in skip):
        trained = False
        for _, line in lines(path):
            try:
                entry = json.loads(line)
                step, data = int(entry["step"]), entry["data"].items()
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
                continue
            # NaN and infinity stay: they show that something went wrong
            numbers = {name: value for name, value in data if isinstance(value, int | float)}
            if not trained and not all(name.startswith("val") for name in numbers):
                trained, steps = True, {number: values for number, values in steps.items() if number < step}
            steps.setdefault(step, {}).update(numbers)
    return dict(sorted(steps.items()))


def parts_of(numbers: Mapping[str, float]) -> dict[str, float]:
    """Seconds of one step by part, in the order of `TIMED`, only parts that it has; empty where no time was logged.

    Where episodes do not say what they waited for, all is `generation`.
    """
    if "timing_s/step" not in numbers:
        return {}
    parts = {part: sum(numbers.get(f"timing_s/{name}", 0.0) for name in names) for part, names in TIMED.items()}
    whole = numbers["timing_s/step"] + numbers.get("timing_s/testing", 0.0)
    parts[REST] = max(0.0, whole - sum(parts.values()))
    if played := numbers.get("train/seconds/total"):
        generation = parts[GENERATION]
        for part, name in WAITED.items():
            waited = generation * numbers.get(f"train/seconds/{name}", 0.0) / played
            parts[part] += waited
            parts[GENERATION] -= waited
    return {part: seconds for part, seconds in parts.items() if seconds > 0}


def total_times(steps: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Seconds of several steps by part, in the order of `TIMED`."""
    sums: Counter[str] = Counter()
    for numbers in steps:
        sums.update(parts_of(numbers))
    return {part: sums[part] for part in TIMED if part in sums}


def time_line(stage: Path) -> str:
    """The parts of a stage's steps that take a hundredth or more, the largest first; empty where none was timed."""
    parts = total_times(read_steps(stage).values())
    whole = sum(parts.values())
    largest = sorted(((seconds, part) for part, seconds in parts.items() if seconds >= 0.01 * whole), reverse=True)
    shares = ", ".join(f"{part} {100 * seconds / whole:.0f} %" for seconds, part in largest)
    return shares and f"time: {shares}"


def note_trained(stage: Path, step: int, keys: Iterable[str], tags: Iterable[Mapping[str, Any]]) -> None:
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


def trained_files(stage: Path, step: int) -> dict[Path, set[str] | None]:
    """Files with a step's episodes, each with the uids of the groups in it that are meant; None: all.

    Of a step that was trained again after a resume the last time counts.
    """
    found: dict[Path, set[str] | None] = {stage / "rollouts" / "train" / f"{step:06d}.jsonl": None}
    for _, line in lines(stage / TRAINED_FILE):
        try:
            content = json.loads(line)
        except ValueError:  # a crash has cut it off
            continue
        if content["step"] == step:
            played = content["played"].items()
            found = {stage / "rollouts" / "train" / f"{int(number):06d}.jsonl": set(uids) for number, uids in played}
    return found
