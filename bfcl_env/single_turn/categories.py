"""BFCL's single-turn categories: which language the functions are of, and what a right message is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from bfcl_env.single_turn.checker import Language

Wanted = Literal["accepted", "no call", "any call"]


@dataclass(frozen=True, slots=True)
class Category:
    """What the tasks of a category have in common."""

    language: Language = "python"
    parallel: bool = False
    """Whether several calls are asked for, in any order; else exactly one."""
    wanted: Wanted = "accepted"
    """Calls that the data accepts; no call, because no function helps; or any call, because one does."""


CATEGORIES: Mapping[str, Category] = {
    "simple_python": Category(),
    "simple_java": Category(language="java"),
    "simple_javascript": Category(language="javascript"),
    "multiple": Category(),
    "parallel": Category(parallel=True),
    "parallel_multiple": Category(parallel=True),
    "irrelevance": Category(wanted="no call"),
    "live_simple": Category(),
    "live_multiple": Category(),
    "live_parallel": Category(parallel=True),
    "live_parallel_multiple": Category(parallel=True),
    "live_irrelevance": Category(wanted="no call"),
    "live_relevance": Category(wanted="any call"),
}
"""The 13 that BFCL scores, in its order."""
