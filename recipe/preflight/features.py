"""Checks of what `docs/algorithms.md` offers, before anything starts: dynamic sampling, correction of the rollouts, the
overlong settings and the losses. What cannot work is refused; what works but does nothing is said in `notes`.
"""

import importlib.util
import os
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from recipe.errors import PreflightError
from recipe.preflight.mode import GROUPS
from recipe.reward import SCORE
from recipe.trajectories import is_offline

LOGGERS = {
    **{
        "console": None,
        "file": None,
        "rl_insight": None,
        "tensorboard": "tensorboard",
        "wandb": "wandb",
        "mlflow": "mlflow",
    },
    **{"swanlab": "swanlab", "clearml": "clearml", "trackio": "trackio", "vemlp_wandb": "volcengine_ml_platform"},
}
"""verl's loggers, and the package that each needs."""

OF_THE_RATIO = ("gspo", "cispo", "appo_step")
"""Losses that are plain policy gradient where the probability ratio is 1."""

WIDE_FOR_GSPO = 0.05
"""A mean over all tokens of an episode that moves by this much in one step is not seen; the paper clips at 0.0004."""


def check_features(config: DictConfig) -> None:
    """Raises PreflightError for settings that cannot do what their names say."""
    _check_loggers(config)
    _check_dynamic_sampling(config)
    _check_correction(config)
    actor, val = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout.val_kwargs
    if val.get("do_sample") and val.temperature == 0:
        raise PreflightError(
            "actor_rollout_ref.rollout.val_kwargs.do_sample=true with temperature=0 is greedy. Set "
            "actor_rollout_ref.rollout.val_kwargs.temperature, such as 0.6."
        )
    if actor.loss_agg_mode == "seq-mean-token-sum-norm" and not _positive(actor.loss_scale_factor):
        raise PreflightError(
            f"actor_rollout_ref.actor.loss_agg_mode={actor.loss_agg_mode} with loss_scale_factor="
            f"{actor.loss_scale_factor}: verl would divide by the width of each micro-batch, which depends on what "
            "else is in it. Set actor_rollout_ref.actor.loss_scale_factor to a number of tokens, or choose by "
            "algorithm=dr_grpo."
        )


def loggers_of(config: DictConfig) -> list[str]:
    """`trainer.logger` as a list."""
    given = config.trainer.logger
    return [str(name) for name in given] if OmegaConf.is_list(given) else [str(given)]


def _check_loggers(config: DictConfig) -> None:
    for name in loggers_of(config):
        if name not in LOGGERS:
            raise PreflightError(f"trainer.logger has {name}, which verl does not know; it takes {', '.join(LOGGERS)}.")
        if (package := LOGGERS[name]) and importlib.util.find_spec(package) is None:
            raise PreflightError(
                f"trainer.logger has {name}, and the package {package} is not installed. Install it with "
                f"`.venv/bin/pip install {package}`, or leave {name} out of trainer.logger."
            )
    where = os.environ.get("MLFLOW_TRACKING_URI", "sqlite:")
    if (
        "mlflow" in loggers_of(config)
        and where.startswith("sqlite:")
        and importlib.util.find_spec("sqlalchemy") is None
    ):
        raise PreflightError(
            "trainer.logger has mlflow, and what is installed of it (mlflow-skinny) cannot write its database: verl "
            "would say so once and train on without. Install all of it with `.venv/bin/pip install mlflow`, or set "
            "MLFLOW_TRACKING_URI to the address of a server."
        )


def check_filter_metric(config: DictConfig, result: Any) -> None:
    """What the reward returned for a sample record has the metric by which groups are compared; the score is for `acc`.

    Raises:
        PreflightError: it has not.
    """
    filtering = config.algorithm.filter_groups
    if not filtering.enable or filtering.metric == SCORE:
        return
    values = result if isinstance(result, Mapping) else {"acc": result}  # verl's name for a bare number
    value = values.get(filtering.metric)
    if isinstance(value, bool | int | float):
        return
    if filtering.metric == "acc":  # DAPO's, which a reward of a user's own need not return
        filtering.metric = SCORE
        print(f"NOTE       the reward returns no acc: algorithm.filter_groups.metric={SCORE}, its score", flush=True)
        return
    numbers = sorted(name for name, value in values.items() if isinstance(value, bool | int | float))
    raise PreflightError(
        f"algorithm.filter_groups.metric={filtering.metric} is no number that the reward returns; it returns "
        f"{', '.join(numbers)}. Set the metric to one of these, or to {SCORE}, the score itself."
    )


def untried_metric(config: DictConfig) -> str | None:
    """A line on the metric of dynamic sampling where the reward is not called before the start."""
    filtering = config.algorithm.filter_groups
    if not filtering.enable or filtering.metric == SCORE:
        return None
    return (
        f"NOTE the reward is async and is not tried: if it does not return algorithm.filter_groups.metric="
        f"{filtering.metric}, every sample is lost. {SCORE}, the score itself, is always there"
    )


def _on_policy(config: DictConfig) -> bool:
    """Whether the policy that is updated is the one before the update, so that every probability ratio is 1."""
    actor = config.actor_rollout_ref.actor
    one_update = actor.ppo_mini_batch_size >= config.data.train_batch_size and actor.ppo_epochs == 1
    to_start = is_offline(config) and config.offline.old_log_probs == "start"  # of that model the ratio is then
    return one_update and not to_start and not config.algorithm.rollout_correction.bypass_mode


def algorithm_line(config: DictConfig) -> str:
    """The algorithm by what it is made of, and what of it is inert."""
    actor, algorithm = config.actor_rollout_ref.actor, config.algorithm
    filtering = f", dynamic sampling by {algorithm.filter_groups.metric}" * bool(algorithm.filter_groups.enable)
    inert = " (inert with one update a step: see MINI_BATCH_SIZE)" * _on_policy(config)
    clip = f"clip {actor.clip_ratio_low} to {actor.clip_ratio_high}{inert}"
    return f"{algorithm.adv_estimator}{filtering}, loss {actor.policy_loss.loss_mode} {actor.loss_agg_mode}, {clip}"


def notes(config: DictConfig) -> list[str]:
    """What is set but will do nothing, or something else than it seems; a line each."""
    actor, algorithm = config.actor_rollout_ref.actor, config.algorithm
    loss, found = actor.policy_loss.loss_mode, []
    if loss in OF_THE_RATIO and _on_policy(config):
        found.append(
            f"the loss {loss} differs from others by its probability ratio, which is 1 with one update a step: set "
            f"MINI_BATCH_SIZE below {config.data.train_batch_size}"
        )
    if loss == "gspo" and max(actor.clip_ratio_low, actor.clip_ratio_high) > WIDE_FOR_GSPO:
        found.append(
            f"the loss gspo with clip_ratio_low={actor.clip_ratio_low}, clip_ratio_high={actor.clip_ratio_high} never "
            "clips: its ratio is a mean over all tokens. algorithm=gspo sets those of the paper"
        )
    if not config.interaction.overlong.train and actor.loss_agg_mode.startswith("seq-mean"):
        found.append(
            f"interaction.overlong.train=false with actor_rollout_ref.actor.loss_agg_mode={actor.loss_agg_mode}: verl "
            "divides by all episodes, those left out included, so policy loss, KL and entropy get smaller by "
            "train/overlong_left_out. loss_agg_mode=token-mean divides by the tokens that train"
        )
    if config.interaction.record_tokens and config.interaction.record_dir is None:
        found.append(
            "interaction.record_tokens=true with interaction.record_dir=null: no episode is written, set a folder"
        )
    if (adapter := config.actor_rollout_ref.model.lora_adapter_path) and (
        actor.use_kl_loss or algorithm.use_kl_in_reward
    ):
        found.append(
            f"the KL is that to {config.actor_rollout_ref.model.path} without the adapter {adapter} that this stage "
            "begins with; with stage.adapter=new it is that to the start of the stage"
        )
    if (mode := config.trainer.v1.trainer_mode) in GROUPS:
        oldest = config.trainer.v1.sampler.max_off_policy_threshold
        found.append(
            f"{GROUPS[mode]}: episodes may span {oldest} versions of the policy (training/off_policy/...), so engine "
            "and trainer no longer agree on every probability, and their correlation stays below 1"
        )
    metric = (config.stage.gate or {}).get("metric", "critic/score/mean")
    if algorithm.filter_groups.enable and config.stage.gate and not metric.startswith("val"):
        found.append(
            f"stage.gate reads {metric}, which with dynamic sampling leaves out the tasks that are always solved: set "
            "its metric to one of val_choose/"
        )
    return found


def _check_dynamic_sampling(config: DictConfig) -> None:
    filtering, rollout = config.algorithm.filter_groups, config.actor_rollout_ref.rollout
    if not filtering.enable:
        return
    if rollout.n < 2:
        raise PreflightError(
            f"algorithm.filter_groups.enable=true compares the rollouts of a task, and actor_rollout_ref.rollout.n="
            f"{rollout.n}. Set it to 2 or more."
        )
    sampler = config.trainer.v1.sampler.custom_sampler
    if sampler.path and sampler.name:
        raise PreflightError(
            f"algorithm.filter_groups.enable=true with trainer.v1.sampler.custom_sampler.path={sampler.path}: verl "
            "hands it no metric to filter by, and the recipe's filter and its limit step aside. Set "
            "algorithm.filter_groups.enable=false and filter there, or leave that sampler out."
        )
    if filtering.max_num_gen_batches > 0:
        raise PreflightError(
            f"algorithm.filter_groups.max_num_gen_batches={filtering.max_num_gen_batches}: verl's trainer ignores it. "
            f"Set stage.max_gen_batches={filtering.max_num_gen_batches}, which is the limit."
        )
    limits = {
        "stage.max_gen_batches": (config.stage.max_gen_batches, 2),
        "algorithm.filter_groups.max_inflight_gen_batches": (filtering.max_inflight_gen_batches, 1),
    }
    for key, (value, least) in limits.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise PreflightError(f"{key}={value}; expected a whole number of batches, {least} or more.")


def _check_correction(config: DictConfig) -> None:
    correction = config.algorithm.rollout_correction
    kind, threshold = correction.rollout_is, correction.rollout_is_threshold
    if correction.bypass_mode and (kind or correction.rollout_rs):
        raise PreflightError(
            "algorithm.rollout_correction.bypass_mode=true takes the engine's probabilities for those before the "
            "update, and leaves nothing for rollout_is or rollout_rs to correct. Set those two to null, or "
            "bypass_mode=false."
        )
    needed = kind or correction.rollout_rs or correction.bypass_mode
    if needed and not config.actor_rollout_ref.rollout.calculate_log_probs:
        raise PreflightError(
            "algorithm.rollout_correction needs the engine's probabilities. Set "
            "actor_rollout_ref.rollout.calculate_log_probs=true."
        )
    bounds = _bounds(threshold)
    if kind and not (all(map(_positive, bounds)) and bounds == sorted(bounds)):
        raise PreflightError(
            f"algorithm.rollout_correction.rollout_is_threshold={threshold}; expected the largest weight, such as 2.0, "
            "or the smallest and the largest, such as 0.5_5.0."
        )


def _bounds(threshold: Any) -> list[Any]:
    """The numbers of verl's threshold: one, or two joined by `_`; None for what is no number."""
    if not isinstance(threshold, str):
        return [threshold]
    parts = threshold.split("_")
    try:
        return [float(part) for part in parts] if len(parts) <= 2 else [None]
    except ValueError:
        return [None]


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")
