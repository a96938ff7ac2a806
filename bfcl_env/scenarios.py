"""Scenarios: one BFCL multi-turn task each, as frozen data.

The four categories are the same 200 tasks in four dresses, with mostly identical gold calls, so the split into
training and validation goes by task index: one set of 100 indices (`split.json`) for all categories. Of the other 100,
25 are dev tasks, which may choose a checkpoint or end a stage, and 75 are test tasks: a reported number is not the best
of several. Two held-out tasks resemble a training task: 66 starts from the same parked car as 70, and 40 begins with
the request of 43; both are dev tasks. Otherwise no initial state, and no list of gold calls, occurs in two parts.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, ClassVar

from bfcl_env.calls import parse_call
from bfcl_env.source import CATEGORIES, function_docs, read_rows
from interaction.call import Call
from interaction.environment import GoldMessage, Part

if TYPE_CHECKING:
    from bfcl_env.environment import BFCLEnvironment

SPLITS = ("train", "val", "dev", "test")
"""`val` is `dev` and `test` together."""

TASKS = 200

EARLY_GOLD = {"multi_turn_miss_func_49": {"tail": 1}}
"""Withheld functions that the scenario's own gold calls before their reveal turn: published from the turn given
here. This one case is all there is in the pinned data; loading fails if that ever changes."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One user request and the calls that fulfil it."""

    user: str
    """The request; empty in a turn that only reveals withheld functions."""
    gold: tuple[Call, ...]
    """BFCL's calls, keywords only; empty where the request cannot or need not be fulfilled by a call."""
    revealed: tuple[str, ...]
    """Names of the withheld functions that are published from this turn on."""


@dataclass(frozen=True, eq=False)
class Scenario:
    """One task: initial state, published functions, user turns. Immutable; episodes are made from it."""

    id: str
    category: str
    index: int
    """0 to 199, the same task in every category."""
    classes: tuple[str, ...]
    """Names of the executable classes involved."""
    turns: tuple[Turn, ...]
    config_json: tuple[tuple[str, str], ...]
    """(class name, initial state as JSON) pairs; text, so that nothing can change it."""

    @property
    def long_context(self) -> bool:
        """True if the classes shall pad their states and answers."""
        return self.category == "multi_turn_long_context"

    @property
    def initial_config(self) -> dict[str, Any]:
        """A fresh copy of the initial states by class name."""
        return {name: json.loads(text) for name, text in self.config_json}

    environment: ClassVar[str] = "bfcl"

    @property
    def cluster(self) -> str:
        """The index: the four categories dress the same tasks."""
        return str(self.index)

    @property
    def part(self) -> Part:
        """Where the split puts the task."""
        return part_of(self.index)

    def open(self, **options: Any) -> "BFCLEnvironment":
        """A fresh attempt, as a conversation plays it; `options` are the fields of `Options`."""
        from bfcl_env.environment import BFCLEnvironment, Options

        return BFCLEnvironment(self, Options(**options))

    def gold(self) -> Iterator[GoldMessage]:
        """All gold calls of a turn in one message, then an answer."""
        for turn in self.turns:
            if turn.gold:
                yield GoldMessage(turn.gold)
            yield GoldMessage(answer="done")

    def withheld(self, turn: int) -> tuple[str, ...]:
        """Names of the functions that are published only after this turn.

        Raises:
            IndexError: there is no such turn.
        """
        self._check(turn)
        return tuple(name for later in self.turns[turn + 1 :] for name in later.revealed)

    def functions(self, turn: int) -> list[dict[str, Any]]:
        """Docs ("name", "description", "parameters") of the functions that are visible in this turn.

        Functions revealed later than the first turn come last, in the order of their publication, as BFCL shows
        them. The list and its dicts are the caller's own copy.

        Raises:
            IndexError: there is no such turn.
        """
        self._check(turn)
        docs = {name: doc for class_name in self.classes for name, doc in _doc_texts()[class_name].items()}
        late = {name for item in self.turns for name in item.revealed}
        published = [name for item in self.turns[: turn + 1] for name in item.revealed]
        names = [name for name in docs if name not in late] + published
        return json.loads(f"[{','.join([docs[name] for name in names])}]")

    def visible(self, turn: int) -> frozenset[str]:
        """Names of the functions that can be called in this turn."""
        self._check(turn)
        return _class_functions(self.classes, self.withheld(turn))

    def _check(self, turn: int) -> None:
        if not 0 <= turn < len(self.turns):
            raise IndexError(f"{self.id} has turns 0 to {len(self.turns) - 1}, not {turn}")


@cache
def _doc_texts() -> dict[str, dict[str, str]]:
    return {owner: {name: json.dumps(doc) for name, doc in docs.items()} for owner, docs in function_docs().items()}


@cache
def _class_functions(classes: tuple[str, ...], withheld: tuple[str, ...]) -> frozenset[str]:
    return frozenset(name for class_name in classes for name in function_docs()[class_name]).difference(withheld)


@cache
def read_split() -> dict[str, Any]:
    """`seed`, and the indices of `train`, in the order in which they were drawn, and `dev`."""
    return json.loads(files("bfcl_env").joinpath("split.json").read_text("utf-8"))


def train_indices() -> tuple[int, ...]:
    """The 100 training indices in the order in which they were drawn; every other index is validation."""
    return tuple(read_split()["train"])


def part_of(index: int) -> Part:
    """`train`, `dev` or `test`: the part of the split to which the tasks with this index belong.

    Raises:
        ValueError: no task has this index.
    """
    if not 0 <= index < TASKS:
        raise ValueError(f"no task has the index {index}; they are 0 to {TASKS - 1}")
    split = read_split()
    return "train" if index in split["train"] else "dev" if index in split["dev"] else "test"


def load_scenarios(category: str | None = None, *, split: str | None = None) -> tuple[Scenario, ...]:
    """All scenarios of a category (default: of all four), by index; optionally only one of `SPLITS`.

    Raises:
        ValueError: no such category or split.
        SourceError: bfcl-eval is missing or is not the pinned release.
    """
    if category is not None and category not in CATEGORIES:
        raise ValueError(f"unknown category {category!r}: use one of {', '.join(CATEGORIES)}, or None for all")
    if split is not None and split not in SPLITS:
        raise ValueError(f"unknown split {split!r}: use {', '.join(map(repr, SPLITS))}, or None for all")
    return _load(category, split)


@cache
def _load(category: str | None, split: str | None) -> tuple[Scenario, ...]:
    if category is None:
        return tuple(scenario for name in CATEGORIES for scenario in _load(name, split))
    if split is not None:
        parts = ("dev", "test") if split == "val" else (split,)
        return tuple(item for item in _load(category, None) if part_of(item.index) in parts)
    answers = {row["id"]: row["ground_truth"] for row in read_rows(f"possible_answer/BFCL_v4_{category}.json")}
    rows = read_rows(f"BFCL_v4_{category}.json")
    return tuple(scenario_of(category, row, answers[row["id"]], int(row["id"].rsplit("_", 1)[1])) for row in rows)


def scenario_of(category: str, row: dict[str, Any], answer: list[list[str]], index: int) -> Scenario:
    """The scenario of a row in BFCL's form and its gold calls by turn, as texts.

    Raises:
        ValueError: turns and gold are not of one number, or gold calls what cannot be called then.
        CallError: a gold call is not one call of literals.
    """
    missed = {int(turn): tuple(names) for turn, names in row.get("missed_function", {}).items()}
    reveal = {name: turn for turn, names in missed.items() for name in names}
    reveal |= {name: turn for name, turn in EARLY_GOLD.get(row["id"], {}).items() if name in reveal}
    bare = Scenario(
        id=row["id"],
        category=category,
        index=index,
        classes=tuple(row["involved_classes"]),
        turns=(),
        config_json=tuple((name, json.dumps(row["initial_config"].get(name, {}))) for name in row["involved_classes"]),
    )
    turns = []
    for number, (messages, gold_texts) in enumerate(zip(row["question"], answer, strict=True)):
        gold = tuple(parse_call(text, bare) for text in gold_texts)
        for call in gold:
            if call.positional or reveal.get(call.name, 0) > number:
                raise ValueError(f"{bare.id}, turn {number}: unexpected gold call {call}")
        user = "\n".join(message["content"] for message in messages)
        turns.append(Turn(user, gold, tuple(name for name, turn in reveal.items() if turn == number)))
    return Scenario(bare.id, category, bare.index, bare.classes, tuple(turns), bare.config_json)
