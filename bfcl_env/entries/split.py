"""Which entries resemble each other, and so never stand on both sides of a split."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from bfcl_env.single_turn.components import joined

Mark = tuple[str, str, str]
"""What entries have in common that resemble each other: kind, name, value."""

QUESTION = "question"
_BETWEEN = re.compile(r"\W+")


def marks(entry: Mapping[str, Any]) -> list[Mark]:
    """Those of an entry that has been read: its words, letters and digits alike, functions of its own, and states."""
    words = " ".join(message["content"] for turn in entry["question"] for message in turn)
    found: list[Mark] = [(QUESTION, "", _BETWEEN.sub("", words.casefold()))]
    if config := entry.get("initial_config"):
        found.append(("state", "", json.dumps(config, sort_keys=True)))
    elif not entry.get("involved_classes"):
        functions = entry["function"]
        found += [("function", item["name"], json.dumps(item["parameters"], sort_keys=True)) for item in functions]
    return found


def clusters(entries: Mapping[str, list[Mark]], notes: list[str]) -> dict[str, str]:
    """Id of an entry -> the id of the first entry of its cluster: those joined to it by a mark, through others too.

    Where that would put more than half of all into one, as with tools or a state that all share, only questions join.

    Args:
        entries: id -> marks.
        notes: hears of the latter.
    """
    found = joined(entries)
    largest = max(Counter(found.values()).values(), default=0)
    if largest == 1 or largest * 2 <= len(entries):
        return found
    by_question = joined({name: [mark for mark in those if mark[0] == QUESTION] for name, those in entries.items()})
    if by_question != found:
        notes.append(
            f"{largest} of {len(entries)} entries share functions or initial states with each other, so only those with"
            " the same question are kept on one side of the split"
        )
    return by_question
