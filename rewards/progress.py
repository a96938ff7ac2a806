"""Progress reward (stages 2 and 3): how much of the task was done. Range [0, 1].

Turns passed / all user turns of the scenario, and 0 for an episode in which no turn with gold calls passed.
All turns count, also those never reached: an episode that was cut after one good turn is worth that one turn.
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
    **kwargs: Any,
) -> dict[str, float]:
    """verl's reward function: `score` and the metrics. Only `extra_info["episode"]` is read."""
    metrics = episode_metrics(episode_of(extra_info))
    return {"score": metrics["progress"], **metrics}
