"""Progress reward (stages 2 and 3): how much of the task was done. Range [0, 1].

Turns passed / all user turns of the scenario, and 0 for an episode in which no turn with gold calls passed.
All turns count, also those never reached: an episode that was cut after one good turn is worth that one turn.
With a `price`, each call beyond the number that gold makes in its turn costs so much, down to 0. Without one a policy
learns that a call more does no harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rewards.metrics import episode_metrics, episode_of


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    price: float = 0.0,
    **kwargs: Any,
) -> dict[str, float]:
    """verl's reward function: `score` and the metrics. Only `extra_info["episode"]` is read.

    Raises:
        ValueError: the price is no share.
    """
    if type(price) not in (int, float) or not 0 <= price <= 1:
        raise ValueError(f"rewards.progress: price={price!r}; expected 0 to 1")
    metrics = episode_metrics(episode_of(extra_info))
    return {"score": max(0.0, metrics["progress"] - price * metrics["surplus"]), **metrics}
