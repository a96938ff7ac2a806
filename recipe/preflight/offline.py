"""Checks of the settings of a stage that learns from stored trajectories (`offline.files`).

Nothing is played: there is no engine, no reward is called, and nothing is validated by playing. What asks for any of it
is refused with what to set instead. `recipe.preflight.trajectories` looks at the data.
"""

from typing import Any

from omegaconf import DictConfig, open_dict

from recipe.errors import PreflightError
from recipe.preflight.algorithm import GROUPED
from recipe.settings.data_files import as_list
from recipe.trajectories import FORMS, found, is_offline

TRAINING = "recipe.training.offline"
MANAGER = f"{TRAINING}.StoredTrajectories"
OF_WHAT_IS_PLAYED = ("val", "train/", "critic/score", "critic/rewards")
"""Beginnings of metrics that say how episodes went."""
N = "actor_rollout_ref.rollout.n"


def check_offline(config: DictConfig) -> None:
    """The settings of such a stage fit each other. Switches validation off, and gives verl the files as its data.

    Raises:
        PreflightError: they do not.
    """
    if not is_offline(config):
        if config.stage.name == "offline":
            raise PreflightError(f"offline.files is missing: nothing is named to learn from. Set it to {FORMS}.")
        for key, default in (("rewards", "steps"), ("old_log_probs", "start")):
            if (value := config.offline[key]) != default:
                raise PreflightError(f"offline.{key}={value} does nothing without offline.files. Leave it out.")
        return
    for setting, value, instead in _asks_to_play(config):
        raise PreflightError(f"{setting}={value}: with offline.files nothing is played. {instead}.")
    n, name = config.actor_rollout_ref.rollout.n, config.algorithm.adv_estimator
    if name not in GROUPED and n != 1:
        raise PreflightError(
            f"{N}={n}: algorithm.adv_estimator={name} compares no trajectories with each other, so with offline.files "
            f"a row is one of them. Set {N}=1."
        )
    if name in GROUPED and n < 2:
        raise PreflightError(
            f"algorithm.adv_estimator={name} compares the trajectories of a group, and {N}={n}. Set it to how many "
            "stand together in the files (rollouts of one task in one step, rows of one query_id), or take "
            "algorithm=step_grained, which compares none."
        )
    _check_old_log_probs(config)
    files = [str(path) for path in found(as_list(config.offline.files))]
    with open_dict(config):
        config.data.train_files = config.data.val_files = files
        config.data.custom_cls = {"path": f"pkg://{TRAINING}", "name": "StoredRows"}
        config.actor_rollout_ref.rollout.agent.agent_loop_manager_class = MANAGER
    config.data.val_batch_size = 1  # of a data set that verl makes and nobody asks for a row
    config.data.shuffle = True  # anew in each epoch, by data.seed; the CPU profile has it off for its one batch
    config.trainer.test_freq, config.trainer.val_before_train = -1, False


def _check_old_log_probs(config: DictConfig) -> None:
    """Those of the start model come from verl's reference policy; a coefficient of 0 makes it keep one without a KL."""
    if config.offline.old_log_probs != "start":
        return
    policy, stage, instead = config.actor_rollout_ref, config.stage, "Set offline.old_log_probs=step"
    if policy.model.lora_adapter_path or (stage.adapter == "continue" and stage.previous):
        raise PreflightError(
            "offline.old_log_probs=start with an adapter to train further (stage.adapter=continue or "
            "actor_rollout_ref.model.lora_adapter_path): verl's reference is the model without it, which is not the "
            f"start of this stage. {instead}, or stage.adapter=new, which begins a new adapter on merged weights."
        )
    if config.algorithm.rollout_correction.bypass_mode:
        raise PreflightError(
            "offline.old_log_probs=start with algorithm.rollout_correction.bypass_mode=true, which takes the stored "
            f"ones of the policy that sampled. {instead}, or bypass_mode=false."
        )
    if config.algorithm.rollout_correction.rollout_rs:
        raise PreflightError(
            "offline.old_log_probs=start with algorithm.rollout_correction.rollout_rs="
            f"{config.algorithm.rollout_correction.rollout_rs}: what is rejected follows from the policy at the "
            f"beginning of a step. {instead}, or rollout_rs=null."
        )
    if not (policy.actor.use_kl_loss or config.algorithm.use_kl_in_reward):
        policy.actor.use_kl_loss, policy.actor.kl_loss_coef = True, 0.0


def _asks_to_play(config: DictConfig) -> list[tuple[str, Any, str]]:
    """Settings that ask for something to be played: each with its value, and what to do instead."""
    stage, agent = config.stage, config.actor_rollout_ref.rollout.agent
    metric, path = str((stage.gate or {}).get("metric", "critic/score/mean")), config.data.custom_cls.path
    manager = agent.get("agent_loop_manager_class")
    asks = (
        (
            config.environment.guard is not None,
            ("environment.guard", config.environment.guard, "Leave it out, and evaluate the exported model on it"),
        ),
        (
            config.algorithm.filter_groups.enable,
            ("algorithm.filter_groups.enable", True, "Set it to false; a group that is alike gives no gradient anyway"),
        ),
        (
            bool(stage.gate) and metric.startswith(OF_WHAT_IS_PLAYED),
            ("stage.gate.metric", metric, "Set stage.gate=null, and evaluate the exported model"),
        ),
        (stage.handover == "best", ("stage.handover", "best", "Set stage.handover=last: no checkpoint is validated")),
        (
            stage.over_budget == "leave_out",
            ("stage.over_budget", "leave_out", "Set it to keep; what is too long is left out anyway, and counted"),
        ),
        (
            config.interaction.overlong.penalty > 0,
            (
                "interaction.overlong.penalty",
                config.interaction.overlong.penalty,
                "Set it to 0; scores are stored",
            ),
        ),
        (
            path is not None and path != f"pkg://{TRAINING}",
            ("data.custom_cls.path", path, "Leave it out; the files are read by this recipe"),
        ),
        (
            manager not in (None, MANAGER),
            ("actor_rollout_ref.rollout.agent.agent_loop_manager_class", manager, "Leave it out"),
        ),
    )
    return [said for asked, said in asks if asked]
