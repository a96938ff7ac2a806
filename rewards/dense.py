"""Progress with partial credit and a price for surplus calls, for models of whose rollouts most fail. Range [0, 1].

A failed turn earns up to the share `partial` of a solved one: half of it for the functions that gold calls, half for
gold's calls. Where all rollouts of a task fail, these are all that tells them apart. Each call beyond the number that
gold makes in its turn costs `price`; for progress alone such a call does no harm, and a policy learns to make it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rewards.metrics import calls_of, episode_metrics, episode_of, share_of


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    partial: float = 0.3,
    price: float = 0.1,
    **kwargs: Any,
) -> dict[str, float]:
    """verl's reward function: `score` and the metrics. Only `extra_info["episode"]` is read.

    Raises:
        ValueError: the partial credit or the price is no share.
    """
    for name, value in {"partial": partial, "price": price}.items():
        if type(value) not in (int, float) or not 0 <= value <= 1:
            raise ValueError(f"rewards.dense: {name}={value!r}; expected 0 to 1")
    episode = episode_of(extra_info)
    metrics, turns = episode_metrics(episode), episode["turns"]
    tried = sum((1 - share_of(turn)) * attempted(turn) for turn in turns) / max(1, len(turns))
    return {"score": max(0.0, metrics["progress"] + partial * tried - price * metrics["surplus"]), **metrics}


def attempted(turn: Mapping[str, Any]) -> float:
    """How much of gold's calls a turn has, 0 to 1; less where it has more calls than gold. 0 without gold calls."""
    made, asked = [*calls_of(turn)], turn["facts"].get("gold_calls", 0)
    named = Counter(call["name"] for call in made) & Counter(turn["facts"].get("gold_functions", ()))
    found = named.total() + sum(call["facts"].get("gold") is not None for call in made)
    return found / 2 / max(1, asked, len(made)) if asked else 0.0
