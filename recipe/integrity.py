"""Whether files of weights are what was written: not missing, not cut off, no bit changed.

The files of a checkpoint are zip archives, which carry a CRC-32 of each entry; torch does not look at it. A safetensors
file has none, so whoever makes a model folder here notes the sums of its weights beside them, and who reads the folder
compares. A folder without that note, of an earlier release or from elsewhere, is judged by its structure alone.

Reading takes 0.5 to 1 s for each GB, and the disk's time. Nothing is imported for it, and no file is held in memory.
"""

import json
import struct
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from recipe.files import Damaged, StateFile, read_bounded
from recipe.typed import STRICT

SUMS = "checksums.json"
INDEX = "model.safetensors.index.json"
LARGEST_HEADER = 100_000_000
"""Bytes; the limit of safetensors itself."""
CHUNK = 1 << 20


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
    weights = sorted([*folder.glob("*.safetensors"), *folder.glob(INDEX)])
    SUMS_FILE.write(folder / SUMS, Sums({path.name: sum_of(path) for path in weights}))


def identity(folder: Path) -> str | None:
    """A short name of the weights in a model folder, from their noted sums; None where there are none."""
    noted = SUMS_FILE.read_or_none(folder / SUMS)
    return f"{zlib.crc32(repr(sorted(noted.files.items())).encode()):08x}" if noted else None


def broken_archive(path: Path) -> str | None:
    """What is wrong with a file that torch wrote; None if it is whole. Reads all of it."""
    if not path.is_file():
        return f"{path} is missing"
    try:
        with zipfile.ZipFile(path) as archive:  # its directory is written last
            if odd := [entry.filename for entry in archive.infolist() if not _plain(entry)]:
                return f"{path} is damaged: {odd[0]!r} is not stored as torch does"
            if entry := archive.testzip():
                return f"{path} is damaged: {entry!r} is not what was written"
    except OSError as error:
        return f"{path} cannot be read: {error}"
    except Exception as error:  # a damaged directory makes zipfile raise nearly anything
        return f"{path} is cut off or damaged: {error or type(error).__name__}"
    return None


def _plain(entry: zipfile.ZipInfo) -> bool:
    """Whether an entry is stored as torch does it: not packed, in one part. The sums do not cover that."""
    stored = entry.compress_type == zipfile.ZIP_STORED and entry.compress_size == entry.file_size
    return stored and entry.volume == entry.external_attr == 0


def broken_export(folder: Path) -> str | None:
    """What is missing, cut off or changed in a Hugging Face model folder; None if it is whole.

    Imports nothing; `recipe.export.misfit` says whether the tensors are the model's.
    """
    if not (folder / "config.json").is_file():
        return f"no config.json in {folder}"
    try:
        index = json.loads(read_bounded(folder / INDEX)) if (folder / INDEX).exists() else None
        names = {"model.safetensors"} if index is None else set(index["weight_map"].values())
        for name in sorted(names):
            if fault := _broken_weights(folder, str(name)):
                return fault
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error) as error:
        return f"the weights in {folder} cannot be read: {type(error).__name__}: {error}"
    return changed(folder)


def changed(folder: Path) -> str | None:
    """Which weights of a model folder are not those whose sums were noted; None if all are, or none was noted."""
    try:
        noted = SUMS_FILE.read(folder / SUMS)
    except Damaged as error:
        return str(error)
    for name, wanted in sorted(noted.files.items()) if noted else ():
        path = folder / name
        if Path(name).name != name or not path.is_file():
            return f"{path} is missing"
        if path.stat().st_size != wanted.size or sum_of(path) != wanted:
            return f"{path} is not what was written: its sum differs from that in {SUMS}"
    return None


def _broken_weights(folder: Path, name: str) -> str | None:
    path = folder / name
    if Path(name).name != name or not path.is_file():
        return f"{path} is missing"
    size = path.stat().st_size
    with path.open("rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        if length > min(size, LARGEST_HEADER):
            return f"{path} is cut off"
        header = json.loads(file.read(length))
    end = max((entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__"), default=0)
    return f"{path} is cut off" if size != 8 + length + end else None
