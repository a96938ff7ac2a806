"""A parquet file of data: whole, as it was made, and with the columns that are read.

What `python -m data_prep` wrote has a hash in the manifest beside it and a checksum in every page, so one changed byte
is found; of files from elsewhere the structure. Other tools call a file manifest.json too, so one without data_prep's
marks says nothing here.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet

from recipe.files import Damaged, read_json, require_file
from recipe.typed import shown

LARGEST = 4 * 2**30
"""Bytes of a file: all 800 tasks with their prompts take a few megabytes."""

MOST_ROWS = 1_000_000
"""Rows of a file; a parquet file of a few kilobytes can state billions."""

COMMAND = "python -m data_prep "
"""What the command in data_prep's own manifest begins with."""

BEGINNING = f'{{\n  "command": "{COMMAND}'.encode()
"""Of data_prep's own manifest; tells a damaged one from a file of another tool."""

PATTERN = "*?["
"""Characters that `datasets`, with which verl reads the files, takes for a pattern."""


def check_whole(path: Path, endings: Sequence[str] = (".parquet",)) -> None:
    """verl can read a file of that name, and it is what the manifest beside it describes, if it names one so.

    Raises:
        FileNotFoundError, Damaged: it is not there, or has a fault.
    """
    if wild := next((letter for letter in str(path.absolute()) if letter in PATTERN), None):
        raise Damaged(f"{path.absolute()} has {wild} in its name, which is read as a pattern; give it another name")
    if path.suffix not in endings:
        raise Damaged(f"{path} has the ending {path.suffix!r}; expected {' or '.join(endings)}")
    require_file(path, LARGEST)
    manifest = path.with_name("manifest.json")
    entry = _files(_ours(manifest)).get(path.name)
    if entry is None:
        return
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if entry["sha256"] != found:
        raise Damaged(
            f"{path} is not the file that {manifest} describes: it was changed or is damaged (SHA-256 {found[:12]}...; "
            f"there {shown(entry)}). If you changed it yourself, take it out of that manifest"
        )


def manifest_of(path: Path) -> dict[str, Any]:
    """The manifest of data_prep beside a file that it describes; empty where there is none.

    Raises:
        Damaged: it begins as data_prep's does, and cannot be read.
    """
    content = _ours(path.with_name("manifest.json"))
    return content if path.name in _files(content) else {}


def _ours(manifest: Path) -> dict[str, Any]:
    try:
        content = read_json(manifest)
    except FileNotFoundError:
        return {}
    except Damaged:
        if _begins_as_ours(manifest):
            raise
        return {}
    return content if isinstance(content, dict) and str(content.get("command")).startswith(COMMAND) else {}


def _files(manifest: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The files in a manifest, each with its hash."""
    files = manifest.get("files")
    if not isinstance(files, dict):
        return {}
    return files if all(isinstance(entry, dict) and "sha256" in entry for entry in files.values()) else {}


def _begins_as_ours(manifest: Path) -> bool:
    try:
        require_file(manifest)
        with manifest.open("rb") as file:
            return file.read(len(BEGINNING)) == BEGINNING
    except (Damaged, OSError):
        return False


def parquet_rows(path: Path, texts: Sequence[str], others: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """The rows of a parquet file that has these columns, the first ones texts. `prompt.[].role`: of a list's items.

    Raises:
        Damaged: it has not, or cannot be read; the message names file and column.
    """
    try:
        with parquet.ParquetFile(path, page_checksum_verification=True) as file:
            if file.metadata.num_rows > MOST_ROWS:
                raise Damaged(f"{path} states {file.metadata.num_rows} rows; expected at most {MOST_ROWS}")
            for name in (*texts, *others):
                kind = _column(path, file.schema_arrow, name)
                if name in texts and not _is_text(kind):
                    raise Damaged(
                        f"{path}: the column {name.partition('|')[0].replace('.[]', '')} is {kind}; expected text"
                    )
            for batch in file.iter_batches(batch_size=256):
                yield from batch.to_pylist()
    except (OSError, pa.ArrowException, UnicodeDecodeError, OverflowError, MemoryError) as error:
        words = " ".join(str(error).split()) or type(error).__name__
        raise Damaged(f"{path} cannot be read as parquet: {words[:200]}") from error


def _column(path: Path, schema: pa.Schema, name: str) -> pa.DataType:
    name, _, earlier = name.partition("|")
    if earlier:
        with suppress(Damaged):
            return _column(path, schema, earlier)
    kind: Any = pa.struct(list(schema))
    for part in name.split("."):
        if part == "[]":
            if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
                raise Damaged(f"{path}: the column {name.partition('.')[0]} is {kind}; expected a list of messages")
            kind = kind.value_type
            continue
        if not pa.types.is_struct(kind) or kind.get_field_index(part) < 0:
            has = ", ".join(item.name for item in kind) if pa.types.is_struct(kind) else kind
            raise Damaged(f"{path} has no column {name.replace('.[]', '')}; there is {shown(str(has))}")
        kind = kind.field(part).type
    return kind


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)
