"""Checks of `trainer.v1.trainer_mode`: whether a stage plays and trains in turn, or at the same time."""

from omegaconf import DictConfig

from recipe.errors import PreflightError
from recipe.offline.files import is_offline

SYNC, ASYNC, SEPARATE = "sync", "colocate_async", "separate_async"


def check_trainer_mode(config: DictConfig) -> None:
    """The mode is one that this recipe extends, and can serve what else is asked for.

    Raises:
        PreflightError: it cannot.
    """
    mode = config.trainer.v1.trainer_mode
    if mode == SYNC:
        return
    given = f"trainer.v1.trainer_mode={mode}"
    if mode == SEPARATE:
        raise PreflightError(
            f"{given}: verl 0.9.1 gives rollout and training devices of their own only with "
            "actor_rollout_ref.hybrid_engine=false, and cannot start so: its trainer logs a line with an argument that "
            "loggers do not take. Set trainer=async, which plays on the devices that train, or trainer=sync."
        )
    if mode != ASYNC:
        raise PreflightError(
            f"{given}: this recipe extends verl's trainers sync and {ASYNC}. In another mode verl's own trainer would "
            "run, without gates, limit of lost samples and reward metrics, and the stage would never count as done. "
            "Set trainer=sync or trainer=async."
        )
    correction, modes = config.algorithm.rollout_correction, config.trainer.v1
    oldest, ahead = modes.sampler.max_off_policy_threshold, modes.colocate_async.num_warmup_batches
    for asked, setting, why in (
        (is_offline(config), "offline.files", "there is nothing to be played meanwhile"),
        (
            config.algorithm.filter_groups.enable,
            "algorithm.filter_groups.enable=true",
            "verl plays another prompt for each group that is alike, without an end, and stage.max_gen_batches could "
            "not stop it",
        ),
        (
            not (correction.rollout_is or correction.bypass_mode),
            "algorithm.rollout_correction.rollout_is=null and bypass_mode=false",
            "episodes are older than the policy, and without a correction the reward fell in every try. trainer=async "
            "sets rollout_is=token",
        ),
        (
            not oldest or oldest < 2,
            f"trainer.v1.sampler.max_off_policy_threshold={oldest}",
            "it bounds how old an episode gets from 2 on. trainer=async sets 4",
        ),
        (
            not 0 <= ahead <= 1,
            f"trainer.v1.colocate_async.num_warmup_batches={ahead}",
            "with more than one batch ahead, or fewer than none, max_off_policy_threshold bounds nothing: finished "
            "groups would wait for those before them. trainer=async sets 1",
        ),
    ):
        if asked:
            raise PreflightError(f"{given} with {setting}: {why}. Set trainer=sync, or change the latter.")
