"""The configuration of a stage as far as its folder goes, and a checkpoint as verl leaves it."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from safetensors.torch import load_file, save_file
from transformers import Qwen2Config, Qwen2ForCausalLM

from recipe.stage.state import TRACKER


def config_of(folder: Path, **changes: Any) -> DictConfig:
    """A stage in `folder`; a change is named by its section and name, such as `stage__gate`."""
    config = OmegaConf.create(
        {
            "paths": {"run": str(folder), "stage": str(folder / "stage")},
            "stage": {"name": "stage", "gate": None, "handover": "last", "handover_metric": "val_dev/score"},
            "data": {"train_batch_size": 4, "train_files": "rows.parquet", "val_files": ["rows.parquet"]},
            "trainer": {
                **{"default_local_dir": str(folder / "stage" / "checkpoints"), "resume_mode": "auto"},
                **{"max_actor_ckpt_to_keep": 2, "save_freq": 1, "test_freq": 1},
                **{"total_epochs": 20, "total_training_steps": None, "n_gpus_per_node": 8, "nnodes": 1},
            },
            "actor_rollout_ref": {
                "model": {"path": "/a", "lora_rank": 0},
                "actor": {"checkpoint": {"save_contents": ["model", "optimizer", "extra", "hf_model"]}},
            },
        }
    )
    for name, value in changes.items():
        OmegaConf.update(config, name.replace("__", "."), value, force_add=True)
    return DictConfig(OmegaConf.create(OmegaConf.to_yaml(config)))  # as from a file: no text is a literal of the code


def edited(name: str, **changes: Any) -> Callable[[Path], Any]:
    """A change of a JSON file of a model's folder."""
    return lambda folder: (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | changes))


@cache
def _model_files() -> dict[str, bytes]:
    """The smallest model that loads."""
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 8}
    with TemporaryDirectory() as folder:
        model = Qwen2ForCausalLM(Qwen2Config(**sizes, num_attention_heads=1, num_key_value_heads=1))
        model.save_pretrained(folder)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def save(config: DictConfig, step: int, noted: bool = True) -> Path:
    """A checkpoint; returns its folder. The number of the step is in its weights."""
    folder = Path(config.trainer.default_local_dir) / f"global_step_{step}"
    hf = folder / "actor" / "huggingface"
    hf.mkdir(parents=True)
    for name, content in _model_files().items():
        (hf / name).write_bytes(content)
    weights = load_file(hf / "model.safetensors")
    weights["model.norm.weight"] = torch.full((8,), float(step))
    save_file(weights, hf / "model.safetensors", metadata={"format": "pt"})
    (folder / "data.pt").write_text(str(step))
    if noted:
        (folder.parent / TRACKER).write_text(str(step))
    return folder
