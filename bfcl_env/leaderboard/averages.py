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

from collections.abc import Mapping, Sequence
from math import fsum

SIMPLE = ("simple_python", "simple_java", "simple_javascript")
NON_LIVE = ("simple", "multiple", "parallel", "parallel_multiple")
LIVE = ("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple")
IRRELEVANCE = ("irrelevance", "live_irrelevance")
MULTI_TURN = ("multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param", "multi_turn_long_context")
WEB_SEARCH = ("web_search_base", "web_search_no_snippet")
MEMORY = ("memory_kv", "memory_vector", "memory_rec_sum")
WEIGHTS = {"non-live": 0.1, "live": 0.1, "irrelevance": 0.1, "multi-turn": 0.3, "agentic": 0.4}

CATEGORIES = (*SIMPLE, *NON_LIVE[1:], *LIVE, *IRRELEVANCE, "live_relevance", *MULTI_TURN, *WEB_SEARCH, *MEMORY)
"""All that the leaderboard shows but format_sensitivity."""


def averages(accuracies: Mapping[str, tuple[float, int]]) -> dict[str, float]:
    """Name of an average -> its value, of those whose categories are all there.

    Args:
        accuracies: category -> accuracy by BFCL's rule (0 to 1), and the number of tasks it was measured on.
    """
    known = {name: accuracy for name, (accuracy, _) in accuracies.items()}
    _add(known, "simple", SIMPLE)
    found: dict[str, float] = {}
    for name, parts in {"non-live": NON_LIVE, "irrelevance": IRRELEVANCE, "multi-turn": MULTI_TURN}.items():
        if known.keys() >= {*parts}:
            found[name] = _mean(known, parts)
    if known.keys() >= {*LIVE}:
        tasks = [accuracies[name][1] for name in LIVE]
        found["live"] = fsum(known[name] * count for name, count in zip(LIVE, tasks, strict=True)) / sum(tasks)
    _add(known, "web search", WEB_SEARCH)
    _add(known, "memory", MEMORY)
    if known.keys() >= {"web search", "memory"}:
        found["agentic"] = _mean(known, ("web search", "memory"))
    if found.keys() >= WEIGHTS.keys():
        found["overall"] = fsum(found[name] * weight for name, weight in WEIGHTS.items())
    return {name: found[name] for name in (*WEIGHTS, "overall") if name in found}


def missing(accuracies: Mapping[str, tuple[float, int]]) -> tuple[str, ...]:
    """The leaderboard's categories that were not played."""
    return tuple(name for name in (*CATEGORIES, "format_sensitivity") if name not in accuracies)


def _add(known: dict[str, float], name: str, parts: Sequence[str]) -> None:
    if known.keys() >= {*parts}:
        known[name] = _mean(known, parts)


def _mean(known: Mapping[str, float], parts: Sequence[str]) -> float:
    return fsum(known[name] for name in parts) / len(parts)
