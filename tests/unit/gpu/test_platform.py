"""What every process of verl's on a GPU machine takes over from our plug-in."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
CODE = """
import sys, verl, recipe.gpu.platform, verl.checkpoint_engine
from verl.plugin.platform.platform_cuda import PlatformCUDA
print("vllm" in sys.modules, PlatformCUDA().is_ipc_supported())
"""


def test_no_process_imports_vllm_for_another_makers_engine_and_one_variable_does_without_cuda_ipc():
    plugins = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["verl.plugins"]
    assert "recipe.gpu.platform" in plugins.values()
    for given, supported in (({}, True), ({"BFCL_CUDA_IPC": "0"}, False)):
        environment = {name: value for name, value in os.environ.items() if name != "VERL_PLATFORM"} | given
        done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, cwd=ROOT, env=environment)
        assert done.stdout.split() == ["False", str(supported)], done.stderr
