"""Which of BFCL's tasks go into which file of a data set: those of the stages, or the few short ones of the CPU demo.

A model of a million parameters learns about a dozen short conversations and no more, so the demo takes tasks with
few turns and little text. The length counted here is that of the task itself (names, requests, calls, results),
not of a protocol's prompt: changing a prompt must not change which tasks are chosen.
"""

from collections.abc import Mapping
from typing import Any

from bfcl_env.episode import Episode
from bfcl_env.scenarios import CATEGORIES, Scenario, load_scenarios, read_split, train_indices
from bfcl_env.source import DATA_SHA256, VERSION
from interaction.environment import DataSet

FORMAT_ROWS = 75
"""Stage 1 trains on the base tasks of the first 75 training indices as drawn."""

MAX_TURNS = 3
MAX_LENGTH = 2_250
"""Characters. Leaves 16 tasks of the first 42 candidates, each at most 800 tokens with a small vocabulary."""
MAX_RESULT_CHARS = 300
SFT_TASKS = 16
"""Tasks of the warm-up; the reinforcement learning that follows uses `RL_TASKS` of them."""
RL_TURNS = 2
"""Turns of a task for reinforcement learning: with fewer, a step is faster and a good turn easier to credit."""
RL_TASKS = 4
"""Few tasks and many rollouts of each, so that every step sees every task."""


def data_sets(tiny: bool = False, options: Mapping[str, Any] | None = None) -> dict[str, DataSet]:
    """File -> its tasks; no option changes them.

    Raises:
        SourceError: bfcl-eval is missing or is not the pinned release.
    """
    if tiny:
        short, rl = demo_tasks()
        whole, *forms = one_per_category(rl)
        held_out = (load_scenarios("multi_turn_base", split=part) for part in ("dev", "test"))
        # The tiny policy passes none of them, so one each will do.
        val = [next(scenario for scenario in part if is_short(scenario)) for part in held_out]
        # Without the forms of stage 3 the policy never passes one, and rollouts that all fail teach nothing.
        return {
            "tiny_format.parquet": DataSet("train", rl),
            "tiny_base.parquet": DataSet("train", rl),
            "tiny_full.parquet": DataSet("train", [whole, *forms]),
            "tiny_val.parquet": DataSet("val", [form_of(task, name) for name in CATEGORIES for task in val]),
            "tiny_sft.parquet": DataSet("sft", short + forms, MAX_RESULT_CHARS),
        }
    first = frozenset(train_indices()[:FORMAT_ROWS])
    base: tuple[Scenario, ...] = load_scenarios("multi_turn_base", split="train")
    train = load_scenarios(split="train")
    return {
        "train_format_75.parquet": DataSet("train", [item for item in base if item.index in first]),
        "bfcl_train_base.parquet": DataSet("train", base),
        "bfcl_train.parquet": DataSet("train", train),
        "bfcl_val.parquet": DataSet("val", load_scenarios(split="val")),
        "sft_train.parquet": DataSet("sft", train),
    }


def made_from() -> dict[str, Any]:
    """What the tasks were made from, for the manifest of a data set."""
    return {"seed": read_split()["seed"], "bfcl_eval": VERSION, "data_sha256": DATA_SHA256}


def length(scenario: Scenario) -> int:
    """Characters of the task: names and types of its functions, requests, gold calls and results."""
    total = 0
    for doc in scenario.functions(0):
        properties = doc["parameters"]["properties"]
        total += len(doc["name"]) + sum(len(name) + len(schema["type"]) + 4 for name, schema in properties.items())
    with Episode(scenario) as episode:
        for turn in scenario.turns:
            total += len(turn.user)
            for call in turn.gold:
                total += len(str(call)) + len(episode.execute(call).text[:MAX_RESULT_CHARS])
            episode.end_turn()
    return total


def is_short(scenario: Scenario) -> bool:
    """Whether the demo can use this task."""
    return len(scenario.turns) <= MAX_TURNS and length(scenario) <= MAX_LENGTH


def demo_tasks() -> tuple[list[Scenario], list[Scenario]]:
    """The first short base tasks in the order of the training indices, and the shortest of those with few turns."""
    base = load_scenarios("multi_turn_base")
    short = [base[index] for index in train_indices() if is_short(base[index])][:SFT_TASKS]
    few_turns = [scenario for scenario in short if len(scenario.turns) <= RL_TURNS]
    return short, sorted(few_turns, key=length)[:RL_TASKS]


def form_of(task: Scenario, category: str) -> Scenario:
    """The same task in another category."""
    return load_scenarios(category)[task.index]


def one_per_category(tasks: list[Scenario]) -> list[Scenario]:
    """As many rows as categories: the last task as it is, the first three as other categories dress them.

    Not every task in every category: sixteen rows would make a step four times as long, and some long-context forms
    alone would fill the demo's context.
    """
    return [form_of(task, name) for name, task in zip(CATEGORIES, tasks[-1:] + tasks[:-1], strict=True)]
