"""LoRA settings that would train something else, or could not be handed on, are refused before the start."""

import copy
import importlib.util
import re
from functools import cache
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from recipe.errors import PreflightError
from recipe.preflight.lora import RANKS, check_lora
from recipe.settings import CONFIG_DIR

MODEL = "actor_rollout_ref.model"


@cache
def stage1() -> DictConfig:
    with initialize_config_dir(str(CONFIG_DIR), version_base=None):
        return compose("stage1", overrides=["hardware=tiny", "algorithm=tppo"])


def composed(*overrides: str) -> DictConfig:
    """Stage 1 with a critic and these overrides; composed once, because that takes longer than all the checks."""
    config = copy.deepcopy(stage1())
    for override in overrides:
        key, value = override.split("=")
        OmegaConf.update(config, key, OmegaConf.from_dotlist([f"value={value}"]).value, force_add=True)
    return config


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        (f"{MODEL}.lora_rank=8",),
        (f"{MODEL}.lora_rank=8", f"{MODEL}.target_modules=[q_proj,down_proj]", f"{MODEL}.exclude_modules=.*gate.*"),
        (f"{MODEL}.lora_rank=8", f"{MODEL}.lora.merge=true"),
        (f"{MODEL}.lora_rank=1024", f"{MODEL}.lora.merge=true"),
        (f"{MODEL}.lora_rank=8", f"{MODEL}.lora_adapter_path=/a"),
        (f"{MODEL}.lora_rank=8", "stage.adapter=continue"),
        (
            f"{MODEL}.lora_rank=8",
            "actor_rollout_ref.rollout.layered_summon=true",
            "actor_rollout_ref.rollout.load_format=safetensors",
        ),
    ],
)
def test_what_works_passes(overrides):
    check_lora(composed(*overrides))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ((f"{MODEL}.lora.rank=8",), r"lora\.rank=8 is read by Megatron.*Set actor_rollout_ref\.model\.lora_rank"),
        ((f"{MODEL}.lora_adapter_path=/a",), r"lora_adapter_path=/a trains an adapter further.*Set .*lora_rank"),
        (("stage.adapter=continue",), r"stage\.adapter=continue trains an adapter further.*Set .*lora_rank"),
        ((f"{MODEL}.lora_rank=-1",), "lora_rank=-1 is not a whole number of 0 or more"),
        ((f"{MODEL}.lora_rank=8", f"{MODEL}.lora_alpha=12.5"), "lora_alpha=12.5 is not a whole number of 1 or more"),
        ((f"{MODEL}.lora_rank=1024",), r"more than the 512.*lora\.merge=true"),
        ((f"{MODEL}.lora_rank=8", f"{MODEL}.target_modules=[q_proj,lm_head]"), "LoRA on lm_head is not merged right"),
        ((f"{MODEL}.lora_rank=8", f"{MODEL}.target_modules=.*embed_tokens"), "LoRA on embed_tokens"),
        ((f"{MODEL}.lora_rank=8", f"{MODEL}.target_parameters=[experts]"), "cannot be merged.*target_modules"),
        (("critic.model.lora_rank=8",), "value head starts at random.*Leave it 0"),
        ((f"{MODEL}.lora_rank=8", "actor_rollout_ref.rollout.layered_summon=true"), "Set load_format=safetensors"),
    ],
)
def test_what_cannot_work_is_refused_with_the_setting_to_change(overrides, message):
    with pytest.raises(PreflightError, match=message):
        check_lora(composed(*overrides))


def test_the_ranks_are_vllms():
    folder = Path(importlib.util.find_spec("vllm").submodule_search_locations[0])  # importing it takes seconds
    ranks = re.search(r"MaxLoRARanks = Literal\[(.*)\]", (folder / "config" / "lora.py").read_text())
    assert ranks and tuple(int(rank) for rank in ranks[1].split(",")) == RANKS
