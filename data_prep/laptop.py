"""The files of `--laptop`: short BFCL tasks on which a model of 135M parameters learns to call functions on a CPU.

Warm start and stages train on different tasks. Rows stand in the order of training: each batch of eight has every
category in its share, and so has the beginning of the validation file.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Literal

from data_prep.mixture import SEED, draw
from data_prep.sft import gold_messages
from interaction import get_protocol
from interaction.environment import DataSet, Part, Task, load_tasks

PROTOCOL = "python_calls"
MAX_RESULT_CHARS = 300
ENVIRONMENTS = {
    "simple_python": "bfcl_single",
    "multiple": "bfcl_single",
    "irrelevance": "bfcl_single",
    "multi_turn_base": "bfcl",
}
"""Category -> its environment."""

WARM_START = "stage0_sft.parquet"
TRAIN = {
    WARM_START: {"simple_python": 80, "multiple": 40, "irrelevance": 40, "multi_turn_base": 24},
    "stage1_format.parquet": {"simple_python": 48, "irrelevance": 16},
    "stage2_base.parquet": {"simple_python": 32, "multiple": 16, "irrelevance": 16},
    "stage3_full.parquet": {"multi_turn_base": 16, "multiple": 4, "simple_python": 4, "irrelevance": 8},
}
"""File -> category -> rows."""
SFT_ALL = "sft_all.parquet"
"""All single-turn training tasks and the warm start's multi-turn ones, for a comparison with supervised training."""
HELD_OUT: dict[str, tuple[Part, dict[str, int]]] = {
    "val.parquet": ("test", {"simple_python": 100, "multiple": 50, "irrelevance": 50, "multi_turn_base": 12}),
    "val_dev.parquet": ("dev", {"simple_python": 48, "multiple": 24, "irrelevance": 24, "multi_turn_base": 6}),
}
"""File -> its part and, of each category, tasks."""
KINDS: dict[str, Literal["sft", "val"]] = {WARM_START: "sft", SFT_ALL: "sft", **{name: "val" for name in HELD_OUT}}

OWN = {"stage1_format.parquet": 64, "stage2_base.parquet": 64, "stage3_full.parquet": 32}
"""File -> rows, of a file of the user's own. The warm start takes the rest."""

SHORT_SHARE = 0.4
"""Of the multi-turn tasks of a part, the shortest. Their gold episodes have at most 923 tokens of SmolLM2's."""


def data_sets(own: str | None = None) -> dict[str, DataSet]:
    """File -> its tasks.

    Args:
        own: an environment whose tasks take the place of BFCL's in training, and stand beside its multi-turn ones in
            validation.

    Raises:
        SourceError: bfcl-eval is missing or is not the pinned release.
    """
    if own:
        return _own(own)
    pools = {category: _pool(category, "train") for category in ENVIRONMENTS}
    drawn: dict[str, dict[str, list[Task]]] = {}
    left = dict(pools)
    for name, counts in TRAIN.items():
        drawn[name] = _drawn(left, counts)
        for category, taken in drawn[name].items():
            left[category] = [task for task in left[category] if task not in taken]
    drawn[SFT_ALL] = pools | {"multi_turn_base": drawn[WARM_START]["multi_turn_base"]}
    for name, (part, counts) in HELD_OUT.items():
        drawn[name] = _drawn({category: _pool(category, part) for category in counts}, counts)
    sets = {}
    for name, groups in drawn.items():
        tasks = _alternating(list(groups.values()), name)
        if name in HELD_OUT:  # the longest first: the others are played meanwhile
            tasks.sort(key=lambda task: -len([*task.gold()]))
        sets[name] = DataSet(KINDS.get(name, "train"), tasks, MAX_RESULT_CHARS)
    return sets


def _own(name: str) -> dict[str, DataSet]:
    """The files of a user's environment: tasks of few turns first, and all that are held out.

    Raises:
        ValueError: it has too few tasks to train on.
    """
    tasks = [*load_tasks(name).values()]
    left = [task for task in tasks if task.part == "train"]
    if len(left) <= (wanted := sum(OWN.values())):
        raise ValueError(f"{name} has {len(left)} tasks to train on; --laptop takes more than {wanted}")
    sets = {}
    for file, count in {WARM_START: len(left) - wanted, **OWN}.items():
        taken, left = left[:count], left[count:]
        taken.sort(key=lambda task: len([*task.gold()]))
        sets[file] = DataSet(KINDS.get(file, "train"), taken, MAX_RESULT_CHARS)
    for file, (part, _) in HELD_OUT.items():
        held_out = [task for task in tasks if task.part == part]
        sets[file] = DataSet("val", _alternating([held_out, _pool("multi_turn_base", part)], file), MAX_RESULT_CHARS)
    return sets


def _pool(category: str, part: Part) -> list[Task]:
    """The tasks of a category and a part; of multi-turn tasks the short ones."""
    all_tasks = load_tasks(ENVIRONMENTS[category]).values()
    tasks = [task for task in all_tasks if (task.category, task.part) == (category, part)]
    if category != "multi_turn_base":
        return tasks
    short = sorted(tasks, key=_length)[: int(len(tasks) * SHORT_SHARE)]
    return [task for task in tasks if task in short]


def _length(task: Task) -> int:
    """Characters of the gold conversation."""
    messages = gold_messages(task, get_protocol(PROTOCOL, docs="signature"), MAX_RESULT_CHARS)
    return sum(len(message["content"]) for message in messages)


def _drawn(pools: Mapping[str, Sequence[Task]], counts: Mapping[str, int]) -> dict[str, list[Task]]:
    """As a mixture draws them, so that `--mixture` draws the warm start's single-turn tasks too."""
    return {name: draw(pools[name], count, f"{ENVIRONMENTS[name]}/{name}") for name, count in counts.items()}


def _alternating(groups: Sequence[Sequence[Task]], name: str) -> list[Task]:
    """All tasks, those of each group in a random order and spread evenly."""
    placed = [
        ((number + 0.5) / len(group), task)
        for group in groups
        for number, task in enumerate(Random(f"{SEED} {name}").sample(group, len(group)))
    ]
    return [task for _, task in sorted(placed, key=lambda pair: pair[0])]
