"""The files of `--laptop`: short tasks on which a model of 135M parameters learns to call functions on a CPU.

Some demonstrations in one way of speaking, and many requests in another that can be checked: the warm start learns from
generated tasks in `plain` words and from BFCL's; the stages play fresh ones in `other` words. Of 32 tasks in a row
23 are these, four are in `plain` words, five are BFCL's: two to refuse, three that ask for one call. In stage 3 two are
of several turns in place of generated ones. `unseen` words are for validation alone.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Literal, get_args

from bfcl_env.source import CATEGORIES as FORMS
from bfcl_env.synthesis import Shape, generate
from bfcl_env.synthesis.words import Words
from data_prep.sft import gold_messages
from interaction import get_protocol
from interaction.environment import DataSet, Part, Task, load_tasks, named

PROTOCOL = "python_calls"
MAX_RESULT_CHARS = 300

WARM_START = "stage0_sft.parquet"
SFT_ALL = "sft_all.parquet"
"""The warm start's conversations and gold of all training tasks, for a comparison with supervised training."""
STAGES = {"stage1_format": 20, "stage2_base": 48, "stage3_full": 40}
"""Stage -> blocks of eight tasks in its long file, `STAGE_long.parquet`."""
ONE, TWO, THREE = STAGES.values()
FRESH = (23 * TWO // 4 + 5 * THREE // 2) // 2
"""Generated tasks of two turns in the words of GRPO, of each kind."""
FEW = 8
"""In the other one, its beginning."""
HELD_OUT: dict[str, Part] = {"val.parquet": "test", "val_all.parquet": "test", "val_dev.parquet": "dev"}
KINDS: dict[str, Literal["sft", "val"]] = {WARM_START: "sft", SFT_ALL: "sft", **{name: "val" for name in HELD_OUT}}

CLASSES = ("MathAPI", "TicketAPI")
"""Of generated tasks: two of BFCL's eight, 26 functions. So each is asked for often, and prompts are short."""
KIND = Literal["one", "two", "others", "linked"]
"""Generated tasks of one turn, of two, in BFCL's other three forms, and of two of which the second means what the first
has left."""
SHAPES: dict[KIND, tuple[tuple[int, int], tuple[str, ...]]] = {
    "one": ((1, 1), FORMS[:1]),
    "two": ((2, 2), FORMS[:1]),
    "others": ((1, 2), FORMS[1:]),
    "linked": ((2, 2), FORMS[:1]),
}
"""Kind -> the fewest and most turns, and forms."""
GENERATED: dict[Words, dict[Part, dict[KIND, int]]] = {
    "plain": {
        "train": {"one": 36 + ONE, "two": 18 + TWO // 2, "linked": 18 + TWO // 2, "others": 24 + THREE},
        "dev": {"one": 12, "two": 8, "linked": 8, "others": 12},
        "test": {"one": 25, "two": 22, "linked": 23, "others": 30},
    },
    "other": {
        "train": {"one": 23 * ONE // 4, **dict.fromkeys(("two", "linked"), FRESH), "others": 11 * THREE // 4},
        "dev": {"one": 15, "two": 13, "linked": 14, "others": 18},
        "test": {"one": 75, "two": 67, "linked": 68, "others": 90},
    },
    "unseen": {
        "dev": {"one": 15, "two": 13, "linked": 14, "others": 18},
        "test": {"one": 75, "two": 67, "linked": 68, "others": 90},
    },
}
"""Words -> part -> kind -> tasks; in `plain` words the warm start has the first, the stages the last."""
WARM = {"simple_python": 50, "multiple": 25, "irrelevance": 40, "multi_turn_base": 10}
"""Category of BFCL -> conversations of the warm start, beside 96 generated ones."""
VALIDATED = {
    "val.parquet": {"simple_python": 40, "multiple": 20, "irrelevance": 40, "multi_turn_base": 16},
    "val_all.parquet": {"simple_python": 90, "multiple": 50, "irrelevance": 60, "multi_turn_base": 60},
    "val_dev.parquet": {"simple_python": 24, "multiple": 12, "irrelevance": 24, "multi_turn_base": 8},
}
"""File -> category of BFCL -> tasks; of multi-turn tasks the shortest."""
FEWER = {"val.parquet": 100}
"""File -> generated tasks in each wording; the others have all of their part."""

OWN = {"stage1_format": 64, "stage2_base": 64, "stage3_full": 32}
"""Stage -> rows, of a file of the user's own. The warm start takes the rest."""


def data_sets(out: Path, seed: int = 1, own: str | None = None) -> dict[str, DataSet]:
    """File -> its tasks. Generated tasks are written into `out`, where training finds them.

    Args:
        seed: of generated tasks, and of what is drawn of BFCL's.
        own: an environment whose tasks take the place of all in training, and stand beside BFCL's multi-turn ones in
            validation.

    Raises:
        OSError: `out` cannot be written.
        SourceError: bfcl-eval is missing or is not the pinned release.
    """
    if own:
        return _own(own, seed)
    made = {words: _generated(words, out, seed) for words in get_args(Words)}
    pools = {category: _pool(category, "train", seed) for category in WARM}
    fresh, more = made["other"]["train"], made["plain"]["train"]
    counts: dict[KIND, int] = {"one": ONE, "two": TWO // 2, "linked": TWO // 2, "others": THREE}
    mine = {kind: more[kind][-count:] for kind, count in counts.items()}
    warm = [task for kind, tasks in more.items() for task in tasks[: -len(mine[kind])]]
    two = [task for pair in zip(fresh["two"], fresh["linked"], strict=True) for task in pair]
    warm += [task for category, count in WARM.items() for task in pools[category][:count]]
    simple, multiple, refuse, several = (pools[category][count:] for category, count in WARM.items())
    mixed = {
        "stage1_format": (fresh["one"], mine["one"], simple[: ONE // 2], multiple[: ONE // 4], refuse[: ONE // 2]),
        "stage2_base": (
            *(two[: 23 * TWO // 4], mine["two"] + mine["linked"]),
            *(simple[ONE // 2 :][: TWO // 2], multiple[ONE // 4 :][: TWO // 4], refuse[ONE // 2 :][: TWO // 2]),
        ),
        "stage3_full": (
            *(two[23 * TWO // 4 :] + fresh["others"], mine["others"]),
            *(simple[-THREE // 2 :], several[: THREE // 2], multiple[-THREE // 4 :], refuse[-THREE // 2 :]),
        ),
    }
    chosen = {WARM_START: Random(seed).sample(warm, len(warm))}
    for name, groups in mixed.items():
        chosen[f"{name}_long.parquet"] = rows = _alternating(groups, f"{seed} {name}")
        chosen[f"{name}.parquet"] = rows[: 8 * FEW]
    chosen[SFT_ALL] = [*dict.fromkeys(task for tasks in chosen.values() for task in tasks)]
    for name, part in HELD_OUT.items():
        tasks = [task for each in made.values() for task in _first(each[part], FEWER.get(name))]
        for category, count in VALIDATED[name].items():
            tasks += _pool(category, part, 0)[:count]
        chosen[name] = sorted(tasks, key=lambda task: -len([*task.gold()]))  # the others are played meanwhile
    return {name: DataSet(KINDS.get(name, "train"), tasks, MAX_RESULT_CHARS) for name, tasks in chosen.items()}


def _generated(words: Words, out: Path, seed: int) -> dict[Part, dict[KIND, list[Task]]]:
    """Generated tasks by part and kind; their file is `WORDS_words.json`. Two seeds have no id in common."""
    wanted = [(part, kind, count) for part, kinds in GENERATED[words].items() for kind, count in kinds.items()]
    entries = list[dict[str, Any]]()
    for part, kind, count in wanted:
        turns, forms = SHAPES[kind]
        shape = Shape(classes=CLASSES, turns=turns, operations=1, forms=forms, words=words, linked=kind == "linked")
        entries += generate(part, count, 10 * seed + [*SHAPES].index(kind), shape)
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{words}_words.json"
    with path.open("w", encoding="utf-8") as file:
        for number, entry in enumerate(entries, 100_000 * (seed - 1)):
            entry["id"] = f"{entry['id'].rpartition('_')[0]}_{number}"
            print(json.dumps(entry, ensure_ascii=False), file=file)
    tasks = iter(load_tasks(named(str(path))).values())
    found: dict[Part, dict[KIND, list[Task]]] = {part: {} for part in get_args(Part)}
    for part, kind, count in wanted:
        found[part][kind] = [next(tasks) for _ in range(count)]
    return found


def _first(kinds: Mapping[KIND, Sequence[Task]], count: int | None) -> list[Task]:
    """So many tasks, of each kind its share; None: all."""
    whole = sum(map(len, kinds.values()))
    return [task for tasks in kinds.values() for task in tasks[: round(len(tasks) * (count or whole) / whole)]]


def _own(name: str, seed: int) -> dict[str, DataSet]:
    """The files of a user's environment: tasks of few turns first, and all that are held out.

    Raises:
        ValueError: it has too few tasks to train on.
    """
    tasks = [*load_tasks(name).values()]
    left = [task for task in tasks if task.part == "train"]
    if len(left) <= (wanted := sum(OWN.values())):
        raise ValueError(f"{name} has {len(left)} tasks to train on; --laptop takes more than {wanted}")
    sets = {}
    rows = {f"{stage}.parquet": count for stage, count in OWN.items()}
    for file, count in {WARM_START: len(left) - wanted, **rows}.items():
        taken, left = left[:count], left[count:]
        taken.sort(key=lambda task: len([*task.gold()]))
        sets[file] = DataSet(KINDS.get(file, "train"), taken, MAX_RESULT_CHARS)
    for file, part in HELD_OUT.items():
        held_out = [task for task in tasks if task.part == part]
        beside = _pool("multi_turn_base", part, 0)[: VALIDATED[file]["multi_turn_base"]]
        sets[file] = DataSet("val", _alternating([held_out, beside], f"{seed} {file}"), MAX_RESULT_CHARS)
    return sets


def _pool(category: str, part: Part, seed: int) -> list[Task]:
    """BFCL's tasks of a category and a part, in a random order; those of several turns by their length."""
    several = category in FORMS
    all_tasks = load_tasks("bfcl" if several else "bfcl_single").values()
    tasks = [task for task in all_tasks if (task.category, task.part) == (category, part)]
    return sorted(tasks, key=_length) if several else Random(f"{seed} {category}").sample(tasks, len(tasks))


def _length(task: Task) -> int:
    """Characters of the gold conversation."""
    messages = gold_messages(task, get_protocol(PROTOCOL, docs="signature"), MAX_RESULT_CHARS)
    return sum(len(message["content"]) for message in messages)


def _alternating(groups: Sequence[Sequence[Task]], name: str) -> list[Task]:
    """All tasks, those of each group in a random order and spread evenly."""
    placed = [
        ((number + 0.5) / len(group), task)
        for group in groups
        for number, task in enumerate(Random(name).sample(group, len(group)))
    ]
    return [task for _, task in sorted(placed, key=lambda pair: pair[0])]
