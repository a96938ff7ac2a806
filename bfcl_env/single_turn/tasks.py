"""BFCL's single-turn tasks as frozen data: one question, functions, and the calls that are accepted."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, ClassVar

from bfcl_env.single_turn import components
from bfcl_env.single_turn.categories import CATEGORIES, Category
from bfcl_env.single_turn.checker import check_calls
from bfcl_env.single_turn.data_files import read_categories
from bfcl_env.single_turn.gold import gold_calls
from interaction.environment import GoldMessage, Part

if TYPE_CHECKING:
    from bfcl_env.single_turn.environment import SingleTurnEnvironment

NO_FUNCTION_HELPS = "None of the functions that I have can do this."
"""Gold's answer where none is to be called. What it says does not count."""


@dataclass(frozen=True, slots=True, eq=False)
class SingleTurnTask:
    """One task; its documents are read when they are first needed."""

    id: str
    category: str
    cluster: str
    part: Part
    entry_json: str
    """BFCL's question and functions; text, so that nothing can change them."""
    answer_json: str
    """The calls that BFCL accepts; empty where it looks only whether there is a call."""

    environment: ClassVar[str] = "bfcl_single"

    @property
    def kind(self) -> Category:
        """What its category has in common."""
        return CATEGORIES[self.category]

    @property
    def messages(self) -> list[dict[str, str]]:
        """The question: a request, in a few tasks after a system message, or at the end of a conversation."""
        return json.loads(self.entry_json)["question"][0]

    @property
    def functions(self) -> list[dict[str, Any]]:
        """BFCL's documents (name, description, parameters), the caller's own copy."""
        return json.loads(self.entry_json)["function"]

    @property
    def accepted(self) -> list[dict[str, Any]]:
        """The calls that are accepted, [{function: {argument: [accepted values]}}], the caller's own copy."""
        return json.loads(self.answer_json)["ground_truth"] if self.answer_json else []

    def open(self, **options: Any) -> "SingleTurnEnvironment":
        """A fresh attempt; there are no options."""
        from bfcl_env.single_turn.environment import SingleTurnEnvironment

        return SingleTurnEnvironment(self, **options)

    def gold(self) -> Iterator[GoldMessage]:
        """One message: calls with the first accepted values, or an answer.

        None where no calls are known that pass: BFCL has none for `live_relevance`, and four other tasks accept no
        value for an argument that must be given, or demand one that there is not (`failing_gold`).
        """
        kind = self.kind
        if kind.wanted == "no call":
            yield GoldMessage(answer=NO_FUNCTION_HELPS)
        elif kind.wanted == "accepted":
            functions, accepted = self.functions, self.accepted
            calls = gold_calls(accepted, functions, kind.language)
            if check_calls(calls, functions, accepted, kind.language, parallel=kind.parallel).passed:
                yield GoldMessage(calls)


@cache
def load_tasks() -> tuple[SingleTurnTask, ...]:
    """All 3,641 tasks, category by category.

    Raises:
        SourceError: bfcl-eval is missing or is not the pinned release.
    """
    read = read_categories()
    entries = {name: [json.loads(text) for text, _ in pairs] for name, pairs in read.items()}
    categories = {entry["id"]: name for name, those in entries.items() for entry in those}
    clusters = components.components([entry for those in entries.values() for entry in those])
    parts = components.parts(categories, clusters, failing_gold())
    return tuple(
        SingleTurnTask(entry["id"], name, clusters[entry["id"]], parts[clusters[entry["id"]]], *texts)
        for name, pairs in read.items()
        for entry, texts in zip(entries[name], pairs, strict=True)
    )


@cache
def failing_gold() -> dict[str, str]:
    """Id -> why BFCL's own checker fails whatever its data accepts. These tasks are held out."""
    found = json.loads(files("bfcl_env.single_turn").joinpath("failing_gold.json").read_text("utf-8"))["tasks"]
    return {name: item["reason"] for name, item in found.items() if item["official"] == "never"}
