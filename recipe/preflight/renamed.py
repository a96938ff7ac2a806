"""Values of settings that an earlier release called otherwise: each is refused in one line that names the new one.

What a reward returned under an old name is refused in `recipe.user_code.reward_result`, where rewards are called.
"""

from omegaconf import DictConfig, OmegaConf

from recipe.errors import PreflightError

POLICY_LOSS = "actor_rollout_ref.actor.policy_loss"

RENAMED: dict[str, dict[str, str]] = {
    "algorithm.adv_estimator": {"gae_action": "gae_step"},
    f"{POLICY_LOSS}.loss_mode": {"appo_turn": "appo_step"},
    f"{POLICY_LOSS}._target_": {
        "recipe.credit.policy_loss.TurnPolicyLossConfig": "recipe.credit.policy_loss.StepPolicyLossConfig"
    },
}
"""Setting -> old value -> new value."""


def check_renamed(config: DictConfig) -> None:
    """Raises PreflightError with a line for each value under its old name."""
    found = []
    for key, names in RENAMED.items():
        value = OmegaConf.select(config, key)
        if isinstance(value, str) and value in names:
            found.append(f"{key}={value} is called {names[value]} now. Set {key}={names[value]}.")
    if found:
        raise PreflightError("\n".join(found))
