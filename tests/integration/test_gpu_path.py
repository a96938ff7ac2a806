"""Trains with what hardware=gpu8 and gpu1 set, on CPU processes: verl's trainer, vLLM, Ray and data-parallel ranks.

A profile is composed and only what needs a GPU or a large model is overridden, so a value that does not work together
with the others fails here: packed rows, attention `varlen`, fused log-probabilities of an untied output layer,
bfloat16, dynamic micro-batches, a reference, truncated importance sampling; with gpu1 an adapter instead of all
parameters. Two to three minutes each on two idle cores.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import torch
from support.short_training import ROOT, prepared, start
from transformers import AutoModelForCausalLM

from recipe.evaluation.server import profile_environment
from recipe.stage.metrics_log import read_steps

REWARD = """
def compute_score(data_source, solution_str, ground_truth, extra_info):
    return {"score": len(solution_str) % 11}  # so that an untrained policy gets a gradient
"""

DEVICE = """
trainer.device=cpu ray_kwargs.ray_init.num_cpus=10 +ray_kwargs.ray_init.include_dashboard=false
launcher.needs.memory_gb=4 launcher.needs.disk_gb=1
actor_rollout_ref.rollout.enforce_eager=true actor_rollout_ref.rollout.free_cache_engine=false
+actor_rollout_ref.rollout.enable_sleep_mode=false
+actor_rollout_ref.rollout.engine_kwargs.vllm.distributed_executor_backend=uni
""".split()
"""What a machine without GPUs needs."""

SIZE = """
interaction.docs=signature interaction.max_tokens_per_reply=64
interaction.train.max_steps_per_turn=2 interaction.train.max_result_chars=300
data.max_prompt_length=768 data.max_response_length=400 data.train_batch_size=4 data.dataloader_num_workers=0
actor_rollout_ref.actor.ppo_mini_batch_size=4 actor_rollout_ref.rollout.n=4
actor_rollout_ref.actor.ppo_max_token_len_per_gpu=2048 actor_rollout_ref.rollout.max_model_len=2048
actor_rollout_ref.rollout.max_num_seqs=32 actor_rollout_ref.rollout.agent.num_workers=1 reward.num_workers=1
actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=64
transfer_queue.backend.SimpleStorage.num_data_storage_units=1
trainer.total_training_steps=2 trainer.save_freq=-1 trainer.test_freq=-1 trainer.val_before_train=false
""".split()
"""What a model of 0.9M parameters and two steps need."""


@pytest.mark.slow
@pytest.mark.parametrize(("hardware", "ranks"), [("gpu8", 2), ("gpu1", 1)])
def test_two_steps_with_the_values_of_a_gpu_profile(
    tmp_path: Path, hardware: str, ranks: int, listeners: Callable[..., Any], beyond_loopback: Callable[..., list[str]]
):
    prepared(tmp_path, REWARD)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    model.config.tie_word_embeddings = False  # as Qwen2.5-7B has it: verl alone cannot train it fused
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    model.save_pretrained(tmp_path / "model")
    given = (
        *(f"data.train_files={tmp_path}/data/tiny_base.parquet", f"data.val_files={tmp_path}/data/tiny_val.parquet"),
        *(f"paths.run={tmp_path}/run", f"paths.data={tmp_path}/data", f"actor_rollout_ref.model.path={tmp_path}/model"),
        f"reward.custom_reward_function.path={tmp_path}/my_reward.py",
        *(f"hardware={hardware}", f"trainer.n_gpus_per_node={ranks}", f"+ray_kwargs.ray_init.num_gpus={ranks}"),
    )
    kept = {name: value for name, value in profile_environment("cpu").items() if name not in ("MODEL", "RUN", "SEED")}
    kept |= {"HARDWARE": "", "BFCL_TEST": uuid4().hex, "PYTHONPATH": str(ROOT)}
    with listeners("BFCL_TEST", kept["BFCL_TEST"]) as found:
        answer = start("recipe.train", "--config-name", "stage2", *DEVICE, *SIZE, *given, timeout=1500, **kept)
    assert answer.returncode == 0, (answer.stdout + answer.stderr)[-6000:]
    assert "WorkerDict" in " ".join(found) and beyond_loopback(found) == []
    steps = read_steps(tmp_path / "run" / "stage2_base")
    assert set(steps) == {1, 2}
    for numbers in steps.values():
        assert numbers["training/rollout_actor_probs_pearson_corr"] >= 0.99
        assert numbers["actor/grad_norm"] > 0
        assert abs(numbers["actor/kl_loss"]) < 0.01
        assert 0.9 < numbers["rollout_corr/rollout_is_mean"] < 1.1
        assert numbers["train/lost_samples"] == 0.0
