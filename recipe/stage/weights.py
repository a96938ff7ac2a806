"""Files of weights: whether they are all there, their checksums, and LoRA adapters in PEFT's format.

A model that is handed on has `checksums.json` beside its weights, and whoever reads the folder compares. An adapter has
`base.json` as well: PEFT names the base by its path alone, where another model may stand by then.
"""

import os
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recipe.files import STRICT, Damaged, StateFile, read_json, shown

SUMS, BASE_FILE = "checksums.json", "base.json"
SETTINGS_FILE, WEIGHTS_FILE = "adapter_config.json", "adapter_model.safetensors"
READERS = 8
"""Files that are read at once; one is read and summed at 1 to 2 GB a second."""
READ = ("r", "lora_alpha", "target_modules", "exclude_modules", "base_model_name_or_path", "peft_type")
SILENT = ("peft_version", "task_type", "inference_mode", "revision", "layers_to_transform", "layers_pattern")
"""Settings of PEFT's that are not looked at: the tensors say which layers they are of."""
PLAIN = {"bias": "none", "init_lora_weights": True, "megatron_core": "megatron.core", "qalora_group_size": 16}
"""What settings are in plain LoRA that are not null, false, 0 or empty there: peft 0.21.2, `LoraConfig`."""


@dataclass(frozen=True)
class Sums:
    """`checksums.json`: name of a file of weights -> its bytes and CRC-32. Other files may be edited."""

    __pydantic_config__ = STRICT
    files: dict[str, tuple[int, str]]


@dataclass(frozen=True)
class Base:
    """`base.json`: the model that an adapter belongs to."""

    __pydantic_config__ = STRICT
    model: str
    """A folder's absolute path, or a hub id, as it was when the adapter was trained."""
    weights: str | None = None
    """Short name of its weights, which knows it wherever it is now; None where it has no safetensors."""


@dataclass(frozen=True)
class Adapter:
    """What a folder with an adapter says."""

    folder: Path
    rank: int
    alpha: int
    base: Base
    shapes: dict[str, tuple[int, ...]]
    """Name in the file -> shape of each tensor: `lora_A` (rank, in), `lora_B` (out, rank)."""


SUMS_FILE, BASE = StateFile(Sums), StateFile(Base)


def _measured(folder: Path) -> Sums:
    """Reads all of the weights in a folder."""

    def sum_of(path: Path) -> tuple[int, str]:
        size = crc = 0
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                size, crc = size + len(chunk), zlib.crc32(chunk, crc)
        return size, f"{crc:08x}"

    weights = sorted([*folder.glob("*.safetensors"), *folder.glob("*.safetensors.index.json")])
    with ThreadPoolExecutor(READERS) as pool:
        return Sums(dict(zip([path.name for path in weights], pool.map(sum_of, weights), strict=True)))


def note_sums(folder: Path) -> None:
    """Write the sums of a model folder's weights beside them."""
    SUMS_FILE.write(folder / SUMS, _measured(folder))


def changed(folder: Path) -> str | None:
    """Which weights of a model folder are not those whose sums were noted; None if all are, or none was noted."""
    try:
        noted = SUMS_FILE.read(folder / SUMS)
    except Damaged as error:
        return str(error)
    found = _measured(folder).files if noted else {}
    for name, value in (noted.files if noted else {}).items():
        if found.get(name) != value:
            return f"{folder / name} is {'not what was written' if name in found else 'missing'}: see {SUMS}"
    return None


def identity(folder: Path, measure: bool = False) -> str | None:
    """A short name of the weights in a model folder by their noted sums; None where there are none.

    Args:
        measure: where no sums are noted, read the weights.
    """
    sums = SUMS_FILE.read_or_none(folder / SUMS) or (_measured(folder) if measure else None)
    return f"{zlib.crc32(repr(sorted(sums.files.items())).encode()):08x}" if sums and sums.files else None


def tensor_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Name -> shape of the tensors in a safetensors file.

    Raises:
        Damaged: it is missing, cut off or damaged.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise Damaged(f"{path} is missing, cut off or damaged: {error}") from error


def broken_weights(folder: Path) -> str | None:
    """What of the weights in a model folder is missing or cut off; None if they are whole."""
    for name in ("model.safetensors", "pytorch_model.bin"):
        index = folder / f"{name}.index.json"
        try:
            if os.path.lexists(folder / name):
                parts = {name}
            elif os.path.lexists(index):
                parts = set(read_json(index)["weight_map"].values())
            else:
                continue
            for part in parts:
                if name == "model.safetensors":
                    tensor_shapes(folder / part)
                else:
                    zipfile.ZipFile(folder / part).close()  # its directory is written last
        except (OSError, ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
            return str(error) if isinstance(error, Damaged) else f"{folder / name} is cut off or damaged: {error}"
        return None
    return f"{folder} has no weights: neither model.safetensors nor pytorch_model.bin, nor an index of their parts"


def broken_export(folder: Path) -> str | None:
    """What of the weights in a Hugging Face model folder is missing, cut off or changed; None if they are whole."""
    if not (folder / "config.json").is_file():
        return f"no config.json in {folder}"
    return broken_weights(folder) or changed(folder)


def note_base(folder: Path, model: str) -> None:
    """Note beside an adapter which model it belongs to, and the sums of its own weights. Reads the model's weights.

    Args:
        model: a folder's absolute path, or a hub id.
    """
    BASE.write(folder / BASE_FILE, Base(model, _weights_of(model)))
    note_sums(folder)


def _weights_of(model: str) -> str | None:
    """A short name of a model's weights, wherever they are; None for a hub id that is not here, or no safetensors."""
    folder = Path(model).expanduser()
    if not folder.is_dir():
        from huggingface_hub import snapshot_download

        try:
            folder = Path(snapshot_download(model, local_files_only=True))
        except Exception:  # of a name that is none of the hub's it raises what it likes
            return None
    return identity(folder, measure=True) if broken_weights(folder) is None else None


def read_adapter(folder: Path) -> Adapter:
    """The adapter in a folder; its tensors are looked at, not loaded.

    Raises:
        Damaged: something of it is missing, cut off or changed, or it is no plain LoRA.
    """
    path = folder / SETTINGS_FILE
    try:
        settings: dict[str, Any] = read_json(path)
        rank, alpha, modules = settings["r"], settings["lora_alpha"], settings["target_modules"]
        named = settings["base_model_name_or_path"]
        base = BASE.read(folder / BASE_FILE) or Base(named)
    except (FileNotFoundError, KeyError, TypeError) as error:
        raise Damaged(f"{path} is missing, or lacks a setting of plain LoRA: {error}") from error
    plain = {"r": type(rank) is int and rank > 0, "lora_alpha": type(alpha) is int and alpha > 0}
    plain |= {"target_modules": isinstance(modules, list) and bool(modules)}  # a string would be a pattern
    plain |= {key: settings[key] == PLAIN.get(key) for key in {*settings} - {*READ, *SILENT} if settings[key]}
    plain |= {"peft_type": settings.get("peft_type") == "LORA", "base_model_name_or_path": isinstance(base.model, str)}
    if odd := [name for name, is_plain in plain.items() if not is_plain]:
        raise Damaged(f"{path} has {odd[0]}={shown(settings.get(odd[0]))}; expected plain LoRA")
    if fault := changed(folder):
        raise Damaged(fault)
    return Adapter(folder, rank, alpha, base, tensor_shapes(folder / WEIGHTS_FILE))


def other_base(adapter: Adapter, model: str) -> str | None:
    """How a model differs from the one that an adapter belongs to; None if it does not.

    By their weights where both are known, else by name.

    Args:
        model: a folder, or a hub id.
    """
    base, weights = adapter.base, _weights_of(model)
    if base.weights is not None and weights is not None:
        if base.weights == weights:
            return None
        return f"it belongs to {base.model}, whose weights have the sum {base.weights}; those of {model} have {weights}"
    return None if place(base.model) == place(model) else f"it belongs to {base.model}, not to {model}"


def place(model: str) -> str:
    """Where a model is: the folder behind links, or a hub id as it is."""
    path = os.path.expanduser(model)
    return os.path.realpath(path) if os.path.isdir(path) else model
