"""What is said of lost episodes: the causes, the most frequent first, and what to do where nothing else is there."""

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from recipe.files import Damaged, read_json

RESULTS = "results.json"

CONTEXT = "the server's context does not hold the prompt"
NOT_TRIED = "not tried"
THE_USER = "the user"
"""Beginnings of reasons; what was not tried is lost for what came before it."""

LONGER = (
    "The same command plays them again with a longer context of the server (with --model: -- --max-model-len N, where "
    "the model has it); or choose shorter descriptions of functions (--docs signature, where they are not), another "
    "--category or another model, with another --out"
)
AGAIN = "See whether {} answers; the same command plays lost episodes again"
SERVER, USER = "the server (its log is server.log, where vLLM was started for this)", "who plays the user (--user)"

MOST_CAUSES = 3


def causes(reasons: Iterable[str]) -> list[tuple[int, str]]:
    """How often each cause, with one of its reasons: reasons that differ in numbers only have one cause."""
    found: dict[str, list[str]] = defaultdict(list)
    for reason in reasons:
        kind = next((known for known in (CONTEXT, NOT_TRIED) if reason.startswith(known)), None)
        found[kind or re.sub(r"\d+", "0", reason)].append(reason)
    ranked = sorted(found.items(), key=lambda item: (item[0] == NOT_TRIED, -len(item[1])))
    return [(len(given), given[0]) for _, given in ranked]


def told(reasons: Iterable[str]) -> str:
    """The first few, a line for each."""
    return "".join(f"\n  {count} x {reason}" for count, reason in causes(reasons)[:MOST_CAUSES])


def remedy(reasons: Iterable[str]) -> str:
    """What to do about the most frequent cause."""
    _, reason = causes(reasons)[0]
    if reason.startswith(CONTEXT):
        return LONGER
    return AGAIN.format(USER if reason.startswith(THE_USER) else SERVER)


def all_lost(folder: Path) -> str | None:
    """That every episode of an evaluation was lost, why, and what to do; None where its results do not say so."""
    try:
        found = read_json(folder / RESULTS)
        reasons = [str(item["reason"]) for item in found["lost"]]
        if not reasons or found["overall"] is not None:
            return None
    except (OSError, Damaged, ValueError, KeyError, TypeError):
        return None
    count, reason = causes(reasons)[0]
    return (
        f"{folder} holds no episode: all {len(reasons)} were lost, {count} of them to one cause: {reason.rstrip('.')}. "
        f"{remedy(reasons)}"
    )
