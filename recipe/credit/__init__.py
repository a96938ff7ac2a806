"""Credit assignment over several turns: which step (message of the model) of an episode gets how much of its reward.

`estimators` turns rewards and values into advantages, `policy_loss` turns advantages of whole steps into a loss,
`registry` makes verl know both by name; `benchmarks/toy_credit.py` shows on a problem with a known optimum that they
learn. docs/algorithms.md says when to choose which; `algorithm=NAME` on the command line chooses.
"""

GROUPED = (
    *("grpo", "grpo_vectorized", "grpo_passk", "turn_grpo", "rloo", "rloo_vectorized"),
    *("opo", "gpg", "reinforce_plus_plus_baseline"),
)
"""Estimators that compare the rollouts of one prompt. A rollout alone in its group gets its raw score from most."""
