"""Trains with what hardware=gpu8 and gpu1 set, on CPU processes: verl's trainer, vLLM, Ray and data-parallel ranks.

A profile is composed and only what needs a GPU or a large model is overridden, so a value that does not work together
with the others fails here. Two to three minutes each on two idle cores.

`HARDWARE=gpu8 bash setup.sh` makes a copy of this checkout with a `.venv` of its own, in which everything imports and
can be checked without a GPU: 11 GB, 15 minutes and a download of several GB. Variables:

    NO_GPU_ENVIRONMENT=1         skips that
    GPU_ENVIRONMENT=/a/checkout  takes the `.venv` that HARDWARE=gpu8 made there, instead of making one
"""

import os
import shutil
import subprocess
from pathlib import Path
from uuid import uuid4

import pytest
import torch
from support.short_training import MARK, ROOT, beyond_loopback, listeners, prepared, succeed
from transformers import AutoModelForCausalLM

from recipe.evaluation.server import profile_environment
from recipe.stage.metrics_log import read_steps

DEVICE = """
trainer.device=cpu ray_kwargs.ray_init.num_cpus=10 +ray_kwargs.ray_init.include_dashboard=false
actor_rollout_ref.model.use_remove_padding=false actor_rollout_ref.model.override_config.attn_implementation=sdpa
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
def test_two_steps_with_the_values_of_a_gpu_profile(tmp_path: Path, hardware: str, ranks: int):
    prepared(tmp_path)
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
    kept |= {"HARDWARE": "", MARK: uuid4().hex, "PYTHONPATH": str(ROOT)}
    with listeners(kept[MARK]) as found:
        succeed("recipe.train", "--config-name", "stage2", *DEVICE, *SIZE, *given, timeout=1500, **kept)
    assert "WorkerDict" in " ".join(found) and beyond_loopback(found) == []
    steps = read_steps(tmp_path / "run" / "stage2_base")
    assert set(steps) == {1, 2}
    for numbers in steps.values():
        assert numbers["training/rollout_actor_probs_pearson_corr"] >= 0.99
        assert numbers["actor/grad_norm"] > 0
        assert abs(numbers["actor/kl_loss"]) < 0.01
        assert 0.9 < numbers["rollout_corr/rollout_is_mean"] < 1.1
        assert numbers["train/lost_samples"] == 0.0


WANTED_GB = 25
IMPORTS = """
import ray, torch, verl, vllm
import verl.workers.rollout.vllm_rollout.vllm_async_server
from torch.nn.attention.varlen import varlen_attn
print(torch.version.cuda, vllm.__version__)
"""


@pytest.mark.slow
@pytest.mark.skipif("NO_GPU_ENVIRONMENT" in os.environ, reason="NO_GPU_ENVIRONMENT is set")
def test_it_imports_a_cuda_build_and_preflight_checks_all_it_can_and_says_that_gpus_are_missing(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    left_out = shutil.ignore_patterns(".git", ".venv", "data", "outputs", "__pycache__", ".*_cache")
    shutil.copytree(ROOT, checkout, ignore=left_out)
    kept = {k: v for k, v in os.environ.items() if k not in ("MODEL", "RUN", "PYTHONPATH")} | {"HARDWARE": "gpu8"}

    def run(*command: str | Path, status: int = 0, **variables: str) -> str:
        done = subprocess.run(command, cwd=checkout, env=kept | variables, capture_output=True, text=True)
        assert done.returncode == status, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout + done.stderr * status

    made = os.environ.get("GPU_ENVIRONMENT")
    if made is None:
        if shutil.disk_usage(checkout).free < WANTED_GB * 10**9:
            pytest.skip(f"less than {WANTED_GB} GB free on the disk of {checkout}")
        run("bash", "setup.sh")
    python = Path(made or checkout) / ".venv" / "bin" / "python"
    cuda, vllm = run(python, "-c", IMPORTS).split()[-2:]
    assert int(cuda.split(".")[0]) >= 13 and vllm == "0.24.0"
    path = {"PYTHONPATH": str(checkout)}
    run(python, "-m", "data_prep", "--out", "data/gpu8", **path)
    run(python, "-m", "recipe.cpu.tiny_policy", "model", **path)
    stage = [python, "-m", "recipe.train", "--config-name", "stage3", "preflight_only=true"]
    stage += ["launcher.needs.memory_gb=0", "launcher.needs.disk_gb=0", "actor_rollout_ref.model.path=model"]
    stage += ["actor_rollout_ref.rollout.max_model_len=2048", "data.max_prompt_length=768"]
    said = run(*stage, "data.max_response_length=1280", status=1, **path)
    for words in ("all other checks passed; nothing was started", "nvidia-smi shows no GPU", "GPU memory, estimated"):
        assert words in said, said[-3000:]
