"""A run whose stages have ended, as far as their notes, episodes and exported models go; nothing of it was trained."""

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from omegaconf import OmegaConf
from safetensors.numpy import save_file

from recipe.settings import compose
from recipe.stage import state
from recipe.stage.starts import MANIFEST, Manifest
from recipe.stage.weights import note_sums
from support.runs import validated, write_metrics

STEP = 12
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@cache
def composed(name: str) -> Any:
    """The configuration of a stage, resolved."""
    return OmegaConf.to_container(compose(name, ["hardware=gpu8"]), resolve=True)


def data_file(path: Path, sources: list[str]) -> str:
    """A parquet file with these data sources; its hash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"data_source": sources}), path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def model(folder: Path) -> None:
    """What a stage hands on, with sums; no model that would load."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}))
    (folder / "generation_config.json").write_text("{}")
    save_file({"a": np.arange(6.0, dtype=np.float32)}, folder / "model.safetensors")
    note_sums(folder)


def finished_run(folder: Path, **change: Any) -> Path:
    """Two stages that ended at STEP, from a model on the hub, the second validated at its end.

    Args:
        change: settings of the second stage, with `__` for dots.
    """
    run, starts = folder / "outputs" / "mine", []
    train, val = folder / "data" / "train.parquet", folder / "data" / "val.parquet"
    rows = {train: ["bfcl/base"] * 3 + ["bfcl/miss_func"], val: ["bfcl/base"] * 4}
    hashes = {str(path): data_file(path, sources) for path, sources in rows.items()}
    before = "Qwen/Qwen2.5-7B-Instruct"
    for name in ("stage1", "stage2"):
        config = OmegaConf.create(composed(name))
        stage = run / config.stage.name
        settings = {"data.train_files": str(train), "data.val_files": str(val), "actor_rollout_ref.model.path": before}
        settings |= {key.replace("__", "."): value for key, value in change.items()} if name == "stage2" else {}
        for key, value in settings.items():
            OmegaConf.update(config, key, value)
        (stage / "config").mkdir(parents=True)
        (stage / "config" / "resolved.yaml").write_text(yaml.dump(OmegaConf.to_container(config), Dumper=DUMPER))
        write_metrics(run, stage.name, "20260101-000000.jsonl", [(STEP, {"critic/score/mean": 0.5})])
        starts.append({"stage": stage.name, "versions": {"verl": "0.9.1"}, "model": before, "data": hashes, "seed": 1})
        model(stage / "hf")
        state.update(stage, done=state.Done(STEP, STEP, STEP, 0.0), chose=())
        before = str(stage / "hf")
    validated(run, STEP, {f"multi_turn_base_{index}": [float(index < 3)] for index in range(4)}, stage=stage.name)
    MANIFEST.write(run / "manifest.json", Manifest(tuple(starts)))
    return run
