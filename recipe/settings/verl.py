"""Settings of verl's that this recipe is used with, as verl 0.9.1 takes them.

verl looks at most of them after minutes, in a worker, or never: a misspelt `resume_mode` is logged, a batch of "abc"
raises in the middle of a step. Its own dataclasses state types and no ranges, and importing them takes torch; so they
are written down here, each section by the names verl has for it, and a test compares names and choices. What is not
named here is held against the type of verl's default (`recipe/settings/reading.py`).
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from recipe.settings.kinds import (
    OPEN,
    Every,
    Names,
    Natural,
    NaturalOrAll,
    NotNegative,
    PartAbove0,
    Positive,
    Precision,
    ReadPath,
    Seconds,
    Share,
    Text,
    Threshold,
    Whole,
    WrittenPath,
    resume_mode,
)

# fmt: off
Estimate = Literal["kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3",
                   "kl+", "k1+", "abs+", "mse+", "k2+", "low_var_kl+", "k3+"]
# fmt: on
"""How a KL divergence is estimated; `+` takes the gradient of k2 with the value of the other."""

Aggregation = Literal["token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean"]
Strategy = Literal["fsdp", "fsdp2", "fsdp_turbo"]
Contents = Literal["model", "optimizer", "extra", "hf_model"]


@dataclass(frozen=True)
class MixedPrecision:
    """`mixed_precision` of an engine."""

    __pydantic_config__ = OPEN
    param_dtype: Precision = "bf16"
    reduce_dtype: Precision = "fp32"
    buffer_dtype: Precision = "fp32"


@dataclass(frozen=True)
class Engine:
    """`fsdp_config` of actor and reference, `fsdp` of the critic, `engine` of the warm start."""

    __pydantic_config__ = OPEN
    strategy: Strategy
    param_offload: bool = False
    optimizer_offload: bool = False
    offload_policy: bool = False
    reshard_after_forward: bool = True
    fsdp_size: Annotated[int, Field(ge=-1)] = -1
    forward_prefetch: bool = False
    model_dtype: Precision = "fp32"
    use_orig_params: bool = False
    seed: Natural = 42
    full_determinism: bool = False
    ulysses_sequence_parallel_size: Whole = 1
    entropy_from_logits_with_chunking: bool = False
    entropy_from_logits_chunk_size: Whole = 2048
    use_torch_compile: bool = True
    entropy_checkpointing: bool = False
    mixed_precision: MixedPrecision | None = None
    pad_to_length: bool = False
    pad_to_length_bucket: Whole = 1024


@dataclass(frozen=True)
class Optimizer:
    """`optim`."""

    __pydantic_config__ = OPEN
    lr: NotNegative
    optimizer: Text = "AdamW"
    optimizer_impl: Text = "torch.optim"
    lr_warmup_steps_ratio: Share = 0.0
    lr_warmup_steps: NaturalOrAll | None = -1
    total_training_steps: NaturalOrAll = -1
    weight_decay: NotNegative = 0.01
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    clip_grad: Positive = 1.0
    min_lr_ratio: Share | None = None
    warmup_style: Literal["constant", "cosine"] | None = None
    lr_scheduler_type: Literal["constant", "cosine"] = "constant"
    num_cycles: NotNegative = 0.5
    override_optimizer_config: dict[str, Any] | None = None
    zero_indexed_step: bool = True


@dataclass(frozen=True)
class Checkpoint:
    """`checkpoint`."""

    __pydantic_config__ = OPEN
    save_contents: tuple[Contents, ...]
    load_contents: tuple[Contents, ...]
    async_save: bool = False


@dataclass(frozen=True)
class PolicyLoss:
    """`actor_rollout_ref.actor.policy_loss`; the names of losses are those of `recipe/preflight/settings.py`."""

    __pydantic_config__ = OPEN
    loss_mode: Text
    clip_cov_ratio: Share = 0.0002
    clip_cov_lb: float = 1.0
    clip_cov_ub: float = 5.0
    kl_cov_ratio: Share = 0.0002
    ppo_kl_coef: NotNegative = 0.1
    dro_beta: Positive | None = None
    ratio_norm: Literal["token_mean", "sum"] = "token_mean"


@dataclass(frozen=True)
class Actor:
    """`actor_rollout_ref.actor`."""

    __pydantic_config__ = OPEN
    strategy: Strategy
    ppo_mini_batch_size: Whole
    ppo_max_token_len_per_gpu: Whole
    optim: Optimizer
    fsdp_config: Engine
    policy_loss: PolicyLoss
    checkpoint: Checkpoint
    ppo_micro_batch_size_per_gpu: Whole | None = None
    use_dynamic_bsz: bool = False
    clip_ratio: NotNegative = 0.2
    clip_ratio_low: NotNegative = 0.2
    clip_ratio_high: NotNegative = 0.2
    clip_ratio_c: Annotated[float, Field(gt=1)] = 3.0
    tau_pos: Positive = 1.0
    tau_neg: Positive = 1.05
    loss_agg_mode: Aggregation = "token-mean"
    loss_scale_factor: Positive | None = None
    entropy_coeff: float = 0
    calculate_entropy: bool = False
    use_kl_loss: bool = False
    kl_loss_coef: NotNegative = 0.001
    kl_loss_type: Estimate = "low_var_kl"
    ppo_epochs: Whole = 1
    shuffle: bool = False
    data_loader_seed: Natural | None = 42


@dataclass(frozen=True)
class Reference:
    """`actor_rollout_ref.ref`."""

    __pydantic_config__ = OPEN
    strategy: Strategy
    fsdp_config: Engine
    log_prob_use_dynamic_bsz: bool = False
    log_prob_micro_batch_size_per_gpu: Whole | None = None
    log_prob_max_token_len_per_gpu: Whole = 16384


@dataclass(frozen=True)
class Sampling:
    """`actor_rollout_ref.rollout.val_kwargs`."""

    __pydantic_config__ = OPEN
    temperature: NotNegative
    n: Whole
    top_k: NaturalOrAll = -1
    top_p: PartAbove0 = 1.0


@dataclass(frozen=True)
class Agent:
    """`actor_rollout_ref.rollout.agent`."""

    __pydantic_config__ = OPEN
    num_workers: Whole
    default_agent_loop: Text
    agent_loop_config_path: ReadPath | None = None


@dataclass(frozen=True)
class CheckpointEngine:
    """`actor_rollout_ref.rollout.checkpoint_engine`: how weights go from the trainer into the engine."""

    __pydantic_config__ = OPEN
    backend: Text | None
    update_weights_bucket_megabytes: Whole
    engine_kwargs: dict[str, Any]


@dataclass(frozen=True)
class Rollout:
    """`actor_rollout_ref.rollout`; types of numbers, modes and policies are vLLM's."""

    __pydantic_config__ = OPEN
    name: Literal["vllm", "sglang", "trtllm"]
    n: Whole
    temperature: Positive
    agent: Agent
    val_kwargs: Sampling
    checkpoint_engine: CheckpointEngine
    mode: Literal["async"] = "async"
    top_k: NaturalOrAll = -1
    top_p: PartAbove0 = 1.0
    seed: Natural = 42
    full_determinism: bool = False
    dtype: Literal["auto", "half", "float16", "bfloat16", "float", "float32"] = "bfloat16"
    gpu_memory_utilization: PartAbove0 = 0.5
    prompt_length: Whole = 512
    response_length: Whole = 512
    max_model_len: Whole | None = None
    max_num_batched_tokens: Whole = 8192
    max_num_seqs: Whole = 1024
    tensor_model_parallel_size: Whole = 1
    data_parallel_size: Whole = 1
    expert_parallel_size: Whole = 1
    pipeline_model_parallel_size: Whole = 1
    ignore_eos: bool = False
    enforce_eager: bool = False
    free_cache_engine: bool = True
    enable_chunked_prefill: bool = True
    enable_prefix_caching: bool = True
    enable_sleep_mode: bool = True
    calculate_log_probs: bool = False
    load_format: Text = "dummy"
    logprobs_mode: Literal["raw_logits", "raw_logprobs", "processed_logits", "processed_logprobs"] | None = (
        "processed_logprobs"
    )
    scheduling_policy: Literal["fcfs", "priority"] | None = "fcfs"
    engine_kwargs: dict[str, Any] | None = None
    log_prob_use_dynamic_bsz: bool = False
    log_prob_micro_batch_size_per_gpu: Whole | None = None
    log_prob_max_token_len_per_gpu: Whole = 16384


@dataclass(frozen=True)
class Model:
    """`actor_rollout_ref.model`, `critic.model`, `model` of the warm start."""

    __pydantic_config__ = OPEN
    path: ReadPath | None
    tokenizer_path: ReadPath | None = None
    hf_config_path: ReadPath | None = None
    lora_adapter_path: ReadPath | None = None
    use_shm: bool = False
    trust_remote_code: bool = False
    enable_gradient_checkpointing: bool = True
    enable_activation_offload: bool = False
    use_remove_padding: bool = True
    use_fused_kernels: bool = False
    use_liger: bool = False
    override_config: dict[str, Any] = field(default_factory=dict)  # verl asks it without looking for null
    lora_rank: Natural = 0
    lora_alpha: Whole = 16
    target_modules: Names | None = "all-linear"


@dataclass(frozen=True)
class ActorRolloutRef:
    """`actor_rollout_ref`."""

    __pydantic_config__ = OPEN
    actor: Actor
    ref: Reference
    rollout: Rollout
    model: Model


@dataclass(frozen=True)
class Critic:
    """`critic`."""

    __pydantic_config__ = OPEN
    strategy: Strategy
    optim: Optimizer
    fsdp: Engine
    model: Model
    checkpoint: Checkpoint
    enable: bool | None = None
    ppo_mini_batch_size: Whole = 1
    ppo_max_token_len_per_gpu: Whole = 32768
    ppo_infer_max_token_len_per_gpu: Whole = 32768
    ppo_epochs: Whole = 1
    shuffle: bool = True
    cliprange_value: NotNegative = 0.5
    loss_agg_mode: Aggregation = "token-mean"
    loss_scale_factor: Positive | None = None


@dataclass(frozen=True)
class KLControl:
    """`algorithm.kl_ctrl`."""

    __pydantic_config__ = OPEN
    type: Literal["fixed", "adaptive"]
    kl_coef: NotNegative
    horizon: NotNegative
    target_kl: NotNegative


@dataclass(frozen=True)
class FilterGroups:
    """`algorithm.filter_groups`."""

    __pydantic_config__ = OPEN
    enable: bool
    metric: Text | None
    max_num_gen_batches: Annotated[int, Field(ge=-1)] = 0
    max_inflight_gen_batches: Whole = 1


@dataclass(frozen=True)
class RolloutCorrection:
    """`algorithm.rollout_correction`."""

    __pydantic_config__ = OPEN
    rollout_is: Literal["token", "sequence"] | None = None
    rollout_is_threshold: Threshold | None = 2.0
    rollout_rs: Text | None = None
    rollout_rs_threshold: Threshold | None = None
    bypass_mode: bool = False
    loss_type: Literal["ppo_clip", "reinforce"] = "ppo_clip"
    rollout_is_batch_normalize: bool = False


@dataclass(frozen=True)
class Algorithm:
    """`algorithm`; the names of estimators are those of `recipe/preflight/settings.py`."""

    __pydantic_config__ = OPEN
    adv_estimator: Text
    gamma: Share
    lam: Share
    kl_ctrl: KLControl
    filter_groups: FilterGroups
    rollout_correction: RolloutCorrection
    norm_adv_by_std_in_grpo: bool = True
    use_kl_in_reward: bool = False
    kl_penalty: Estimate = "kl"


@dataclass(frozen=True)
class Data:
    """`data`."""

    __pydantic_config__ = OPEN
    train_files: Names
    val_files: Names | tuple[()]
    train_batch_size: Whole
    max_prompt_length: Whole
    max_response_length: Whole
    gen_batch_size: Whole | None = None
    val_batch_size: Whole | None = None
    train_max_samples: NaturalOrAll = -1
    val_max_samples: NaturalOrAll = -1
    shuffle: bool = True
    validation_shuffle: bool = False
    seed: Natural | None = None
    dataloader_num_workers: Natural = 8
    filter_overlong_prompts: bool = False
    filter_overlong_prompts_workers: Whole | None = 1
    truncation: Literal["error", "left", "right", "middle"] = "error"
    trust_remote_code: bool = False
    apply_chat_template_kwargs: dict[str, Any] | None = None


@dataclass(frozen=True)
class RewardFunction:
    """`reward.custom_reward_function`."""

    __pydantic_config__ = OPEN
    path: ReadPath
    name: Text
    reward_kwargs: dict[str, Any] | None = None


@dataclass(frozen=True)
class Reward:
    """`reward`; `timeout` is this recipe's."""

    __pydantic_config__ = OPEN
    custom_reward_function: RewardFunction
    num_workers: Whole = 8
    timeout: Seconds = 300


@dataclass(frozen=True)
class V1:
    """`trainer.v1`; which modes work is said in `recipe/preflight/settings.py`."""

    __pydantic_config__ = OPEN
    trainer_mode: Text


@dataclass(frozen=True)
class Trainer:
    """`trainer`; which loggers work is said in `recipe/preflight/settings.py`."""

    __pydantic_config__ = OPEN
    total_epochs: Whole
    save_freq: NaturalOrAll
    test_freq: NaturalOrAll
    resume_mode: Annotated[Literal["auto", "disable", "resume_path"], BeforeValidator(resume_mode)]
    default_local_dir: WrittenPath
    logger: Names
    project_name: Text
    experiment_name: Text
    n_gpus_per_node: Whole
    nnodes: Whole
    v1: V1
    device: Literal["cpu", "cuda", "npu"] = "cuda"
    total_training_steps: Whole | None = None
    resume_from_path: ReadPath | None = None
    val_before_train: bool = True
    val_only: bool = False
    critic_warmup: Natural = 0
    log_val_generations: Natural = 0
    max_actor_ckpt_to_keep: NaturalOrAll | None = None
    max_critic_ckpt_to_keep: NaturalOrAll | None = None
    del_local_ckpt_after_load: bool = False
    balance_batch: bool = True


@dataclass(frozen=True)
class SftData:
    """`data` of the warm start; `val_share` and two ways of `truncation` are this recipe's."""

    __pydantic_config__ = OPEN
    train_files: Names
    train_batch_size: Whole
    micro_batch_size_per_gpu: Whole
    max_token_len_per_gpu: Whole
    max_length: Whole
    use_dynamic_bsz: bool
    truncation: Literal["error", "drop", "messages", "right"]
    val_files: Names | None = None
    val_share: Annotated[float, Field(gt=0, lt=1)] | None = None
    num_workers: Natural = 8
    train_max_samples: NaturalOrAll = -1
    val_max_samples: NaturalOrAll = -1


@dataclass(frozen=True)
class SftTrainer:
    """`trainer` of the warm start."""

    __pydantic_config__ = OPEN
    total_epochs: Whole
    save_freq: Every
    default_local_dir: WrittenPath
    logger: Names
    project_name: Text
    experiment_name: Text
    resume_mode: Literal["auto", "disable", "resume_path"]
    test_freq: Every = -1
    max_ckpt_to_keep: NaturalOrAll | None = None
    total_training_steps: Whole | None = None
    seed: Natural = 1
    device: Literal["cpu", "cuda", "npu"] = "cuda"
    nnodes: Whole = 1
    n_gpus_per_node: Whole = 1
