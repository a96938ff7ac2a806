"""Checks of a start on GPUs: driver, attention kernel, and settings that the packed attention needs.

This process does not import torch: the kernel is tried by `recipe.gpu.selfcheck`, in a process that has ended before
Ray starts.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from recipe import loopback
from recipe.errors import PreflightError
from recipe.files import Damaged, read_json
from recipe.preflight.machine import count_gpus

DRIVER = 580
"""First branch of NVIDIA's driver that runs CUDA 13, which the pinned torch and vLLM are built with."""

KEY = "actor_rollout_ref.model.override_config.attn_implementation"
PLUGIN = "recipe.gpu.plugin"


def check_gpu(config: DictConfig) -> str | None:
    """All checks of this module. On GPUs this takes as long as importing torch.

    Where this machine has no GPUs nothing is tried: with `preflight_only`, for which `checks.check` has said so, and
    where the GPUs are those of other nodes.

    Returns:
        A line for the log; None where nothing was tried.

    Raises:
        PreflightError: a setting does not go with the packed attention, or no form of it is right.
    """
    model = config.actor_rollout_ref.model
    check_packed(config, str(model.override_config.get("attn_implementation")))
    if config.trainer.device != "cuda":
        return None
    elsewhere = loopback.cluster(config.trainer.nnodes) is not None
    if (config.get("preflight_only") or elsewhere) and not count_gpus():
        return not_tried(model)
    return choose_attention(config, config.trainer.device)


def not_tried(model: DictConfig) -> str | None:
    """A line that says so, with the command that tries it elsewhere; None where there is nothing to try."""
    if not str(model.override_config.get("attn_implementation")).startswith("varlen"):
        return None
    command = " ".join(["python -m", *selfcheck("cuda", head_shape(str(model.path)))])
    return f"attention: not tried, nvidia-smi shows no GPU here; on a node that has one, `.venv/bin/{command}` does"


def check_packed(config: DictConfig, attention: str) -> None:
    """Packed rows and the attention for them go together.

    Raises:
        PreflightError: they do not.
    """
    model = config.actor_rollout_ref.model
    if attention.startswith("varlen") and not model.use_remove_padding:
        raise PreflightError(
            f"{KEY}={attention} is for packed rows, and actor_rollout_ref.model.use_remove_padding is false. "
            "Set it to true, or choose the attention sdpa."
        )
    if attention.startswith("varlen") and PLUGIN not in str(model.external_lib):
        raise PreflightError(
            f"{KEY}={attention} is unknown to transformers without actor_rollout_ref.model.external_lib={PLUGIN}; that "
            f"is {model.external_lib}."
        )


def choose_attention(config: DictConfig, device: str) -> str | None:
    """Try `varlen` and `varlen_repeat_kv` on the device; where only the latter is right, the configuration gets it.

    Args:
        config: of a stage, or of the warm start, whose model stands at another place.

    Returns:
        A line for the log; None where another attention is chosen.

    Raises:
        PreflightError: neither is right, or torch cannot use the device.
    """
    place = "actor_rollout_ref.model" if "actor_rollout_ref" in config else "model"
    model, key = OmegaConf.select(config, place), f"{place}.override_config.attn_implementation"
    chosen, other = str(model.override_config.get("attn_implementation")), "varlen_repeat_kv"
    if not chosen.startswith("varlen"):
        return None
    shape = head_shape(str(model.path))
    found = run_selfcheck(device, shape)
    if found["device"] is None:
        raise PreflightError(
            f"the attention cannot be tried on a GPU: {found['cuda']}. {driver_note()}Set hardware=cpu for the CPU "
            "profile."
        )
    heads = f"on {found['device']} with {shape['heads']} heads, {shape['kv_heads']} KV heads of {shape['head_size']}"
    if found[chosen]["right"]:
        return f"attention: {chosen} is right {heads}: {found[chosen]['says']}"
    if found[other]["right"]:
        model.override_config.attn_implementation = other
        return (
            f"attention: {chosen} is wrong {heads}: {found[chosen]['says']}; so {key}={other}: {found[other]['says']}"
        )
    raise PreflightError(
        f"PyTorch's packed attention is wrong {heads}: {chosen}: {found[chosen]['says']}; {other}: "
        f"{found[other]['says']}. {driver_note()}Without it: {key}=sdpa, with memory that grows by the square of a "
        "micro-batch's tokens."
    )


def head_shape(path: str) -> dict[str, int | None]:
    """Numbers of attention heads, of key and value heads, size of a head, and window, from a model's configuration.

    Raises:
        PreflightError: the configuration does not have them.
    """
    file = Path(path).expanduser() / "config.json"
    if not file.is_file():
        from huggingface_hub import hf_hub_download

        file = Path(hf_hub_download(path, "config.json"))  # preflight has fetched it before
    try:
        whole = read_json(file)
        text = whole.get("text_config", whole)
        heads = text.get("num_attention_heads")
        size = text.get("head_dim") or (text["hidden_size"] // heads if heads and "hidden_size" in text else None)
    except (Damaged, AttributeError, TypeError) as error:
        raise PreflightError(f"{file} is not the config.json of a model: {error}. Set MODEL to a whole one.") from error
    if not heads or not size:
        raise PreflightError(
            f"{file} does not name num_attention_heads and hidden_size, which attn_implementation=varlen is tried "
            f"with. Choose the attention sdpa for this model."
        )
    window = text.get("sliding_window") if text.get("use_sliding_window", True) else None
    return {"heads": heads, "kv_heads": text.get("num_key_value_heads") or heads, "head_size": size, "window": window}


def selfcheck(device: str, shape: dict[str, int | None]) -> list[str]:
    """The module that tries the attention, with its arguments."""
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in shape.items() if value is not None]
    return ["recipe.gpu.selfcheck", f"--device={device}", *flags]


def run_selfcheck(device: str, shape: dict[str, int | None], timeout: float = 600.0) -> dict[str, Any]:
    """What `recipe.gpu.selfcheck` prints; where it prints nothing, what it died of under `cuda`."""
    command = [sys.executable, "-m", *selfcheck(device, shape)]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return {"device": None, "cuda": f"the attention's check did not end within {timeout:.0f} s."}
    try:
        return json.loads(answer.stdout.splitlines()[-1])
    except (IndexError, json.JSONDecodeError):
        words = " ".join(answer.stderr.split())[-400:]
        return {"device": None, "cuda": f"the attention's check ended with status {answer.returncode}: {words}"}


def driver_version() -> str | None:
    """Of NVIDIA's driver, such as 580.65.06; None where nvidia-smi shows no GPU."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(query, capture_output=True, text=True, timeout=20).stdout.split()
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found[0] if found and found[0].split(".")[0].isdigit() else None


def driver_note() -> str:
    """A sentence on the driver where it is older than CUDA 13 wants, else nothing."""
    version = driver_version()
    if version is None or int(version.split(".")[0]) >= DRIVER:
        return ""
    return (
        f"The NVIDIA driver is {version}; the pinned packages are built with CUDA 13, which needs {DRIVER} or newer. "
    )
