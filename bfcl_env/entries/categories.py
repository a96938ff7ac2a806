"""What an entry's id says: its category, in any of the spellings that BFCL's releases and users' files have."""

from typing import Literal

Language = Literal["python", "java", "javascript"]

CATEGORIES: dict[str, str] = {
    "multi_turn": "multi_turn_base",
    "multi_turn_python": "multi_turn_base",
    "multi_turn_base": "multi_turn_base",
    "multi_turn_miss_func": "multi_turn_miss_func",
    "multi_turn_miss_param": "multi_turn_miss_param",
    "multi_turn_long_context": "multi_turn_long_context",
    "simple": "simple_python",
    "python": "simple_python",
    "simple_python": "simple_python",
    "java": "simple_java",
    "simple_java": "simple_java",
    "javascript": "simple_javascript",
    "simple_javascript": "simple_javascript",
    "multiple": "multiple",
    "multiple_python": "multiple",
    "multiple_java": "multiple_java",
    "multiple_javascript": "multiple_javascript",
    "parallel": "parallel",
    "parallel_python": "parallel",
    "parallel_java": "parallel_java",
    "parallel_javascript": "parallel_javascript",
    "parallel_multiple": "parallel_multiple",
    "parallel_multiple_python": "parallel_multiple",
    "parallel_multiple_java": "parallel_multiple_java",
    "parallel_multiple_javascript": "parallel_multiple_javascript",
    "irrelevance": "irrelevance",
    "relevance": "relevance",
    "live_simple": "live_simple",
    "live_multiple": "live_multiple",
    "live_parallel": "live_parallel",
    "live_parallel_multiple": "live_parallel_multiple",
    "live_irrelevance": "live_irrelevance",
    "live_relevance": "live_relevance",
}
"""How ids begin, with `_` for `-`, up to their last `_` -> category: that of BFCL, and where BFCL has none, one alike.

`simple_0` and `java_0` are those of BFCL's third release, `simple_python_0` and `simple_java_0` those of its fourth."""

EXPECTED = (
    "its category, an underscore, and a number or name without one, such as multi_turn_base_0;"
    f" known are {', '.join(CATEGORIES)}"
)


def category_of(entry_id: str) -> str | None:
    """The category that an id names; None if it names none."""
    spelling, _, number = entry_id.rpartition("_")
    return CATEGORIES.get(spelling.replace("-", "_").lower()) if number else None


def is_multi_turn(category: str) -> bool:
    """Whether its calls are executed, over several turns."""
    return category.startswith("multi_turn")


def language_of(category: str) -> Language:
    """The language in which its values are written."""
    if category.endswith("_javascript"):
        return "javascript"
    return "java" if category.endswith("_java") else "python"
