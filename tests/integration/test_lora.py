"""Two stages with LoRA merged for vLLM, for real: the second one starts from the model that the first one trained.

About three minutes on two cores.
"""

import json
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from support.short_training import engine_agrees, prepared, start
from transformers import AutoModelForCausalLM

from recipe.stage.metrics_log import read_steps

REWARD = """
def compute_score(data_source, solution_str, ground_truth, extra_info):
    return {"score": 1.0 + len(solution_str) % 11}  # so that an untrained policy gets a gradient
"""
RANDOM = 7.62
"""Entropy in nats of a policy that knows nothing of its 2048 tokens."""


@pytest.mark.slow
def test_a_stage_with_lora_hands_on_what_it_trained(tmp_path: Path):
    prepared(tmp_path, REWARD)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    with torch.no_grad():
        model.model.norm.weight.mul_(5.0)  # entropy 1.4 nats at temperature 0.7, so that a random policy shows
    model.save_pretrained(tmp_path / "model")
    done = start(
        *("recipe.curriculum", "--stages=stage1,stage2", f"paths.run={tmp_path}/run", f"paths.data={tmp_path}/data"),
        f"stage1:actor_rollout_ref.model.path={tmp_path}/model",
        f"reward.custom_reward_function.path={tmp_path}/my_reward.py",
        *("actor_rollout_ref.model.lora_rank=8", "actor_rollout_ref.model.lora_alpha=24"),
        *("actor_rollout_ref.model.lora.merge=true", "actor_rollout_ref.actor.optim.lr=0.001"),
        *("actor_rollout_ref.rollout.n=4", "data.max_response_length=300", "stage.old_log_probs_every=1"),
        *("trainer.total_training_steps=2", "trainer.save_freq=1", "trainer.test_freq=-1", "stage.gate=null"),
        timeout=1500,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]

    first, second = tmp_path / "run" / "stage1_format", tmp_path / "run" / "stage2_base"
    begun, trained = (load_file(folder / "model.safetensors") for folder in (tmp_path / "model", first / "hf"))
    assert set(begun) == set(trained)
    changed = {name for name in begun if not begun[name].float().allclose(trained[name].float(), atol=1e-6)}
    assert changed and all("_proj.weight" in name for name in changed)
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    adapted = PeftModel.from_pretrained(base, first / "adapter").merge_and_unload().state_dict()
    for name, weights in trained.items():
        torch.testing.assert_close(weights.float(), adapted[name], atol=1e-5, rtol=1e-4)

    settings = json.loads((second / "adapter" / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == str(first / "hf")
    steps = [*read_steps(first).values(), *read_steps(second).values()]
    assert len(steps) == 4
    for values in steps:
        assert engine_agrees(values)
        assert values["critic/score/mean"] >= 1.0
        assert values["actor/entropy"] < RANDOM / 2, "sampled from a model that knows nothing"
