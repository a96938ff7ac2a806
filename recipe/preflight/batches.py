"""Sizes that follow from others: verl asks for them, and looks in the first step."""

from omegaconf import DictConfig, OmegaConf

from recipe.memory.check import known_model
from recipe.memory.settings import BYTES, sequence_parts

POLICY = "actor_rollout_ref"


def fit_batches(config: DictConfig) -> None:
    """Lower each micro-batch to what divides the rows of a GPU. It decides memory and time alone."""
    policy = config[POLICY]
    world = config.trainer.n_gpus_per_node * config.trainer.nnodes
    shares = max(1, world // sequence_parts(policy.actor, "fsdp_config"))
    whole, mini = config.data.train_batch_size, policy.actor.ppo_mini_batch_size
    learns_near = policy.actor.use_kl_loss or config.algorithm.use_kl_in_reward
    counted = (
        (not learns_near or policy.ref.log_prob_use_dynamic_bsz, "ref.log_prob_micro_batch_size_per_gpu", whole),
        (policy.actor.use_dynamic_bsz, "actor.ppo_micro_batch_size_per_gpu", mini),
        (policy.rollout.log_prob_use_dynamic_bsz, "rollout.log_prob_micro_batch_size_per_gpu", whole),
    )
    for by_tokens, key, prompts in counted:
        size, rows = OmegaConf.select(policy, key), prompts * policy.rollout.n // shares
        if not by_tokens and size and rows % size:
            fits = next(number for number in range(min(size, rows), 0, -1) if rows % number == 0)
            OmegaConf.update(config, f"{POLICY}.{key}", fits)
            print(f"NOTE       {POLICY}.{key}={fits}: {size} does not divide {rows} trajectories of a GPU", flush=True)


def fit_bucket(config: DictConfig) -> None:
    """Raise the bucket in which weights go to the engine, so that it holds the largest of them: the embedding."""
    if (model := known_model(config)) is None:
        return
    checkpoint, dtype = config[POLICY].rollout.checkpoint_engine, config[POLICY].actor.fsdp_config.model_dtype
    largest = -(-model.embedding * BYTES[dtype or "fp32"] // 2**20)
    checkpoint.update_weights_bucket_megabytes = max(checkpoint.update_weights_bucket_megabytes, largest)
