"""What is wrong with a Hugging Face model folder, seen without loading the model or importing anything heavy.

Every file that transformers and vLLM would read is a plain file of a sensible size, every JSON file an object, and the
weights are all there and not cut: a safetensors file says itself where each tensor lies, and the zip file of
torch.save has checksums. A changed number within a safetensors file cannot be seen: the format has no checksum.
`recipe.export.misfit` says whether the tensors are those of the model that config.json names.
"""

import json
import math
import struct
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from recipe.files import Damaged, read_json, read_text, require_file
from recipe.typed import shown

SETTINGS = (
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "processor_config.json",
    "preprocessor_config.json",
)
"""Objects that are read if they are there."""

TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt", "vocab.txt")
MOST_LAYERS = 10_000
"""Of a model; a number that is larger would be built, layer by layer, to be compared with the weights."""
LARGEST_SETTINGS = 16 * 2**20
LARGEST_TOKENIZER = 512 * 2**20
LARGEST_TEMPLATE = 2**20
LARGEST_HEADER = 100 * 2**20
"""Of a safetensors file; more than its own library reads."""

WIDTHS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 1),
}
"""Bytes of a number, by its name in a safetensors file."""


def fault(folder: Path) -> str | None:
    """What of a model folder is missing, cut off or unreadable, on one line; None if nothing is."""
    try:
        settings = _object(folder / "config.json")
        if not isinstance(settings.get("model_type"), str) or not settings["model_type"]:
            return f"{folder / 'config.json'} has no model_type, which says how to read the weights"
        classes = settings.get("architectures")
        if not isinstance(classes, list) or len(classes) != 1 or not isinstance(classes[0], str):
            return f"{folder / 'config.json'} has architectures={shown(classes)}; expected a list of one class"
        layers = settings.get("num_hidden_layers")
        if isinstance(layers, int) and layers > MOST_LAYERS:
            return f"{folder / 'config.json'} has num_hidden_layers={shown(layers)}; expected at most {MOST_LAYERS}"
        for name in _there(folder, SETTINGS):
            _object(folder / name)
        for name in _there(folder, TOKENIZERS):
            require_file(folder / name, LARGEST_TOKENIZER)
        if list(_there(folder, ["chat_template.jinja"])):
            read_text(folder / "chat_template.jinja", LARGEST_TEMPLATE)
        if not any(_there(folder, ("tokenizer.json", "tokenizer.model", "tokenizer_config.json"))):
            return f"{folder} has no tokenizer; save the tokenizer beside the weights"
    except FileNotFoundError:
        return _without_config(folder)
    except Damaged as error:
        return str(error)
    return weights_fault(folder)


def weights_fault(folder: Path) -> str | None:
    """What of the weights in a model folder is missing or cut off; None if they are whole."""
    try:
        for name, check in (("model.safetensors", _safetensors_names), ("pytorch_model.bin", _check_zip)):
            index = folder / f"{name}.index.json"
            if list(_there(folder, [name])):
                check(folder / name)
                return None
            if list(_there(folder, [index.name])):
                return _shards_fault(folder, index, check)
    except Damaged as error:
        return str(error)
    return f"{folder} has no weights: neither model.safetensors nor pytorch_model.bin, nor an index of their parts"


def _shards_fault(folder: Path, index: Path, check: Any) -> str | None:
    """The parts that the index names exist, are whole, and have the tensors that it says."""
    places = _object(index).get("weight_map")
    if not places or not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        return f"{index} has weight_map={shown(places)}; expected the file of each tensor"
    for file in sorted(set(places.values())):
        if Path(file).name != file:
            return f"{index} names the file {shown(file)}, which is not in the folder"
        try:
            names = check(folder / file)
        except FileNotFoundError:
            return f"{folder / file} is missing; {index.name} names it"
        absent = [name for name, of in places.items() if of == file and names is not None and name not in names]
        if absent:
            return f"{folder / file} lacks {len(absent)} tensors that {index.name} names ({shown(absent[0])}, ...)"
    return None


def _without_config(folder: Path) -> str:
    if list(_there(folder, ["adapter_config.json"])):
        return (
            f"{folder} is a LoRA adapter, not a model. Merge it into its base model (peft: merge_and_unload, "
            "save_pretrained) and take that folder"
        )
    return f"no config.json in {folder}"


def _there(folder: Path, names: Iterable[str]) -> Iterable[str]:
    """Those names under which the folder has anything, a broken link included."""
    return (name for name in names if (folder / name).is_symlink() or (folder / name).exists())


def _object(path: Path) -> dict[str, Any]:
    content = read_json(path, LARGEST_SETTINGS)
    if not isinstance(content, dict):
        raise Damaged(f"{path} holds {shown(content)}; expected an object")
    return content


def _check_zip(path: Path) -> None:
    """A file of torch.save: a zip, whose checksums are right."""
    require_file(path)
    try:
        with zipfile.ZipFile(path) as file:
            wrong = file.testzip()
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, EOFError) as error:
        raise Damaged(f"{path} is cut off or damaged: {error}") from error
    if wrong is not None:
        raise Damaged(f"{path} is damaged: the checksum of {shown(wrong)} in it is wrong")


def _safetensors_names(path: Path) -> set[str]:
    """The names of the tensors in a safetensors file, which lie in it without gaps up to its end."""
    require_file(path)
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            length = struct.unpack("<Q", file.read(8))[0]
            if length > min(size - 8, LARGEST_HEADER):
                raise Damaged(f"{path} is cut off or damaged: its header has {length} bytes, the file {size}")
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        end = 0
        for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            first, last = entry["data_offsets"]
            width = WIDTHS.get(entry["dtype"])
            if first != end or (width and last - first != width * math.prod(entry["shape"])):
                raise Damaged(f"{path} is damaged: its header does not say where the tensor {shown(name)} is")
            end = last
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error) as error:
        if isinstance(error, Damaged):
            raise
        raise Damaged(f"{path} is cut off or damaged: its header cannot be read ({type(error).__name__})") from error
    if size != 8 + length + end:
        raise Damaged(f"{path} is cut off or damaged: it has {size} bytes; its header says {8 + length + end}")
    return set(header)
