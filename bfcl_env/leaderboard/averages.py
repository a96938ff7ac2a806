"""How BFCL's leaderboard (v4) combines categories: `generate_leaderboard_csv` of bfcl-eval 2026.3.23.

    non-live     mean of simple (mean of Python, Java, JavaScript), multiple, parallel, parallel multiple
    live         mean of the four live categories with accepted calls, each by its number of tasks
    irrelevance  mean of the two
    multi-turn   mean of the four
    agentic      mean of web search (mean of 2) and memory (mean of 3)
    overall      10 % non-live, 10 % live, 10 % irrelevance, 30 % multi-turn, 40 % agentic

Relevance is shown and in no average. The agentic categories are not played here, and neither is format_sensitivity,
which is shown beside the score; the leaderboard takes what is not played for 0, and an average that would need it is
left out here.
"""

from collections.abc import Mapping
from math import fsum

LIVE = ("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple")
MEANS = {
    "simple": ("simple_python", "simple_java", "simple_javascript"),
    "non-live": ("simple", "multiple", "parallel", "parallel_multiple"),
    "irrelevance": ("irrelevance", "live_irrelevance"),
    "multi-turn": ("multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param", "multi_turn_long_context"),
    "web search": ("web_search_base", "web_search_no_snippet"),
    "memory": ("memory_kv", "memory_vector", "memory_rec_sum"),
    "agentic": ("web search", "memory"),
}
"""Name of an average -> the categories and earlier averages that it is the mean of."""
WEIGHTS = {"non-live": 0.1, "live": 0.1, "irrelevance": 0.1, "multi-turn": 0.3, "agentic": 0.4}

CATEGORIES = (
    *(*MEANS["simple"], *MEANS["non-live"][1:], *LIVE, *MEANS["irrelevance"], "live_relevance"),
    *(*MEANS["multi-turn"], *MEANS["web search"], *MEANS["memory"]),
)
"""All that the leaderboard shows but format_sensitivity."""


def averages(accuracies: Mapping[str, tuple[float, int]]) -> dict[str, float]:
    """Name of an average -> its value, of those whose categories are all there.

    Args:
        accuracies: category -> accuracy by BFCL's rule (0 to 1), and the number of tasks it was measured on.
    """
    found: dict[str, float] = {}
    for name, parts in MEANS.items():
        known = {category: accuracy for category, (accuracy, _) in accuracies.items()} | found
        if known.keys() >= {*parts}:
            found[name] = fsum(known[part] for part in parts) / len(parts)
    if accuracies.keys() >= {*LIVE}:
        tasks = sum(accuracies[name][1] for name in LIVE)
        found["live"] = fsum(accuracies[name][0] * accuracies[name][1] for name in LIVE) / tasks
    if found.keys() >= WEIGHTS.keys():
        found["overall"] = fsum(found[name] * weight for name, weight in WEIGHTS.items())
    return {name: found[name] for name in (*WEIGHTS, "overall") if name in found}


def missing(accuracies: Mapping[str, tuple[float, int]]) -> tuple[str, ...]:
    """The leaderboard's categories that were not played."""
    return tuple(name for name in (*CATEGORIES, "format_sensitivity") if name not in accuracies)
