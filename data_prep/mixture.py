"""Tasks of some categories, and one data set of several environments by weight: `bfcl/base=2 bfcl_single=1`.

A weight is a share of the rows, so 2 and 1 make two thirds and one third. Without a number of rows there are as many
as the shares allow without taking a task twice. Tasks are drawn with a seed of their own for each name, so that the
weight of one changes no other's order.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Literal

from interaction.environment import DataSet, Task, is_file, known, load_tasks, named

SEED = 20261122
DRAWN_AS = {"train": "train", "dev": "choose", "test": "report"}
"""Part -> its word in a seed; other words would draw other tasks than those of the published results."""
NAMES: Mapping[Literal["train", "val", "sft"], str] = {
    "train": "mixture_train.parquet",
    "val": "mixture_val.parquet",
    "sft": "mixture_sft.parquet",
}
Sets = Mapping[str, DataSet]
"""File -> its tasks."""

PREFIX = "multi_turn_"
"""BFCL's categories may be named without it."""


def categories_of(environment: str) -> list[str]:
    """All categories of an environment, in its order."""
    return [*dict.fromkeys(task.category for task in load_tasks(environment).values())]


def full_names(environment: str, names: Sequence[str]) -> list[str]:
    """Categories as tasks name them, in the environment's order.

    Raises:
        ValueError: the environment has no such category.
    """
    known = categories_of(environment)
    for name in names:
        if name not in known and PREFIX + name not in known:
            short = ", ".join(item.removeprefix(PREFIX) for item in known)
            raise ValueError(f"{name!r} is no category of environment {environment}; known: {short}")
    return [name for name in known if name in names or name.removeprefix(PREFIX) in names]


def of_categories(sets: Sets, categories: Sequence[str]) -> dict[str, DataSet]:
    """The tasks of these categories; files that have none are left out."""
    chosen = where(sets, lambda task: task.category in categories)
    return {name: one for name, one in chosen.items() if one.tasks}


def where(sets: Sets, condition: Callable[[Task], bool]) -> dict[str, DataSet]:
    """The same files with the tasks of which this holds."""
    return {name: replace(one, tasks=[task for task in one.tasks if condition(task)]) for name, one in sets.items()}


@dataclass(frozen=True, slots=True)
class Ingredient:
    """What one name of a mixture stands for."""

    name: str
    weight: float
    environment: str
    categories: tuple[str, ...]
    """Empty: all."""

    def pool(self, sets: Sets, kind: str) -> list[Task]:
        """The tasks of one kind in the environment's own files, each once."""
        chosen = of_categories(sets, self.categories) if self.categories else sets
        return [*{task.id: task for one in chosen.values() if one.kind == kind for task in one.tasks}.values()]


def read(weights: Mapping[str, float]) -> list[Ingredient]:
    """What the names stand for: an environment, or one of its categories as `environment/category`.

    Raises:
        ValueError: an unknown name, a weight that is none, or two names with tasks in common.
    """
    found: list[Ingredient] = []
    for name, weight in weights.items():
        environment, _, category = (name, "", "") if name in known() or is_file(name) else name.rpartition("/")
        if not environment:
            raise ValueError(
                f"the mixture names {name!r}; expected an environment, or one of its categories as "
                f"environment/category; environments: {', '.join(sorted(known()))}"
            )
        if not (0 < weight < math.inf):
            raise ValueError(f"the weight of {name} is {weight:g}; expected a number above 0, or leave {name} out")
        environment = named(environment)
        one = Ingredient(name, weight, environment, tuple(full_names(environment, [category] if category else [])))
        for other in found:
            both = not one.categories or not other.categories or {*one.categories} & {*other.categories}
            if one.environment == other.environment and both:
                raise ValueError(f"the mixture has {other.name} and {one.name}, which have tasks in common; give one")
        found.append(one)
    return found


def mixed(
    ingredients: Sequence[Ingredient], sets: Mapping[str, Sets], rows: Mapping[str, int | None]
) -> tuple[dict[str, DataSet], dict[str, Any]]:
    """The files of the mixture, and what it is made of, for the manifest.

    Args:
        sets: environment -> its own files.
        rows: of `train` and `val`, how many; None: as many as there are.

    Raises:
        ValueError: there are not so many.
    """
    drawn: dict[str, list[Task]] = {"train": [], "val": [], "sft": []}
    made: dict[str, Any] = {item.name: {"weight": item.weight} for item in ingredients}
    weights = {item.name: item.weight for item in ingredients}
    for kind in ("train", "val"):
        pools = {item.name: item.pool(sets[item.environment], kind) for item in ingredients}
        most = min(len(pools[name]) / weight for name, weight in weights.items()) * math.fsum(weights.values())
        total = rows[kind]
        for name, count in shares(math.floor(most + 1e-9) if total is None else total, weights).items():
            if count > len(pools[name]):
                raise ValueError(
                    f"{name} has {len(pools[name])} {kind} tasks, and {count} are its share of {total} rows; at most "
                    f"{math.floor(most)} rows are possible with these weights"
                )
            drawn[kind] += draw(pools[name], count, name)
            made[name][kind] = count
    trained = {(task.environment, task.id) for task in drawn["train"]}
    for item in ingredients:
        shown = item.pool(sets[item.environment], "sft")
        drawn["sft"] += [task for task in shown if (task.environment, task.id) in trained]
    files = {name: DataSet(kind, drawn[kind]) for kind, name in NAMES.items()}
    return files, {"seed": SEED, **made}


def shares(total: int, weights: Mapping[Any, float]) -> dict[Any, int]:
    """A number in parts by weight: whole numbers that add up to it, each less than 1 off."""
    exact = {name: total * weight / math.fsum(weights.values()) for name, weight in weights.items()}
    found = {name: math.floor(value) for name, value in exact.items()}
    most_lacking = sorted(exact, key=lambda name: found[name] - exact[name])
    for name in most_lacking[: total - sum(found.values())]:
        found[name] += 1
    return found


def draw(pool: Sequence[Task], count: int, name: str) -> list[Task]:
    """So many tasks in the order of the pool, of each part its share."""
    parts: dict[str, list[Task]] = {}
    for task in pool:
        parts.setdefault(task.part, []).append(task)
    counts = shares(count, {part: len(tasks) for part, tasks in parts.items()})
    drawn = set()
    for part, tasks in parts.items():
        drawn |= {task.id for task in Random(f"{SEED} {name} {DRAWN_AS[part]}").sample(tasks, counts[part])}
    return [task for task in pool if task.id in drawn]
