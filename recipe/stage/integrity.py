"""Whether files of weights are what was written: not missing, not cut off, no bit changed.

The files of a checkpoint are zip archives, which carry a CRC-32 of each entry; torch does not look at it. A safetensors
file has none, so whoever makes a model folder here notes the sums of its weights beside them, and who reads the folder
compares. A folder without that note, of an earlier release or from elsewhere, is judged by its structure alone.

Reading takes 0.5 to 1 s for each GB, and the disk's time. Nothing is imported for it, and no file is held in memory.
"""

import json
import math
import struct
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from recipe.files import STRICT, Damaged, StateFile, read_json, require_file, shown

SUMS = "checksums.json"
INDEX = "model.safetensors.index.json"
LARGEST_HEADER = 100_000_000
"""Bytes; the limit of safetensors itself."""
CHUNK = 1 << 20
READERS = 8
"""Files that are read at once: one of them is read and summed at 1 to 2 GB a second at most."""
MANY = 0xFFFF
"""What the end of a zip file states where there are more entries than it has room to say."""
OLD_FORMAT = b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""The number near the beginning of a file in torch's format before 1.6, which is a row of pickles and no archive."""
LARGEST_SETTINGS = 16 * 2**20

WIDTHS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 1),
}
"""Bytes of a number, by its name in a safetensors file."""


@dataclass(frozen=True)
class Sum:
    """One file: how long it is, and its CRC-32."""

    __pydantic_config__ = STRICT
    size: Annotated[int, Field(ge=0)]
    crc32: str


@dataclass(frozen=True)
class Sums:
    """`checksums.json` of a model folder: file name -> what it holds. Of the weights only: the rest may be edited."""

    __pydantic_config__ = STRICT
    files: dict[str, Sum]


SUMS_FILE = StateFile(Sums)


def sum_of(path: Path) -> Sum:
    """Length and CRC-32 of a file."""
    size = crc = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            size, crc = size + len(chunk), zlib.crc32(chunk, crc)
    return Sum(size, f"{crc:08x}")


def note_sums(folder: Path) -> None:
    """Write the sums of a model folder's weights beside them."""
    SUMS_FILE.write(folder / SUMS, _sums_of(folder))


def identity(folder: Path) -> str | None:
    """A short name of the weights in a model folder, from their noted sums; None where there are none."""
    noted = SUMS_FILE.read_or_none(folder / SUMS)
    return _short_name(noted) if noted else None


def measured_identity(folder: Path) -> str | None:
    """The same of any folder: where no sums are noted the weights are read; None where it has no safetensors."""
    return identity(folder) or _short_name(_sums_of(folder))


def _sums_of(folder: Path) -> Sums:
    weights = sorted([*folder.glob("*.safetensors"), *folder.glob(INDEX)])
    with ThreadPoolExecutor(READERS) as pool:
        return Sums(dict(zip([path.name for path in weights], pool.map(sum_of, weights), strict=True)))


def _short_name(sums: Sums) -> str | None:
    return f"{zlib.crc32(repr(sorted(sums.files.items())).encode()):08x}" if sums.files else None


def broken_archive(path: Path) -> str | None:
    """What is wrong with a file that torch wrote; None if it is whole. Reads all of it."""
    if not path.is_file():
        return f"{path} is missing"
    try:
        if _is_old(path):
            return f"{path} is in an old format of torch, which cannot be checked; save the model as safetensors"
        with zipfile.ZipFile(path) as archive:  # its directory is written last
            if odd := [entry.filename for entry in archive.infolist() if not _plain(entry)]:
                return f"{path} is damaged: {odd[0]!r} is not stored as torch does"
            if entry := archive.testzip():
                return f"{path} is damaged: {entry!r} is not what was written"
            if _stated_entries(path) not in (len(archive.infolist()), MANY):
                return f"{path} is damaged: its directory lacks entries"
    except OSError as error:
        return f"{path} cannot be read: {error}"
    except Exception as error:  # a damaged directory makes zipfile raise nearly anything
        return f"{path} is cut off or damaged: {error or type(error).__name__}"
    return None


def _is_old(path: Path) -> bool:
    """Whether torch wrote the file in its format before 1.6."""
    with path.open("rb") as file:
        return OLD_FORMAT in file.read(32)


def _plain(entry: zipfile.ZipInfo) -> bool:
    """Whether an entry is stored as torch does it: not packed, in one part. The sums do not cover that."""
    stored = entry.compress_type == zipfile.ZIP_STORED and entry.compress_size == entry.file_size
    return stored and entry.volume == entry.external_attr == 0


def _stated_entries(path: Path) -> int:
    """The number of entries that the end of a zip file states; a wrong length in its directory can hide some."""
    with path.open("rb") as file:
        file.seek(-22, 2)
        return struct.unpack("<10xH10x", file.read())[0]


def broken_export(folder: Path) -> str | None:
    """What of the weights in a Hugging Face model folder is missing, cut off or changed; None if they are whole.

    `recipe.preflight.model_folder` looks at the other files, `export.misfit` whether the tensors are the model's.
    """
    if not (folder / "config.json").is_file():
        return f"no config.json in {folder}"
    return broken_weights(folder) or changed(folder)


def broken_weights(folder: Path) -> str | None:
    """What of the weights in a model folder is missing or cut off; None if they are whole."""
    try:
        for name, check in (("model.safetensors", tensor_shapes), ("pytorch_model.bin", _check_zip)):
            index = folder / f"{name}.index.json"
            if there(folder, name):
                check(folder / name)
                return None
            if there(folder, index.name):
                return _shards_fault(folder, index, check)
    except FileNotFoundError as error:
        return f"{error.filename} is a link to nothing"
    except Damaged as error:
        return str(error)
    return f"{folder} has no weights: neither model.safetensors nor pytorch_model.bin, nor an index of their parts"


def _shards_fault(folder: Path, index: Path, check: Any) -> str | None:
    """The parts that the index names exist, are whole, and have the tensors that it says."""
    places = read_object(index).get("weight_map")
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


def changed(folder: Path) -> str | None:
    """Which weights of a model folder are not those whose sums were noted; None if all are, or none was noted."""
    try:
        noted = SUMS_FILE.read(folder / SUMS)
    except Damaged as error:
        return str(error)
    files = noted.files if noted else {}
    for name in sorted(files):
        if Path(name).name != name or not (folder / name).is_file():
            return f"{folder / name} is missing"
    with ThreadPoolExecutor(READERS) as pool:
        for name, found in zip(files, pool.map(lambda name: sum_of(folder / name), files), strict=True):
            if found != files[name]:
                return f"{folder / name} is not what was written: its sum differs from that in {SUMS}"
    return None


def there(folder: Path, name: str) -> bool:
    """Whether the folder has anything of that name, a broken link included."""
    return (folder / name).is_symlink() or (folder / name).exists()


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file of a model folder; raises as `read_json`."""
    content = read_json(path, LARGEST_SETTINGS)
    if not isinstance(content, dict):
        raise Damaged(f"{path} holds {shown(content)}; expected an object")
    return content


def _check_zip(path: Path) -> None:
    require_file(path)
    if fault := broken_archive(path):
        raise Damaged(fault)


def tensor_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Name -> shape of the tensors in a safetensors file, which lie in it without gaps up to its end.

    Raises:
        FileNotFoundError: there is nothing of that name.
        Damaged: it is no such file, cut off or damaged.
    """
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
    return {name: tuple(entry["shape"]) for name, entry in header.items()}
