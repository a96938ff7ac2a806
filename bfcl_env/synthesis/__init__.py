"""Generated tasks in BFCL's form, each of them verified: `generate`, `python -m bfcl_env.synthesis`."""

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

from bfcl_env.scenarios import scenario_of
from bfcl_env.synthesis.propose import Shape, entry_of, propose
from bfcl_env.synthesis.verify import problem
from interaction.environment import Part

__all__ = ["Shape", "generate"]

FIRST = {"train": 1000, "dev": 1001, "test": 1002}
"""Numbers of the first tasks, in steps of three; BFCL's own end at 199."""
PATIENCE = 5000
"""Proposals thrown away in a row before it is said that there are no more; one in six is usual."""


def generate(
    part: Part, count: int, seed: int, shape: Shape | None = None, rejected: Counter[str] | None = None
) -> Iterator[dict[str, Any]]:
    """Entries in BFCL's form, the same for the same arguments.

    Composed names, and programs of two operations or more, of one part occur in no other. No two tasks of a part have
    the same words.

    Args:
        part: train, dev or test.
        count: of tasks.
        seed: what is drawn depends on it, on the part and on nothing else.
        shape: what tasks are wanted; all by default.
        rejected: reason -> proposals thrown away, counted here.

    Raises:
        ValueError: there are not so many different tasks of this shape.
    """
    shape, rejected = shape or Shape(), Counter() if rejected is None else rejected
    texts: set[str] = set()
    made = attempt = last = 0
    while made < count:
        attempt += 1
        if attempt - last > PATIENCE:
            raise ValueError(f"only {made} tasks of this shape are found for {part}: allow more turns or operations")
        proposal = propose(Random(f"{seed} {part} {attempt} {shape.words}"), part, shape)
        if proposal is None:
            rejected["does not fit together"] += 1
            continue
        number = FIRST[part] + 3 * made
        entry = entry_of(proposal, f"{proposal.category}_{number}", part)
        words = "\n".join(turn.user for turn in proposal.turns)
        found = "words of another task" if words in texts else None
        found = found or problem(proposal, scenario_of(proposal.category, entry, entry["ground_truth"], number))
        if found is not None:
            rejected[found] += 1
            continue
        texts.add(words)
        made, last = made + 1, attempt
        yield entry
