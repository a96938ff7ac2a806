"""The category that an entry's id names, in the spellings of BFCL's releases and of users' files."""

from itertools import product
from typing import get_args

from bfcl_env.single_turn.checker import Language
from bfcl_env.single_turn.tasks import CATEGORIES as BFCL
from bfcl_env.single_turn.tasks import Category, Wanted
from bfcl_env.source import CATEGORIES as MULTI_TURN

LANGUAGES: tuple[Language, ...] = get_args(Language)


def _spellings() -> dict[str, str]:
    found = {name: name for name in (*MULTI_TURN, *BFCL)}
    for kind, language in product(("simple", "multiple", "parallel", "parallel_multiple"), LANGUAGES):
        plain = language == "python" and kind != "simple"
        found[f"{kind}_{language}"] = kind if plain else f"{kind}_{language}"
    aliases = {"multi_turn": "multi_turn_base", "multi_turn_python": "multi_turn_base", "simple": "simple_python"}
    aliases["relevance"] = "relevance"
    return found | aliases | {language: f"simple_{language}" for language in LANGUAGES}


SPELLINGS = _spellings()
"""The beginning of an id, with `_` for `-` -> category: BFCL's, or one made like them where BFCL has none."""


def category_of(entry_id: str) -> str | None:
    """The category that an id names; None if it names none."""
    spelling, _, number = entry_id.rpartition("_")
    return SPELLINGS.get(spelling.replace("-", "_").lower()) if number else None


def kind_of(category: str) -> Category:
    """The language of a single-turn category, and the calls that it asks for."""
    if category in BFCL:
        return BFCL[category]
    language: Language = next((name for name in LANGUAGES if category.endswith(f"_{name}")), "python")
    wanted: Wanted = "any call" if category == "relevance" else "accepted"
    return Category(language, category.startswith("parallel"), wanted)
