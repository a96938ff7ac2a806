"""Progress with partial credit and a price for surplus calls, for models of whose rollouts most fail. Range [-1, 1].

A failed turn earns up to the share `partial` of a solved one: half of it for the functions that gold calls, half for
gold's calls. Where all rollouts of a task fail, these are all that tells them apart. Each call beyond the number that
gold makes in its turn costs the share `price` of a solved one, down to a turn's whole worth below 0. For progress alone
such a call does no harm; at a price of a tenth a policy learned to try one function after the other.

What a turn earned stands at its last message, so that `algorithm=turn_grpo` gives each turn the credit of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import fsum
from typing import Any

from rewards.metrics import calls_of, did_work, episode_metrics, episode_of, share_of, surplus


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    partial: float = 0.3,
    price: float = 0.5,
    **kwargs: Any,
) -> dict[str, Any]:
    """verl's reward function: `score`, `step_scores` and the metrics. Only `extra_info["episode"]` is read.

    Raises:
        ValueError: the partial credit or the price is no share.
    """
    for name, value in {"partial": partial, "price": price}.items():
        if type(value) not in (int, float) or not 0 <= value <= 1:
            raise ValueError(f"rewards.dense: {name}={value!r}; expected 0 to 1")
    episode = episode_of(extra_info)
    metrics, turns = episode_metrics(episode), episode["turns"]
    scores, worked = list[float](), did_work(episode)
    for turn in turns:  # one that is not judged earns as the episode does
        share = metrics["progress"] if turn["passed"] is None else share_of(turn)
        earned = share * worked + partial * (1 - share) * attempted(turn)
        scores += [0.0] * len(turn["steps"])
        if turn["steps"]:
            scores[-1] = max(-1.0, earned - price * surplus(turn)) / len(turns)
    return {"score": fsum(scores), "step_scores": scores, **metrics}


def attempted(turn: Mapping[str, Any]) -> float:
    """How much of gold's calls a turn has, 0 to 1; less where it has more calls than gold. 0 without gold calls."""
    made, asked = [*calls_of(turn)], turn["facts"].get("gold_calls", 0)
    named = Counter(call["name"] for call in made) & Counter(turn["facts"].get("gold_functions", ()))
    found = named.total() + sum(call["facts"].get("gold") is not None for call in made)
    return found / 2 / max(1, asked, len(made)) if asked else 0.0
