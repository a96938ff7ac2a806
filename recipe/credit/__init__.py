"""Credit assignment over several turns: which step (message of the model) of an episode gets how much of its reward.

`estimators` turns rewards and values into advantages, `policy_loss` turns advantages of whole steps into a loss,
`registry` makes verl know both by name; `benchmarks/toy_credit.py` shows on a problem with a known optimum that they
learn. docs/algorithms.md says when to choose which; `algorithm=NAME` on the command line chooses.
"""

from typing import Any

GROUPED = (
    *("grpo", "grpo_vectorized", "grpo_passk", "turn_grpo", "rloo", "rloo_vectorized"),
    *("opo", "gpg", "reinforce_plus_plus_baseline"),
)
"""Estimators that compare the rollouts of one prompt. A rollout alone in its group gets its raw score from most."""


def is_grouped(algorithm: Any) -> bool:
    """Whether the estimator of these settings compares the rollouts of one prompt; one's own says it in `credit`."""
    return algorithm.adv_estimator in GROUPED or algorithm.credit.grouped is True
