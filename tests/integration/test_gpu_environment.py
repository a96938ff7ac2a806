"""`HARDWARE=gpu8 bash setup.sh` on a machine without GPUs: everything imports, composes and can be checked there.

In a copy of this checkout, with a `.venv` of its own: 11 GB, 15 minutes and a download of several GB. Variables:

    NO_GPU_ENVIRONMENT=1         skips all of it
    GPU_ENVIRONMENT=/a/checkout  takes the `.venv` that HARDWARE=gpu8 made there, instead of making one
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
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
    stage += ["actor_rollout_ref.rollout.max_model_len=2048", "data.max_prompt_length=768"]  # the model has no more
    said = run(*stage, "data.max_response_length=1280", status=1, **path)
    for words in ("all other checks passed; nothing was started", "nvidia-smi shows no GPU", "GPU memory, estimated"):
        assert words in said, said[-3000:]
