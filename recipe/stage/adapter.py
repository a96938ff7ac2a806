"""An adapter that LoRA has trained, in PEFT's format, and the base model it belongs to.

PEFT's files name the base by its path alone, where another model may stand by the time somebody adds the adapter to it.
So `base.json` beside them has the sum of the base's weights as well; an adapter from elsewhere has none, and is known
by that path.

What can be loaded here is plain LoRA on named modules, in a safetensors file. PEFT would take more from a folder, and
do what it says: search by patterns, import modules, change the base, unpickle.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recipe.files import Damaged, shown
from recipe.stage.integrity import broken_weights, changed, measured_identity, note_sums, read_object, tensor_shapes
from recipe.stage.notes import BASE, BASE_FILE, Base

SETTINGS_FILE, WEIGHTS_FILE = "adapter_config.json", "adapter_model.safetensors"

READ = ("r", "lora_alpha", "target_modules", "exclude_modules", "base_model_name_or_path", "peft_type")
SILENT = ("peft_version", "task_type", "inference_mode", "revision", "layers_to_transform", "layers_pattern")
"""Settings of PEFT's that are not looked at: the tensors say which layers they are of."""
PLAIN = {"bias": "none", "init_lora_weights": True, "megatron_core": "megatron.core", "qalora_group_size": 16}
"""What settings are in plain LoRA that are not null, false, 0 or empty there: peft 0.21.2, `LoraConfig`."""

MOST_MODULES = 100_000


@dataclass(frozen=True)
class Adapter:
    """What a folder with an adapter says."""

    folder: Path
    rank: int
    alpha: int
    base: Base
    shapes: dict[str, tuple[int, ...]]
    """Name in the file -> shape of each tensor: `lora_A` (rank, in), `lora_B` (out, rank)."""


def note_base(folder: Path, model: str) -> None:
    """Note beside an adapter which model it belongs to, and the sums of its own weights. Reads the model's weights.

    Args:
        model: a folder's absolute path, or a hub id.
    """
    BASE.write(folder / BASE_FILE, Base(model, weights_of(model)))
    note_sums(folder)


def weights_of(model: str) -> str | None:
    """A short name of a model's weights, wherever they are; None for a hub id that is not here, or no safetensors."""
    folder = Path(model).expanduser()
    if not folder.is_dir():
        from huggingface_hub import snapshot_download

        try:
            folder = Path(snapshot_download(model, local_files_only=True))
        except Exception:  # of a name that is none of the hub's it raises what it likes
            return None
    return measured_identity(folder) if broken_weights(folder) is None else None


def read_adapter(folder: Path) -> Adapter:
    """The adapter in a folder; its tensors are looked at, not loaded.

    Raises:
        Damaged: something of it is missing, cut off or changed, or it is no plain LoRA.
    """
    try:
        settings = read_object(folder / SETTINGS_FILE)
        shapes = tensor_shapes(folder / WEIGHTS_FILE)
    except FileNotFoundError as error:
        raise Damaged(f"{error.filename} is not there; expected {SETTINGS_FILE} and {WEIGHTS_FILE}") from error
    if fault := changed(folder):
        raise Damaged(fault)
    path = folder / SETTINGS_FILE
    rank, alpha = (_whole(settings, key, path) for key in ("r", "lora_alpha"))
    _require_plain(settings, path)
    if (base := BASE.read(folder / BASE_FILE)) is None:
        named = settings.get("base_model_name_or_path")
        if not isinstance(named, str) or not named:
            raise Damaged(f"{path} has base_model_name_or_path={shown(named)}; expected its base")
        base = Base(named)
    return Adapter(folder, rank, alpha, base, shapes)


def _whole(settings: dict[str, Any], key: str, path: Path) -> int:
    value = settings.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise Damaged(f"{path} has {key}={shown(value)}; expected a whole number, 1 or more")
    return value


def _require_plain(settings: dict[str, Any], path: Path) -> None:
    if settings.get("peft_type") != "LORA":
        raise Damaged(f"{path} has peft_type={shown(settings.get('peft_type'))}; expected LORA")
    for key in ("target_modules", "exclude_modules"):
        names = settings.get(key) or []
        listed = isinstance(names, list) and len(names) <= MOST_MODULES and all(isinstance(name, str) for name in names)
        if not listed or (key == "target_modules" and not names):
            raise Damaged(f"{path} has {key}={shown(settings.get(key))}; expected a list of names of modules")
    for key, value in settings.items():
        if key not in (*READ, *SILENT) and value and value != PLAIN.get(key):
            raise Damaged(f"{path} has {key}={shown(value)}; expected plain LoRA, without it")


def other_base(adapter: Adapter, model: str) -> str | None:
    """How a model differs from the one that an adapter belongs to; None if it does not.

    By their weights, where both are known, else by name.

    Args:
        model: a folder, or a hub id.
    """
    base, weights = adapter.base, weights_of(model)
    if base.weights is not None and weights is not None:
        if base.weights == weights:
            return None
        return f"it belongs to {base.model}, whose weights have the sum {base.weights}; those of {model} have {weights}"
    if _place(base.model) == _place(model):
        return None
    return f"it belongs to {base.model}, not to {model}"


def _place(model: str) -> str:
    path = os.path.expanduser(model)
    return os.path.realpath(path) if os.path.isdir(path) else model
