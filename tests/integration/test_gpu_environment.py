"""`HARDWARE=gpu8 bash setup.sh` on a machine without GPUs: everything imports, composes and can be checked there.

In a copy of this checkout, with a `.venv` of its own: 11 GB, 15 minutes and a download of several GB. Variables:

    NO_GPU_ENVIRONMENT=1         skips all of it
    GPU_ENVIRONMENT=/a/checkout  takes the `.venv` that HARDWARE=gpu8 made there, instead of making one
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
WANTED_GB = 25

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("NO_GPU_ENVIRONMENT" in os.environ, reason="NO_GPU_ENVIRONMENT is set"),
]


class Environment(NamedTuple):
    """An installation for GPUs, and the checkout that runs in it."""

    python: Path
    checkout: Path

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        inherited = {k: v for k, v in os.environ.items() if k not in ("HARDWARE", "MODEL", "RUN", "PYTHONPATH")}
        environment = inherited | {"HARDWARE": "gpu8", "PYTHONPATH": str(self.checkout)} | variables
        return subprocess.run(
            [str(self.python), *arguments], cwd=self.checkout, env=environment, capture_output=True, text=True
        )


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    checkout = tmp_path_factory.mktemp("gpu") / "checkout"
    left_out = shutil.ignore_patterns(".git", ".venv", "data", "outputs", "__pycache__", ".*_cache")
    shutil.copytree(ROOT, checkout, ignore=left_out)
    if made := os.environ.get("GPU_ENVIRONMENT"):
        return Environment(Path(made) / ".venv" / "bin" / "python", checkout)
    if shutil.disk_usage(checkout).free < WANTED_GB * 10**9:
        pytest.skip(f"less than {WANTED_GB} GB free on the disk of {checkout}")
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"HARDWARE": "gpu8"}
    done = subprocess.run(["bash", "setup.sh"], cwd=checkout, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return Environment(checkout / ".venv" / "bin" / "python", checkout)


def test_torch_vllm_verl_and_ray_import_and_torch_is_a_cuda_build(environment):
    code = (
        "import ray, torch, verl, vllm\n"
        "import verl.workers.rollout.vllm_rollout.vllm_async_server\n"
        "from torch.nn.attention.varlen import varlen_attn\n"
        "print(torch.version.cuda, vllm.__version__)"
    )
    done = environment.run("-c", code)
    assert done.returncode == 0, done.stderr[-3000:]
    cuda, vllm = done.stdout.split()[-2:]
    assert int(cuda.split(".")[0]) >= 13 and vllm == "0.24.0"


def test_preflight_checks_all_it_can_and_says_that_gpus_are_missing(environment):
    assert environment.run("-m", "data_prep", "--out", "data/gpu8").returncode == 0
    made = environment.run("-m", "recipe.cpu.tiny_policy", "model")
    assert made.returncode == 0, made.stderr[-3000:]
    done = environment.run(
        *("-m", "recipe.train", "--config-name", "stage3", "preflight_only=true", "launcher.needs.memory_gb=0"),
        *("launcher.needs.disk_gb=0", "actor_rollout_ref.model.path=model"),
    )
    said = done.stdout + done.stderr
    assert done.returncode == 1, said[-3000:]
    assert "all other checks passed; nothing was started" in said, said[-3000:]
    assert "nvidia-smi shows no GPU" in said
    assert "GPU memory, estimated" in said
