"""The house: arrows between rooms point one way, and what a person starts is imported by nobody."""

import ast
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from recipe.preflight.machine import CODE

ROOT = Path(__file__).parents[2]
KNOWS = {
    "interaction": set(),
    "rewards": {"interaction"},
    "bfcl_env": {"interaction"},
    "tau_env": {"interaction"},
    "data_prep": {"interaction", "bfcl_env"},  # the latter generates the tasks of `--laptop`
    "elsewhere": {"interaction", "rewards"},
    "recipe": {"interaction", "rewards", "data_prep"},
}
"""Which packages a package may import; environments are found by name in `interaction.environment`."""
STARTED = ("recipe.train", "recipe.sft", "recipe.evaluate", "recipe.rescore", "recipe.votes.judge")


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for package in KNOWS for path in (ROOT / package).rglob("*.py")}


@cache
def imported(name: str) -> set[str]:
    """Modules of ours that a module imports, wherever in it; relative imports stay within a room."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {full if (full := f"{node.module}.{item.name}") in MODULES else node.module for item in node.names}
        elif isinstance(node, ast.Import):
            found |= {item.name for item in node.names}
    return found & MODULES.keys()


def room_of(name: str) -> str:
    """A folder of recipe/, a file at its top, or another package."""
    parts = name.split(".")
    return ".".join(parts[:2]) if parts[0] == "recipe" else parts[0]


def test_no_two_rooms_know_each_other() -> None:
    arrows: dict[str, set[str]] = {}
    for name in MODULES:
        arrows.setdefault(room_of(name), set()).update(map(room_of, imported(name)))
    TopologicalSorter({room: seen - {room} for room, seen in arrows.items()}).prepare()  # or CycleError, with the rooms


def test_packages_know_only_those_below_them() -> None:
    for package, below in KNOWS.items():
        names = [name for name in MODULES if name.split(".")[0] == package]
        seen = {other.split(".")[0]: name for name in names for other in imported(name)}
        assert seen.keys() <= below | {package}, {other: seen[other] for other in seen.keys() - below - {package}}


def test_nodes_compare_all_code_that_workers_run() -> None:
    assert {*CODE} == KNOWS.keys() - {"elsewhere"}


def test_what_a_person_starts_is_imported_by_nobody() -> None:
    for name in MODULES:
        wrong = {other for other in imported(name) if other in STARTED or other.endswith("__main__")}
        wrong |= {other for other in imported(name) if room_of(other) == "recipe.tools" != room_of(name)}
        assert not wrong, f"{name} imports {wrong}"
    train = {"recipe.train"}
    while more := {other for name in train for other in imported(name)} - train:
        train |= more
    assert not [name for name in train if room_of(name) in ("recipe.report", "recipe.tools")]
