"""Checks of `algorithm=` before anything starts: a critic that would silently be missing, numbers out of range,
rewards."""

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig

from interaction.token_rewards import check_turn_scores, messages_of
from recipe.preflight import PreflightError

WITH_CRITIC = ("gae", "gae_bad", "gae_action")
"""Estimators that use values."""

OURS = ("gae_bad", "gae_action", "turn_grpo")
"""Estimators of recipe/credit."""

WHOLE_MESSAGES = ("grpo", "turn_grpo", "gae_action")
"""Estimators that give all tokens of a message one advantage, as the loss appo_turn expects."""

RATIO_NORMS = ("token_mean", "sum")


def check_algorithm(config: DictConfig) -> None:
    """Estimator, critic, loss and their numbers fit each other.

    Raises:
        PreflightError: they do not.
    """
    algorithm, name = config.algorithm, config.algorithm.adv_estimator
    if name in WITH_CRITIC and config.critic.enable is not True:
        raise PreflightError(
            f"algorithm.adv_estimator={name} needs the critic's values, and critic.enable={config.critic.enable}: verl "
            "would train without a critic. Choose by `algorithm=tppo|appo|step_grained`, or set critic.enable=true."
        )
    numbers = {"algorithm.gamma": algorithm.gamma, "algorithm.lam": algorithm.lam}
    numbers |= {f"algorithm.credit.{key}": algorithm.credit[key] for key in ("gamma_token", "lam_token")}
    for key, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise PreflightError(
                f"{key}={value} is not a number from 0 to 1. A discount of 1 counts the future in full."
            )
    if not isinstance(algorithm.credit.whiten, bool):
        raise PreflightError(f"algorithm.credit.whiten={algorithm.credit.whiten}; it is true or false.")
    control = algorithm.kl_ctrl
    if algorithm.use_kl_in_reward:
        if control.type not in ("fixed", "adaptive"):
            raise PreflightError(f"algorithm.kl_ctrl.type={control.type}; it is fixed or adaptive.")
        if control.type == "adaptive" and not (control.target_kl > 0 and control.horizon > 0):
            raise PreflightError(
                f"algorithm.kl_ctrl.target_kl={control.target_kl} (nats an episode) and horizon={control.horizon} "
                "(episodes) must both be above 0 for type=adaptive."
            )
    rejection = (algorithm.get("rollout_correction") or {}).get("rollout_rs")
    loss = config.actor_rollout_ref.actor.policy_loss
    if rejection is not None and (name in OURS or loss.loss_mode == "appo_turn"):
        raise PreflightError(
            f"algorithm.rollout_correction.rollout_rs={rejection} takes tokens out of the mask, and with them rewards "
            f"and bounds of messages that algorithm.adv_estimator={name} needs. Set it to null, or use algorithm=grpo."
        )
    if name == "turn_grpo" and config.actor_rollout_ref.rollout.n < 2:
        raise PreflightError(
            "algorithm=turn_grpo compares rollouts of one task. Set actor_rollout_ref.rollout.n to 2 or more."
        )
    if loss.loss_mode == "appo_turn":
        if loss.ratio_norm not in RATIO_NORMS:
            raise PreflightError(
                f"actor_rollout_ref.actor.policy_loss.ratio_norm={loss.ratio_norm}; it is one of "
                f"{', '.join(RATIO_NORMS)}."
            )
        if name not in WHOLE_MESSAGES:
            raise PreflightError(
                f"the loss appo_turn has one ratio a message, algorithm.adv_estimator={name} an advantage for each "
                f"token. Use algorithm=appo, or one of {', '.join(WHOLE_MESSAGES)}."
            )


def check_reward_turns(result: Any, record: Mapping[str, Any], where: str) -> None:
    """`turn_scores`, where a reward gives any, are one number a message of the sample record and sum to the score.

    Raises:
        PreflightError: they are not.
    """
    if isinstance(result, Mapping) and result.get("turn_scores") is not None:
        try:
            check_turn_scores(result["turn_scores"], messages_of(record), result["score"])
        except ValueError as error:
            raise PreflightError(f"{where}, tried on a sample record: {error}.") from error
