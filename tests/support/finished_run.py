"""A run whose stages have ended, as far as their notes and exported models go; nothing of it was trained."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from omegaconf import OmegaConf
from safetensors.numpy import save_file

from recipe.settings import compose
from recipe.stage import state
from recipe.stage.weights import note_sums

DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@cache
def composed(name: str) -> Any:
    return OmegaConf.to_container(compose(name, ["hardware=gpu8"]), resolve=True)


def model(folder: Path) -> None:
    """What a stage hands on, with sums; no model that would load."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}))
    (folder / "generation_config.json").write_text("{}")
    save_file({"a": np.arange(6.0, dtype=np.float32)}, folder / "model.safetensors")
    note_sums(folder)


def finished_run(folder: Path, **change: Any) -> Path:
    """Two stages that ended at step 12, from a model on the hub.

    Args:
        change: settings of the second stage, with `__` for dots.
    """
    run, before = folder / "outputs" / "mine", "Qwen/Qwen2.5-7B-Instruct"
    for name in ("stage1", "stage2"):
        config = OmegaConf.create(composed(name))
        settings = {"data.train_files": "train.parquet", "actor_rollout_ref.model.path": before}
        settings |= {key.replace("__", "."): value for key, value in change.items()} if name == "stage2" else {}
        for key, value in settings.items():
            OmegaConf.update(config, key, value)
        stage = run / config.stage.name
        (stage / "config").mkdir(parents=True)
        (stage / "config" / "resolved.yaml").write_text(yaml.dump(OmegaConf.to_container(config), Dumper=DUMPER))
        model(stage / "hf")
        state.update(stage, done=state.Done(12, 12, 12, 0.0), chose=())
        before = str(stage / "hf")
    return run
