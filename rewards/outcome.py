"""Outcome reward: whether the task is done, by one of three rules. Range [0, 1].

    official   1 if the episode passed by the rule of the environment's source
    clean      1 if it passed by the environment's own rule; of tau: officially, and nothing was written that the task
               did not need
    priced     the official reward less `price` for each write that the task did not need, and 0 at least

tau's official reward does not ask for a diagnosis: a policy that repairs everything on sight and then hands the user
over passes 99.6 % of telecom. Trained on it, a model learns needless writes; `clean` pays it nothing for them.

In Hydra: `reward.custom_reward_function.path=pkg://rewards.outcome` and `+...reward_kwargs.rule=official`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rewards.metrics import episode_metrics, episode_of

RULES = ("official", "clean", "priced")


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    rule: str = "clean",
    price: float | None = None,
    **kwargs: Any,
) -> dict[str, float]:
    """verl's reward function: `score`, the metrics, and `needless`, the writes beyond need.

    `price` is 0.1 where none is given.

    Raises:
        ValueError: there is no such rule, or a price that is no share or that the rule does not ask for.
    """
    record = episode_of(extra_info)
    metrics = episode_metrics(record)
    needless = float(len(record["facts"].get("needless", ())))
    if rule not in RULES:
        raise ValueError(f"rewards.outcome: rule={rule!r}; expected one of {', '.join(RULES)}")
    if price is not None and (rule != "priced" or type(price) not in (int, float) or not 0 <= price <= 1):
        raise ValueError(f"rewards.outcome: price={price!r} with rule={rule}; expected 0 to 1, with rule=priced")
    score = metrics["acc"] if rule == "clean" else metrics["acc_official"]
    if rule == "priced":
        score = max(0.0, score - (0.1 if price is None else price) * needless)
    return {"score": score, **metrics, "needless": needless}
