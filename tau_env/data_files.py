"""Which of tau's tasks go into which file of a data set: those of the stages, or the small ones of the CPU demo.

Tasks that doing nothing passes teach nothing, and are left out of training; they stay in what is held out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from interaction.environment import DataSet, Part
from tau_env.splits import size
from tau_env.tasks import DOMAINS, TauTask, is_idle, tasks_under

EASY = 2
"""Faults that a task of the format stage has at most."""
HELD_OUT = 256
"""Tasks of each mode that are validated on; there are a thousand."""
RESULT_CHARS = 700
"""Of the demo: to what results are cut."""


def data_sets(tiny: bool = False, options: Mapping[str, Any] | None = None) -> dict[str, DataSet]:
    """File -> its tasks, by the split that the options name.

    Raises:
        SourceError: the data is missing, or is not the pinned release.
    """
    tasks = tasks_under(options or {})
    if tiny:
        mobile = [task for task in tasks if task.category == "telecom_solo_mobile"]
        train = _of(mobile, "train")
        return {
            "tau_sft.parquet": DataSet("sft", [replace(task, shown="expert") for task in train], RESULT_CHARS),
            "tau_format.parquet": DataSet("train", [task for task in train if _size(task) <= EASY]),
            "tau_solo.parquet": DataSet("train", train),
            "tau_user.parquet": DataSet("train", _of(_mode(tasks, "user"), "train")[:16]),
            "tau_val.parquet": DataSet("val", _of(mobile, "dev", "test")),
            "tau_user_val.parquet": DataSet("val", _of(_mode(tasks, "user"), "dev")[:2]),
        }
    solo, user = _mode(tasks, "solo"), _mode(tasks, "user")
    train = _of(solo, "train")
    return {
        "tau_sft.parquet": DataSet("sft", [replace(task, shown="expert") for task in train]),
        "tau_format.parquet": DataSet("train", [task for task in train if _size(task) <= EASY]),
        "tau_solo.parquet": DataSet("train", train),
        "tau_user.parquet": DataSet("train", [task for task in _of(user, "train") if not is_idle(task)]),
        "tau_val.parquet": DataSet("val", _spread(_of(solo, "dev", "test"))),
        "tau_user_val.parquet": DataSet("val", _spread(_of(user, "dev", "test"))),
    }


def _mode(tasks: Sequence[TauTask], mode: str) -> list[TauTask]:
    return [task for task in tasks if task.mode == mode]


def _of(tasks: Iterable[TauTask], *parts: Part) -> list[TauTask]:
    return [task for task in tasks if task.part in parts]


def _size(task: TauTask) -> int:
    return size(DOMAINS[task.task.domain], task.task)


def _spread(tasks: Sequence[TauTask]) -> list[TauTask]:
    """At most `HELD_OUT` of them, evenly from all categories and sizes as they are ordered."""
    ordered = sorted(tasks, key=lambda task: (task.category, _size(task), task.id))
    step = max(1, -(-len(ordered) // HELD_OUT))
    return ordered[::step]
