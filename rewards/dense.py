"""Progress with partial credit and a price for surplus calls, for models of whose rollouts most fail. Range [-1, 1].

A failed turn earns up to the share `partial` of a solved one: half of it for the functions that gold calls, half for
their arguments. Where all rollouts of a task fail, these are all that tells them apart: paid for functions and whole
calls alone, a policy learned to leave arguments out. Each call beyond the number that gold makes in its turn costs the
share `price` of a solved one, down to a turn's whole worth below 0: a solved turn with two of them earns less than a
failed one without. For progress alone such a call does no harm; at a price of a tenth a policy learned to try one
function after the other.

What a turn earned stands at its last message, so that `algorithm=turn_grpo` gives each turn the credit of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
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
    made, facts, found = [*calls_of(turn)], turn["facts"], 0.0
    most, gold = max(len(made), facts.get("gold_calls", 0)), facts.get("gold_functions", ())
    for name, accepted in zip(gold, facts.get("gold_arguments") or [None] * len(gold), strict=True):
        if named := [call for call in made if call["name"] == name]:
            nearest = max(named, key=partial(near, accepted=accepted))
            made.remove(nearest)
            found += (1 + near(nearest, accepted)) / 2
    return found / most if most else 0.0


def near(call: Mapping[str, Any], accepted: Mapping[str, Sequence[Any]] | None) -> float:
    """The share of a call's arguments that are accepted, of its own or of those that it needs where these are more."""
    if accepted is None or call["facts"].get("gold") is not None:
        return float(call["facts"].get("gold") is not None)
    right = sum(call["arguments"].get(name, "") in values for name, values in accepted.items())
    return right / max(1, len(accepted.keys() | call["arguments"].keys()))
