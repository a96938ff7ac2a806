"""Settings and values that have another name now: those of an earlier release are told where they went."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from recipe.errors import PreflightError

POLICY_LOSS = "actor_rollout_ref.actor.policy_loss"

VALUES: Mapping[str, Mapping[str, str]] = {
    "algorithm.adv_estimator": {"gae_action": "gae_step"},
    f"{POLICY_LOSS}.loss_mode": {"appo_turn": "appo_step"},
    f"{POLICY_LOSS}._target_": {
        "recipe.credit.policy_loss.TurnPolicyLossConfig": "recipe.credit.policy_loss.StepPolicyLossConfig"
    },
}
"""Setting -> old value -> new value."""

OF_BFCL = "{0} is now interaction.{1}.environments.bfcl.{2}: only BFCL's tasks have it."

KEYS: Mapping[str, str] = {
    r"interaction\.(train|val)\.(augment|withheld|empty_gold)": OF_BFCL,
    r"interaction\.(train|val)\.(at_step_limit)": (
        f"{OF_BFCL} `end` is called `judge` there, and `official` goes with "
        "interaction.{1}.max_steps_per_turn=21, the message more that BFCL allows."
    ),
}
"""Pattern of the old name -> what to say, with the name and its groups."""


def renamed(key: str) -> str | None:
    """What became of a setting; None if it was not renamed."""
    for pattern, text in KEYS.items():
        if found := re.fullmatch(pattern, key):
            return text.format(key, *found.groups())
    return None


def all_renamed(values: Any, key: str = "") -> Iterator[str]:
    """What became of each renamed setting that a configuration has."""
    if isinstance(values, dict):
        for name, value in values.items():
            below = f"{key}.{name}" if key else str(name)
            if (line := renamed(below)) is not None:
                yield line
            yield from all_renamed(value, below)


def check_renamed(config: DictConfig) -> None:
    """Raises PreflightError with a line for each value under its old name."""
    found = []
    for key, names in VALUES.items():
        value = OmegaConf.select(config, key)
        if isinstance(value, str) and value in names:
            found.append(f"{key}={value} is called {names[value]} now. Set {key}={names[value]}.")
    if found:
        raise PreflightError("\n".join(found))
