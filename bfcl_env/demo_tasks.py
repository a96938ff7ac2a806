"""The few short scenarios of the CPU demo.

A model of a million parameters learns about a dozen short conversations and no more, so the demo takes tasks with
few turns and little text. The length counted here is that of the task itself (names, requests, calls, results),
not of a protocol's prompt: changing a prompt must not change which tasks are chosen.
"""

from bfcl_env.episode import Episode
from bfcl_env.scenarios import Scenario, load_scenarios, train_indices

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


def sft_tasks() -> list[Scenario]:
    """The first short base tasks in the order in which the training indices were drawn."""
    base = load_scenarios("multi_turn_base")
    drawn = (base[index] for index in train_indices())
    return [scenario for scenario in drawn if is_short(scenario)][:SFT_TASKS]


def sft_conversations() -> list[Scenario]:
    """What the warm-up shows: its base tasks, and those other forms that stage 3 of the demo trains on.

    Without the forms the policy never passes one, and a group of rollouts that all fail teaches nothing.
    """
    forms = [form for form in one_per_category(rl_tasks()) if form.category != "multi_turn_base"]
    return sft_tasks() + forms


def rl_tasks() -> list[Scenario]:
    """The shortest of the warm-up's tasks with at most `RL_TURNS` turns."""
    few_turns = [scenario for scenario in sft_tasks() if len(scenario.turns) <= RL_TURNS]
    return sorted(few_turns, key=length)[:RL_TASKS]


def val_tasks() -> list[Scenario]:
    """The first short dev and test tasks of base; the tiny policy passes none, so one each will do."""
    parts = (load_scenarios("multi_turn_base", split=part) for part in ("dev", "test"))
    return [next(scenario for scenario in part if is_short(scenario)) for part in parts]


def in_all_categories(tasks: list[Scenario]) -> list[Scenario]:
    """The same tasks in all four categories, category by category."""
    by_place = {(item.category, item.index): item for item in load_scenarios()}
    categories = dict.fromkeys(category for category, _ in by_place)
    return [by_place[category, task.index] for category in categories for task in tasks]


def one_per_category(tasks: list[Scenario]) -> list[Scenario]:
    """As many rows as categories: the last task as it is, the first three as other categories dress them.

    Not every task in every category: sixteen rows would make a step four times as long, and some long-context forms
    alone would fill the demo's context.
    """
    forms = in_all_categories(tasks)
    categories = list(dict.fromkeys(form.category for form in forms))
    rotated = tasks[-1:] + tasks[:-1]
    return [
        form
        for category, task in zip(categories, rotated, strict=True)
        for form in forms
        if (form.category, form.index) == (category, task.index)
    ]
