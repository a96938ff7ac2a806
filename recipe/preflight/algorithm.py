"""Checks of `algorithm=` and of what it works on before anything starts: names, groups, batches, a critic that would
silently be missing, numbers out of range, rewards.

verl looks at most of this after minutes, in the first step, or never. What it knows is written down here, because
asking it takes the import of torch; tests compare.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from interaction.token_rewards import check_step_scores, steps_of
from recipe.errors import PreflightError
from recipe.memory.settings import sequence_parts
from recipe.typed import meant

WITH_CRITIC = ("gae", "gae_bad", "gae_step")
"""Estimators that use values."""

OURS = ("gae_bad", "gae_step", "turn_grpo")
"""Estimators of recipe/credit."""

GROUPED = (
    *("grpo", "grpo_vectorized", "grpo_passk", "turn_grpo", "rloo", "rloo_vectorized"),
    *("opo", "gpg", "reinforce_plus_plus_baseline"),
)
"""Estimators that compare the rollouts of one prompt. A rollout alone in its group gets its raw score from most."""

UNFED = {
    "remax": "the score of a greedy rollout of each prompt",
    "optimal_token_baseline": "sum_pi_squared of the actor",
    "tir_optimal_token_baseline": "sum_pi_squared of the actor",
    "gdpo": "the single scores of a reward",
}
"""Estimators of verl that need what its trainer does not hand over (`PPOTrainer._compute_advantage`)."""

ESTIMATORS = (*WITH_CRITIC, *GROUPED, "reinforce_plus_plus")

LOSSES = (
    *("vanilla", "dppo_tv", "dppo_kl", "gspo", "sapo", "gpg", "clip_cov", "kl_cov", "geo_mean", "dro", "cispo"),
    *("bypass_mode", "appo_step"),
)
"""verl's, and the one of recipe/credit."""

SHARDED_ATTENTION = "flash_attention_"
"""How the attentions are called in which verl splits sequences: it patches transformers' call of flash-attn."""

WHOLE_STEPS = ("grpo", "turn_grpo", "gae_step")
"""Estimators that give all tokens of a step one advantage, as the loss appo_step expects."""


def check_algorithm(config: DictConfig) -> None:
    """Estimator, critic, loss and their numbers fit each other.

    Raises:
        PreflightError: they do not.
    """
    for problem in PROBLEMS:
        if text := problem(config):
            raise PreflightError(text)
    algorithm, name = config.algorithm, config.algorithm.adv_estimator
    if name in WITH_CRITIC and config.critic.enable is not True:
        raise PreflightError(
            f"algorithm.adv_estimator={name} needs the critic's values, and critic.enable={config.critic.enable}: verl "
            "would train without a critic. Choose by `algorithm=tppo|appo|step_grained`, or set critic.enable=true."
        )
    control = algorithm.kl_ctrl
    if algorithm.use_kl_in_reward:
        if control.type == "adaptive" and not (control.target_kl > 0 and control.horizon > 0):
            raise PreflightError(
                f"algorithm.kl_ctrl.target_kl={control.target_kl} (nats an episode) and horizon={control.horizon} "
                "(episodes) must both be above 0 for type=adaptive."
            )
    rejection = (algorithm.get("rollout_correction") or {}).get("rollout_rs")
    loss = config.actor_rollout_ref.actor.policy_loss
    if rejection is not None and (name in OURS or loss.loss_mode == "appo_step"):
        raise PreflightError(
            f"algorithm.rollout_correction.rollout_rs={rejection} takes tokens out of the mask, and with them rewards "
            f"and bounds of steps that algorithm.adv_estimator={name} needs. Set it to null, or use algorithm=grpo."
        )
    if loss.loss_mode == "appo_step":
        if name not in WHOLE_STEPS:
            raise PreflightError(
                f"the loss appo_step has one ratio a step, algorithm.adv_estimator={name} an advantage for each "
                f"token. Use algorithm=appo, or one of {', '.join(WHOLE_STEPS)}."
            )
        if (mode := config.actor_rollout_ref.actor.loss_agg_mode) == "token-mean":
            raise PreflightError(
                f"the loss appo_step with actor_rollout_ref.actor.loss_agg_mode={mode} would weigh micro-batches by "
                "their tokens, not their steps. Set seq-mean-token-mean, as algorithm=appo does."
            )


def _unknown_estimator(config: DictConfig) -> str | None:
    name = str(config.algorithm.adv_estimator)
    if name in (*ESTIMATORS, *UNFED) or os.environ.get(
        "VERL_USE_EXTERNAL_MODULES"
    ):  # such a module may register others
        return None
    listed = ", ".join(ESTIMATORS)
    return f"algorithm.adv_estimator={name} is not known{meant(name, list(ESTIMATORS))}; it is one of {listed}."


def _unknown_loss(config: DictConfig) -> str | None:
    name = str(config.actor_rollout_ref.actor.policy_loss.loss_mode)
    if name in LOSSES or os.environ.get("VERL_USE_EXTERNAL_MODULES"):
        return None
    return (
        f"actor_rollout_ref.actor.policy_loss.loss_mode={name} is not known{meant(name, list(LOSSES))}; it is one of "
        f"{', '.join(LOSSES)}."
    )


def _unfed_estimator(config: DictConfig) -> str | None:
    name = config.algorithm.adv_estimator
    if name not in UNFED:
        return None
    return (
        f"algorithm.adv_estimator={name} needs {UNFED[name]}, which verl's trainer does not compute for it. Choose "
        "another, such as grpo, rloo or reinforce_plus_plus."
    )


def _lone_rollouts(config: DictConfig) -> str | None:
    name, n = config.algorithm.adv_estimator, config.actor_rollout_ref.rollout.n
    if name not in GROUPED or n > 1:
        return None
    return (
        f"algorithm.adv_estimator={name} compares the rollouts of one task, and actor_rollout_ref.rollout.n={n}: there "
        "is nothing to compare. Set it to 2 or more, or take reinforce_plus_plus or an algorithm with a critic."
    )


def _uneven_mini_batches(config: DictConfig) -> str | None:
    batch, parts = config.data.train_batch_size, {"actor_rollout_ref.actor": config.actor_rollout_ref.actor}
    if config.critic.enable is True:
        parts["critic"] = config.critic
    for key, part in parts.items():
        if not 1 <= part.ppo_mini_batch_size <= batch or batch % part.ppo_mini_batch_size:
            return (
                f"{key}.ppo_mini_batch_size={part.ppo_mini_batch_size} does not divide data.train_batch_size={batch}: "
                "verl would fill up with empty episodes, which count in the mean of the loss. Set MINI_BATCH_SIZE to "
                "TRAIN_BATCH_SIZE or to a divisor of it; both count prompts."
            )
    return None


def _unshared_mini_batches(config: DictConfig) -> str | None:
    """verl divides the episodes of a mini-batch evenly among the GPUs, and looks whether it can after the rollouts."""
    n, world = config.actor_rollout_ref.rollout.n, config.trainer.n_gpus_per_node * config.trainer.nnodes
    parts = {"actor_rollout_ref.actor": (config.actor_rollout_ref.actor, "fsdp_config")}
    if config.critic.enable is True:
        parts["critic"] = (config.critic, "fsdp")
    for key, (part, engine) in parts.items():
        cut = sequence_parts(part, engine)
        if (episodes := part.ppo_mini_batch_size * n) % max(1, world // cut):
            among = f"{world} GPUs" if cut == 1 else f"{world // cut} groups of {cut} GPUs"
            return (
                f"{key}.ppo_mini_batch_size={part.ppo_mini_batch_size} times actor_rollout_ref.rollout.n={n} is "
                f"{episodes} episodes, which cannot be divided evenly among {among}. Set MINI_BATCH_SIZE, "
                "actor_rollout_ref.rollout.n or trainer.n_gpus_per_node so that they can."
            )
    return None


def _short_token_budgets(config: DictConfig) -> str | None:
    """Micro-batches that are filled by tokens hold whole episodes: verl ends the run at the first that is longer."""
    if config.trainer.device == "cpu":
        return None  # a long row is a pass of its own there (recipe/cpu/engine.py)
    policy, data, algorithm = config.actor_rollout_ref, config.data, config.algorithm
    longest = data.max_prompt_length + data.max_response_length
    reference, lora = policy.actor.use_kl_loss or algorithm.use_kl_in_reward, bool(policy.model.get("lora_rank"))
    old = not (algorithm.get("rollout_correction") or {}).get("bypass_mode", False)
    forward = policy.rollout.log_prob_use_dynamic_bsz and (old or (reference and lora))  # by the actor, both
    own_reference = policy.ref.log_prob_use_dynamic_bsz and reference and not lora
    actor, ref = (sequence_parts(part, "fsdp_config") for part in (policy.actor, policy.ref))
    budgets = (
        (policy.actor.use_dynamic_bsz, "actor_rollout_ref.actor.ppo_max_token_len_per_gpu", actor),
        (forward, "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu", actor),
        (own_reference, "actor_rollout_ref.ref.log_prob_max_token_len_per_gpu", ref),
        (config.critic.enable is True, "critic.ppo_infer_max_token_len_per_gpu", sequence_parts(config.critic, "fsdp")),
    )
    for used, key, cut in budgets:
        if used and (budget := OmegaConf.select(config, key)) * cut < longest:
            each = f" on each of {cut} GPUs" if cut > 1 else ""
            return (
                f"{key}={budget}{each} is less than an episode can have: data.max_prompt_length="
                f"{data.max_prompt_length} and data.max_response_length={data.max_response_length}. verl ends the run "
                f"at the first that is longer. Set it to {-(-longest // cut)} or more, or lower the lengths."
            )
    return None


def _unsharded_sequences(config: DictConfig) -> str | None:
    """Sequence parallelism that would raise, or with which each GPU would attend to its own part of a text alone."""
    models = {
        "actor_rollout_ref.actor": (config.actor_rollout_ref.actor, "fsdp_config", config.actor_rollout_ref.model),
        "actor_rollout_ref.ref": (config.actor_rollout_ref.ref, "fsdp_config", config.actor_rollout_ref.model),
    }
    if config.critic.enable is True:
        models["critic"] = (config.critic, "fsdp", config.critic.model)
    for key, (part, engine, model) in models.items():
        for where, setting in ((key, part), (f"{key}.{engine}", part.get(engine) or {})):
            size = setting.get("ulysses_sequence_parallel_size") or 1
            attention = (model.get("override_config") or {}).get("attn_implementation", "flash_attention_2")
            shards = str(attention).startswith(SHARDED_ATTENTION)
            if size > 1 and not (model.get("use_remove_padding") and shards):
                name = "critic.model" if key == "critic" else "actor_rollout_ref.model"
                return (
                    f"{where}.ulysses_sequence_parallel_size={size} needs {name}.use_remove_padding=true (it is "
                    f"{model.get('use_remove_padding')}) and flash-attn ({name}.override_config.attn_implementation="
                    f"flash_attention_2, it is {attention}): with any other attention a GPU would see only its own "
                    "part of a text. Set both, or the size to 1."
                )
    return None


def _engine_of_one_process(config: DictConfig) -> str | None:
    """vLLM in one process waits for ever for the others of its tensor-parallel group."""
    rollout = config.actor_rollout_ref.rollout
    size, key = rollout.tensor_model_parallel_size, "engine_kwargs.vllm.distributed_executor_backend"
    if size > 1 and OmegaConf.select(rollout, key) == "uni":
        return (
            f"actor_rollout_ref.rollout.tensor_model_parallel_size={size} with actor_rollout_ref.rollout.{key}=uni: an "
            f"engine in {size} processes cannot be one in a single process, and would wait for ever. Set the latter to "
            "mp."
        )
    return None


PROBLEMS: tuple[Callable[[DictConfig], str | None], ...] = (
    _unknown_estimator,
    _unknown_loss,
    _unfed_estimator,
    _lone_rollouts,
    _uneven_mini_batches,
    _unshared_mini_batches,
    _short_token_budgets,
    _unsharded_sequences,
    _engine_of_one_process,
)
"""Each says what is wrong with a configuration, or None."""


def check_reward_steps(result: Any, record: Mapping[str, Any], where: str) -> None:
    """`step_scores`, where a reward gives any, are one number a step of the sample record and sum to the score.

    Raises:
        PreflightError: they are not.
    """
    if isinstance(result, Mapping) and result.get("step_scores") is not None:
        try:
            check_step_scores(result["step_scores"], steps_of(record), result["score"])
        except ValueError as error:
            raise PreflightError(f"{where}, tried on a sample record: {error}.") from error
