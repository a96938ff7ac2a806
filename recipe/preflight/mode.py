"""Checks of `trainer.v1.trainer_mode`: whether a stage plays and trains in turn, or at the same time, and on what."""

from omegaconf import DictConfig, OmegaConf

from recipe.errors import PreflightError
from recipe.trajectories import is_offline

SYNC, ASYNC, SEPARATE = "sync", "colocate_async", "separate_async"
GROUPS = {ASYNC: "trainer=async", SEPARATE: "trainer=separate"}
"""What sets everything that a mode needs."""


def check_trainer_mode(config: DictConfig) -> None:
    """The mode is one that this recipe extends, and can serve what else is asked for.

    Raises:
        PreflightError: it cannot.
    """
    mode = config.trainer.v1.trainer_mode
    if mode == SYNC and config.actor_rollout_ref.hybrid_engine:
        return
    given = f"trainer.v1.trainer_mode={mode}"
    if mode not in (SYNC, *GROUPS):
        raise PreflightError(
            f"{given}: this recipe extends verl's trainers sync, {' and '.join(GROUPS)}. In another mode verl's own "
            "trainer would run, without gates, limit of lost samples and reward metrics, and the stage would never "
            "count as done. Set trainer=sync, trainer=async or trainer=separate."
        )
    if config.actor_rollout_ref.hybrid_engine != (mode != SEPARATE):
        raise PreflightError(
            f"{given} with actor_rollout_ref.hybrid_engine={str(config.actor_rollout_ref.hybrid_engine).lower()}: that "
            "says whether the cards that train have engines too, which they have in every mode but separate_async. Set "
            "trainer=separate, which sets both, or leave it out."
        )
    _refuse(config, f"{given} with", f"{GROUPS[mode]} sets")
    if mode == SEPARATE:
        _refuse_separate(config, f"{given} with")


def _refuse(config: DictConfig, given: str, sets: str) -> None:
    """What neither asynchronous mode can serve."""
    correction, modes = config.algorithm.rollout_correction, config.trainer.v1
    mode, oldest = modes.trainer_mode, modes.sampler.max_off_policy_threshold
    ahead = modes[mode].num_warmup_batches
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
            "episodes are older than the policy, and without a correction the reward fell in every try. "
            f"{sets} rollout_is=token",
        ),
        (
            not oldest or oldest < 2,
            f"trainer.v1.sampler.max_off_policy_threshold={oldest}",
            f"it bounds how old an episode gets from 2 on. {sets} 4",
        ),
        (
            not 0 <= ahead <= 1,
            f"trainer.v1.{mode}.num_warmup_batches={ahead}",
            "with more than one batch ahead, or fewer than none, max_off_policy_threshold bounds nothing: finished "
            f"groups would wait for those before them. {sets} 1",
        ),
    ):
        if asked:
            raise PreflightError(f"{given} {setting}: {why}. Set trainer=sync, or change the latter.")


def _refuse_separate(config: DictConfig, given: str) -> None:
    """What engines on devices of their own cannot serve."""
    model, rollout = config.actor_rollout_ref.model, config.actor_rollout_ref.rollout
    updates, engine = config.trainer.v1[SEPARATE].parameter_sync_step, rollout.checkpoint_engine.backend
    per_engine = rollout.tensor_model_parallel_size * rollout.data_parallel_size * rollout.pipeline_model_parallel_size
    batch, mini = config.data.train_batch_size, config.actor_rollout_ref.actor.ppo_mini_batch_size
    cards = rollout.n_gpus_per_node * rollout.nnodes
    for asked, setting, why in (
        (
            updates != 1,
            f"trainer.v1.{SEPARATE}.parameter_sync_step={updates}",
            "verl then samples a part of the batch for each optimizer step, and the limit of lost samples and the "
            "metrics of this recipe are those of a batch. Set it to 1",
        ),
        (
            batch != mini,
            f"data.train_batch_size={batch} and actor_rollout_ref.actor.ppo_mini_batch_size={mini}",
            "engines get the weights after one optimizer step. Set both to the same number (TRAIN_BATCH_SIZE, "
            "MINI_BATCH_SIZE)",
        ),
        (
            model.lora_rank > 0 and not OmegaConf.select(model, "lora.merge"),
            f"actor_rollout_ref.model.lora_rank={model.lora_rank}",
            "verl sends the base to such engines and not the adapter, so nothing that is learned would be played. Set "
            "+actor_rollout_ref.model.lora.merge=true, which sends both as one, or trainer=async",
        ),
        (
            cards < 1 or cards % per_engine,
            f"actor_rollout_ref.rollout.nnodes={rollout.nnodes} and n_gpus_per_node={rollout.n_gpus_per_node}",
            f"an engine takes {per_engine} of these devices (tensor_model_parallel_size, data_parallel_size, "
            "pipeline_model_parallel_size), and none may be left over",
        ),
        (
            engine == "naive",
            "actor_rollout_ref.rollout.checkpoint_engine.backend=naive",
            "that hands weights over within a card. trainer=separate sets gloo",
        ),
    ):
        if asked:
            raise PreflightError(f"{given} {setting}: {why}.")


def playing(config: DictConfig) -> int:
    """Devices that only play; 0 where those that train do."""
    if config.trainer.v1.trainer_mode != SEPARATE:
        return 0
    return int(config.actor_rollout_ref.rollout.n_gpus_per_node) * int(config.actor_rollout_ref.rollout.nnodes)


def devices(config: DictConfig) -> int:
    """That a run takes: those that train, and those that play where they are others."""
    return int(config.trainer.n_gpus_per_node) * int(config.trainer.nnodes) + playing(config)
