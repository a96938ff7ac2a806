"""Files of weights: whether they are all there, their checksums, and LoRA adapters in PEFT's format.

A model that is handed on has `checksums.json` beside its weights. An adapter has `base.json` as well: PEFT names the
base by its path alone, where another model may stand by then.
"""

import os
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from recipe.files import Damaged, StateFile, one_line, read_json

SUMS, BASE_FILE = "checksums.json", "base.json"
SETTINGS_FILE, WEIGHTS_FILE = "adapter_config.json", "adapter_model.safetensors"
OF_EACH = (
    *("r", "lora_alpha", "target_modules", "exclude_modules", "layers_to_transform", "layers_pattern"),
    *("base_model_name_or_path", "revision", "peft_type", "peft_version", "task_type", "inference_mode"),
)
"""Settings that plain LoRA may have as it likes: the tensors say which layers they are of."""


@dataclass(frozen=True)
class Sums(StateFile):
    """`checksums.json`: name of a file of weights -> its bytes and CRC-32. Other files may be edited."""

    files: dict[str, tuple[int, str]]


@dataclass(frozen=True)
class Base(StateFile):
    """`base.json`: the model that an adapter belongs to."""

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


def _measured(folder: Path) -> Sums:
    """Reads all of the weights in a folder, eight files at once: each is summed at 1 to 2 GB a second."""

    def sum_of(path: Path) -> tuple[str, tuple[int, str]]:
        size = crc = 0
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                size, crc = size + len(chunk), zlib.crc32(chunk, crc)
        return path.name, (size, f"{crc:08x}")

    weights = sorted([*folder.glob("*.safetensors"), *folder.glob("*.safetensors.index.json")])
    with ThreadPoolExecutor(8) as pool:
        return Sums(dict(pool.map(sum_of, weights)))


def note_sums(folder: Path) -> None:
    """Write the sums of a model folder's weights beside them."""
    _measured(folder).write(folder / SUMS)


def changed(folder: Path) -> str | None:
    """Which weights of a model folder are not those whose sums were noted; None if all are, or none was noted."""
    try:
        noted = Sums.read(folder / SUMS)
    except Damaged as error:
        return str(error)
    found = _measured(folder).files if noted else {}
    other = [name for name, value in (noted.files if noted else {}).items() if found.get(name) != value]
    return f"{folder / other[0]} is not what was written: {SUMS} has another sum" if other else None


def identity(folder: Path, measure: bool = False) -> str | None:
    """A short name of the weights in a model folder by their noted sums; None where there are none.

    Args:
        measure: where no sums are noted, read the weights.
    """
    sums = Sums.read_or_none(folder / SUMS) or (_measured(folder) if measure else None)
    return f"{zlib.crc32(repr(sorted(sums.files.items())).encode()):08x}" if sums and sums.files else None


def _shapes(path: Path) -> dict[str, tuple[int, ...]]:
    with safe_open(path, "numpy") as file:  # raises SafetensorError or OSError where it is damaged
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


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
                    _shapes(folder / part)
                else:
                    zipfile.ZipFile(folder / part).close()  # its directory is written last
        except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError, zipfile.BadZipFile) as error:
            return f"{folder / name} is missing, cut off or damaged: {error}"
        return None
    return f"{folder} has no weights: neither model.safetensors nor pytorch_model.bin, nor an index of their parts"


def broken_export(folder: Path) -> str | None:
    """What of the weights in a Hugging Face model folder is missing, cut off or changed; None if they are whole."""
    if not (folder / "config.json").is_file():
        return f"no config.json in {folder}"
    return broken_weights(folder) or changed(folder)


def note_base(folder: Path, model: str) -> None:
    """Note beside an adapter its model (an absolute path or a hub id), whose weights it reads, and its own sums."""
    Base(model, _weights_of(model)).write(folder / BASE_FILE)
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
    from peft import LoraConfig

    try:
        settings: dict[str, Any] = read_json(folder / SETTINGS_FILE)
        base = Base.read(folder / BASE_FILE) or Base(settings["base_model_name_or_path"])
        shapes = _shapes(folder / WEIGHTS_FILE)
        rank, alpha, modules = settings["r"], settings["lora_alpha"], settings["target_modules"]
        right = {"r": type(rank) is int, "lora_alpha": type(alpha) is int, "peft_type": settings["peft_type"] == "LORA"}
        right |= {"target_modules": isinstance(modules, list) and bool(modules)}  # a string would be a pattern
        right |= {"base_model_name_or_path": isinstance(base.model, str)}
        given = LoraConfig(**{name: value for name, value in settings.items() if value}).to_dict()
        plain = LoraConfig(**{name: settings[name] for name in OF_EACH if settings.get(name)}).to_dict()
        odd = [name for name in given if given[name] != plain[name] or not right.get(name, True)]
    except Exception as error:  # of settings that are not its own PEFT raises what it likes
        raise Damaged(f"{folder / SETTINGS_FILE} or {WEIGHTS_FILE} is damaged: {one_line(error)}") from error
    if odd:
        raise Damaged(f"{folder / SETTINGS_FILE} is not of plain LoRA: {', '.join(odd)}")
    if fault := changed(folder):
        raise Damaged(fault)
    return Adapter(folder, rank, alpha, base, shapes)


def other_base(adapter: Adapter, model: str) -> str | None:
    """How a model (a folder or hub id) differs from the one that an adapter belongs to; None if it does not."""
    base, given = adapter.base, Base(model, _weights_of(model))
    if same_model(base, given):
        return None
    return f"it belongs to {base.model} ({base.weights}), not to {given.model} ({given.weights})"


def same_model(one: Any, other: Any) -> bool:
    """By their `weights` where both are known, wherever a folder was moved or mounted; else by the place of `model`."""
    if None not in (one.weights, other.weights):
        return bool(one.weights == other.weights)
    return place(one.model) == place(other.model)


def place(model: str) -> str:
    """Where a model is: the folder behind links, or a hub id as it is."""
    path = os.path.expanduser(model)
    return os.path.realpath(path) if os.path.isdir(path) else model
