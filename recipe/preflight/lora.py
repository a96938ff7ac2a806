"""Checks of LoRA before anything starts: combinations that would train something else, or could not be handed on."""

from typing import Any

from omegaconf import DictConfig, OmegaConf

from recipe.errors import PreflightError

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM makes room for (`vllm.config.lora.MaxLoRARanks`), where it applies an adapter itself."""
LARGEST_RANK = RANKS[-1]

EMBEDDINGS = ("lm_head", "embed_tokens")


def check_lora(config: DictConfig) -> None:
    """`actor_rollout_ref.model.lora_rank` and its company make a model that can be trained, sampled and merged.

    Raises:
        PreflightError: they do not.
    """
    model, rollout = config.actor_rollout_ref.model, config.actor_rollout_ref.rollout
    check_model_lora(model, "actor_rollout_ref.model")
    if critic := config.critic.model.get("lora_rank"):
        raise PreflightError(
            f"critic.model.lora_rank={critic}: the critic's value head starts at random, and verl's LoRA would keep it "
            "there. Leave it 0: the critic then trains all its weights, whatever the policy does."
        )
    path = model.lora_adapter_path
    further = "stage.adapter=continue" if path is None else f"actor_rollout_ref.model.lora_adapter_path={path}"
    if not model.lora_rank and (path is not None or config.stage.adapter == "continue"):
        raise PreflightError(
            f"{further} trains an adapter further, and actor_rollout_ref.model.lora_rank=0 trains all weights. Set "
            "actor_rollout_ref.model.lora_rank to the adapter's rank, or leave the former out."
        )
    if not model.lora_rank or model.lora.merge:
        return
    if model.lora_rank > LARGEST_RANK:
        raise PreflightError(
            f"actor_rollout_ref.model.lora_rank={model.lora_rank} is more than the {LARGEST_RANK} that vLLM takes as "
            "an adapter. Lower it, or set actor_rollout_ref.model.lora.merge=true: vLLM then gets merged weights."
        )
    if rollout.layered_summon and str(rollout.load_format).startswith("dummy"):
        raise PreflightError(
            "actor_rollout_ref.rollout.layered_summon=true sends vLLM the adapter only, and actor_rollout_ref.rollout."
            f"load_format={rollout.load_format} gives it no weights to add it to. Set load_format=safetensors."
        )


def check_model_lora(model: DictConfig, name: str) -> None:
    """The LoRA settings of a model, which the configuration calls `name`, can be trained with FSDP2 and merged.

    Raises:
        PreflightError: they cannot.
    """
    if model.lora.rank:
        raise PreflightError(
            f"{name}.lora.rank={model.lora.rank} is read by Megatron, this recipe trains with FSDP2, which would "
            f"train all weights. Set {name}.lora_rank, lora_alpha, target_modules; of {name}.lora only merge counts."
        )
    for key, least in (("lora_rank", 0), ("lora_alpha", 1)):
        value = model[key]
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise PreflightError(f"{name}.{key}={value} is not a whole number of {least} or more.")
    if not model.lora_rank:
        return
    if model.get("target_parameters"):
        raise PreflightError(
            f"{name}.target_parameters={model.target_parameters} cannot be merged at the end of the stage. Name "
            f"modules, with {name}.target_modules."
        )
    wanted: Any = model.target_modules
    wanted = OmegaConf.to_container(wanted) if OmegaConf.is_list(wanted) else [wanted]
    if named := [part for part in EMBEDDINGS if any(part in str(entry) for entry in wanted)]:
        raise PreflightError(
            f"{name}.target_modules={model.target_modules}: LoRA on {' and '.join(named)} is not merged right where "
            "the two are one tensor, which both would change. Leave them out; all-linear does."
        )
