"""Checks for settings that verl takes without a word and does not use on the path that runs here.

verl's configuration serves two trainers, six training engines and three inference engines; a key that only another of
them reads can be set, is printed, and changes nothing.
"""

from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from recipe.errors import PreflightError


@dataclass(frozen=True)
class Dead:
    """A key of verl's that does nothing here."""

    key: str
    default: Any
    """What it is when nobody sets it."""
    live: str | None
    """The key that does what this one promises; None where there is none."""
    why: str = "verl's FSDP engine reads only the latter"


ACTOR, REF, ROLLOUT, MODEL = (f"actor_rollout_ref.{part}" for part in ("actor", "ref", "rollout", "model"))
_MEGATRON = "the former is Megatron's"
_CRITIC_ROWS = "verl's critic fills its micro-batches by tokens"
_OUR_LOOP = "the conversation is this recipe's"
_V1 = "the former is of verl's old reward configuration"

DEAD = (
    Dead(f"{ACTOR}.grad_clip", 1.0, f"{ACTOR}.optim.clip_grad"),
    Dead("critic.grad_clip", 1.0, "critic.optim.clip_grad"),
    Dead(f"{ACTOR}.fsdp_config.dtype", "bfloat16", f"{ACTOR}.fsdp_config.mixed_precision.param_dtype"),
    Dead(f"{REF}.fsdp_config.dtype", "bfloat16", f"{REF}.fsdp_config.mixed_precision.param_dtype"),
    Dead("critic.fsdp.dtype", "bfloat16", "critic.fsdp.mixed_precision.param_dtype"),
    Dead(f"{ACTOR}.use_torch_compile", True, f"{ACTOR}.fsdp_config.use_torch_compile"),
    Dead(f"{REF}.use_torch_compile", True, f"{REF}.fsdp_config.use_torch_compile"),
    Dead(f"{ACTOR}.use_remove_padding", None, f"{MODEL}.use_remove_padding"),
    Dead(f"{ACTOR}.use_fused_kernels", None, f"{MODEL}.use_fused_kernels"),
    Dead(f"{ACTOR}.ppo_micro_batch_size", None, f"{ACTOR}.ppo_micro_batch_size_per_gpu"),
    Dead(f"{ROLLOUT}.log_prob_micro_batch_size", None, f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu"),
    Dead("critic.use_dynamic_bsz", True, "critic.ppo_max_token_len_per_gpu", _CRITIC_ROWS),
    Dead("critic.ppo_micro_batch_size", None, "critic.ppo_max_token_len_per_gpu", _CRITIC_ROWS),
    Dead("critic.ppo_micro_batch_size_per_gpu", None, "critic.ppo_max_token_len_per_gpu", _CRITIC_ROWS),
    Dead("critic.ulysses_sequence_parallel_size", 1, "critic.fsdp.ulysses_sequence_parallel_size"),
    Dead(f"{MODEL}.lora.alpha", 32, f"{MODEL}.lora_alpha", _MEGATRON),
    Dead(f"{MODEL}.lora.dropout", 0.0, None, _MEGATRON),
    Dead(
        f"{MODEL}.lora.target_modules",
        ["linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"],
        f"{MODEL}.target_modules",
        _MEGATRON,
    ),
    Dead(f"{ROLLOUT}.do_sample", True, f"{ROLLOUT}.temperature", "0 is greedy"),
    Dead(f"{ROLLOUT}.multi_turn.max_assistant_turns", None, "interaction.train.max_steps_per_turn", _OUR_LOOP),
    Dead(f"{ROLLOUT}.multi_turn.max_user_turns", None, None, "the task says how many turns there are"),
    Dead(f"{ROLLOUT}.multi_turn.max_tool_response_length", 256, "interaction.train.max_result_chars", _OUR_LOOP),
    Dead(f"{ROLLOUT}.multi_turn.format", "hermes", "interaction.protocol", _OUR_LOOP),
    Dead("actor_rollout_ref.nccl_timeout", 600, None, "torch's own limit of ten minutes holds"),
    Dead("custom_reward_function.path", None, "reward.custom_reward_function.path", _V1),
    Dead("custom_reward_function.name", None, "reward.custom_reward_function.name", _V1),
    Dead("trainer.balance_batch", True, None, "verl's V1 trainer always balances"),
    Dead("trainer.use_v1", True, None, "this recipe's trainer is built on verl's V1 trainer"),
)


def check_keys(config: DictConfig) -> None:
    """Every key that was set is one that something reads.

    Raises:
        PreflightError: not so; one line for each such key, with the one to set instead.
    """
    wrong = []
    for dead in DEAD:
        value = plain(OmegaConf.select(config, dead.key))
        if value == dead.default or (dead.live and value == plain(OmegaConf.select(config, dead.live))):
            continue
        instead = f"Set {dead.live} instead; {dead.why}." if dead.live else f"Leave it out: {dead.why}."
        wrong.append(f"{dead.key}={value} would have no effect. {instead}")
    if wrong:
        raise PreflightError("\n".join(wrong))


def plain(value: Any) -> Any:
    """A value of a configuration as plain data."""
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
