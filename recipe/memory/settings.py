"""What of a run's configuration decides about memory, as plain numbers."""

from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig

from recipe.trajectories import is_offline

BYTES = {"fp32": 4, "float32": 4, "bf16": 2, "bfloat16": 2, "fp16": 2, "float16": 2}

PADDING = 2.5
"""Tokens of the largest padded micro-batch for each token of the budget. verl fills a micro-batch by real tokens and,
without packing, pads each row to the longest one. In 20 simulated steps of stage 3 the largest had 163,000 tokens at a
budget of 65,536."""


@dataclass(frozen=True)
class Engine:
    """vLLM on one GPU."""

    utilization: float
    """Share of the card that it takes while awake."""
    tensor_parallel: int
    batched_tokens: int
    sequences: int
    """Episodes that one engine plays at once."""
    context: int
    """Tokens of the longest sequence."""
    graphs: bool
    sleeps: bool
    """Gives its memory back while the trainer works."""
    bucket: int
    """Bytes of the buffer that carries weights from the trainer."""


@dataclass(frozen=True)
class Critic:
    """A second model as large as the first, all of it trained, whatever LoRA the first has; `critic.fsdp`."""

    model_bytes: int
    param_offload: bool
    optimizer_offload: bool
    offload_policy: bool


@dataclass(frozen=True)
class Settings:
    """One run on cards of `card` bytes. Tokens are those of a micro-batch on one GPU."""

    card: float
    gpus: int
    """Of one machine."""
    nodes: int
    shards: int
    """GPUs over which FSDP spreads parameters, gradients and Adam's moments."""
    update_tokens: int
    forward_tokens: int
    reference_tokens: int
    longest: int
    """Tokens of the longest prompt and response, which a micro-batch must hold whatever its budget."""
    packed: bool
    fused: bool
    checkpointing: bool
    entropy: bool
    """The loss has an entropy term."""
    lora_rank: int
    model_bytes: int
    """Of a parameter as it is kept."""
    reference: bool
    """A model of its own for the KL term, in host memory."""
    reference_bytes: int
    critic: Critic | None
    param_offload: bool
    optimizer_offload: bool
    offload_policy: bool
    deferred_gradients: bool
    """Gradients stay whole until the last micro-batch."""
    old_log_probs: bool
    """The trainer computes the log-probs of the sampled tokens again."""
    engine: Engine
    plays: bool = True
    """Whether there is an engine beside the trainer: not where a stage learns from stored trajectories, or engines have
    cards of their own."""

    @property
    def padding(self) -> float:
        """Tokens computed for each token of the budget."""
        return 1.0 if self.packed else PADDING


def sequence_parts(part: DictConfig, engine: str) -> int:
    """Over how many GPUs verl cuts the sequences of a model: its own setting comes before that of its engine."""
    own, of_engine = (each.get("ulysses_sequence_parallel_size") or 1 for each in (part, part.get(engine) or {}))
    return own if own > 1 else of_engine


def read_settings(config: DictConfig, card: float) -> Settings:
    """From a stage's composed configuration, for cards of `card` bytes."""
    policy, rollout = config.actor_rollout_ref, config.actor_rollout_ref.rollout
    actor, model, fsdp = policy.actor, policy.model, policy.actor.fsdp_config
    longest = config.data.max_prompt_length + config.data.max_response_length
    if is_offline(config) and rollout.max_model_len:
        longest = min(longest, rollout.max_model_len)
    world = config.trainer.n_gpus_per_node * config.trainer.nnodes
    replicas = max(1, world // rollout.tensor_model_parallel_size)
    lora = int(model.get("lora_rank") or 0)

    def tokens(dynamic: bool, budget: int, rows: Any, part: DictConfig) -> int:
        return (
            max(int(budget), -(-longest // sequence_parts(part, "fsdp_config")))
            if dynamic
            else int(rows or 1) * longest
        )

    return Settings(
        card=card,
        gpus=config.trainer.n_gpus_per_node,
        nodes=config.trainer.nnodes,
        shards=fsdp.fsdp_size if 0 < fsdp.fsdp_size < world else world,
        update_tokens=tokens(
            actor.use_dynamic_bsz, actor.ppo_max_token_len_per_gpu, actor.ppo_micro_batch_size_per_gpu, actor
        ),
        forward_tokens=tokens(
            rollout.log_prob_use_dynamic_bsz,
            rollout.log_prob_max_token_len_per_gpu,
            rollout.log_prob_micro_batch_size_per_gpu,
            actor,
        ),
        reference_tokens=tokens(
            policy.ref.log_prob_use_dynamic_bsz,
            policy.ref.log_prob_max_token_len_per_gpu,
            policy.ref.log_prob_micro_batch_size_per_gpu,
            policy.ref,
        ),
        longest=longest,
        packed=bool(model.use_remove_padding),
        fused=bool(model.use_fused_kernels),
        checkpointing=bool(model.enable_gradient_checkpointing),
        entropy=actor.entropy_coeff != 0 or bool(actor.get("calculate_entropy")),
        lora_rank=lora,
        model_bytes=BYTES[fsdp.model_dtype or "fp32"],
        reference=not lora and bool(actor.use_kl_loss or config.algorithm.use_kl_in_reward),
        reference_bytes=BYTES[policy.ref.fsdp_config.model_dtype or "bf16"],
        critic=_critic(config.critic),
        param_offload=bool(fsdp.param_offload),
        optimizer_offload=bool(fsdp.optimizer_offload),
        offload_policy=bool(fsdp.offload_policy),
        deferred_gradients=bool(fsdp.use_no_sync_for_gradient_accumulation),
        old_log_probs=not (config.algorithm.get("rollout_correction") or {}).get("bypass_mode", False),
        engine=Engine(
            utilization=rollout.gpu_memory_utilization,
            tensor_parallel=rollout.tensor_model_parallel_size,
            batched_tokens=rollout.max_num_batched_tokens,
            sequences=min(rollout.max_num_seqs, -(-config.data.train_batch_size * rollout.n // replicas)),
            context=rollout.max_model_len or longest,
            graphs=not rollout.enforce_eager,
            sleeps=bool(rollout.free_cache_engine),
            bucket=rollout.checkpoint_engine.update_weights_bucket_megabytes << 20,
        ),
        plays=not is_offline(config) and policy.hybrid_engine,
    )


def _critic(critic: DictConfig) -> Critic | None:
    if not critic.enable:
        return None
    return Critic(
        model_bytes=BYTES[critic.fsdp.get("model_dtype") or "fp32"],
        param_offload=bool(critic.fsdp.get("param_offload")),
        optimizer_offload=bool(critic.fsdp.get("optimizer_offload")),
        offload_policy=bool(critic.fsdp.get("offload_policy")),
    )
