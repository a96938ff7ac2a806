"""All-or-nothing reward, for comparison with progress: 1 if every user turn passed, else 0.

What a benchmark counts. A group of rollouts in which none solves the whole task has nothing to compare, which is most
groups at first; progress pays for each turn instead.
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
    return {"score": metrics["acc"], **metrics}
