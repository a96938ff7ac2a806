"""The environments as other libraries want them: one file a library, which imports it and which nothing else imports.

All of them play `GymEnv`'s episodes, so that tasks, turn policy, verdicts and rewards are those of training.
"""

from collections.abc import Mapping
from functools import partial

from interaction.gym_env import Reward
from rewards import all_or_nothing, format, outcome, progress, step

REWARDS: Mapping[str, Reward] = {
    "progress": progress.compute_score,
    "all_or_nothing": all_or_nothing.compute_score,
    "format": format.compute_score,
    "step": step.compute_score,
    "clean": partial(outcome.compute_score, rule="clean"),
    "official": partial(outcome.compute_score, rule="official"),
}
"""Rewards by name, for settings that are text: those of rewards/, `outcome` by its rule."""


def reward_of(name: str | Reward) -> Reward:
    """The reward of that name, or the function itself.

    Raises:
        ValueError: there is none of this name.
    """
    if not isinstance(name, str):
        return name
    if name not in REWARDS:
        raise ValueError(f"reward={name!r}; known: {', '.join(REWARDS)}, or a function (rewards/README.md)")
    return REWARDS[name]
