"""One file of StepTool's into one parquet file of ours, and the manifest that says what became of its rows."""

import hashlib
import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa

from data_prep.rows import SFT_SCHEMA, replacing, write_table
from data_prep.steptool.conversations import PROTOCOL, conversations
from data_prep.steptool.lengths import Limits, Measure
from data_prep.steptool.mistakes import BadFile, Mistake, Mistakes, shown
from data_prep.steptool.trajectories import TRAJECTORY_SCHEMA, batch, trajectories

BATCH = 1_000
"""Rows that are held as Python objects at a time."""


@dataclass
class _Count:
    """What became of the rows."""

    read: int = 0
    mistakes: list[Mistake] = field(default_factory=list)
    too_long: list[str] = field(default_factory=list)
    """Names of rows of which not even the first step fits."""
    shortened: int = 0
    steps_dropped: int = 0


def convert(source: Path, out: Path, limits: Limits | None = None, skip_bad: bool = False) -> dict[str, Any]:
    """Writes `sft_train.parquet` (SFT_SCHEMA) or `trajectories.parquet` (TRAJECTORY_SCHEMA) into `out`, as `source` is
    StepTool's SFT JSON or its step CSV, and returns the manifest, which is written there as well, last.

    Args:
        limits: steps that do not fit are dropped from a row's end; a row without any left is left out, and counted.
        skip_bad: leave out the rows that are wrong, and say so in the manifest, in place of writing nothing.

    Raises:
        BadFile: it cannot be read, is neither, or no row of it is left.
        Mistakes: some rows are wrong.
        ValueError: the tokenizer cannot be used.
        OSError: `out` cannot be written.
    """
    limits = limits or Limits()
    count = _Count()
    with _opened(source) as file:
        name, schema, rows = _form(file)
        measure = Measure(limits)
        shorten = _short_conversation if schema is SFT_SCHEMA else _short_trajectory
        kept = (short for row in _good(rows, count) if (short := shorten(row, measure, count)) is not None)
        batches = []
        while part := list(islice(kept, BATCH)):
            made = batch(part) if schema is TRAJECTORY_SCHEMA else pa.RecordBatch.from_pylist(part, schema=schema)
            batches.append(made)
        file.seek(0)
        digest = hashlib.file_digest(file.buffer, "sha256").hexdigest()  # type: ignore[arg-type]
    if count.mistakes and not skip_bad:
        raise Mistakes(count.mistakes, count.read)
    if not batches:
        raise BadFile(
            f"has {count.read} rows and none is left: {len(count.mistakes)} mistakes, {len(count.too_long)} too long"
        )
    out.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_batches(batches, schema=schema)
    write_table(table, out / name)
    with (out / name).open("rb") as written:
        entry = {"rows": table.num_rows, "sha256": hashlib.file_digest(written, "sha256").hexdigest()}
    manifest = {
        "command": _command(source, limits, skip_bad),
        "source": {"file": source.name, "sha256": digest, "rows": count.read},
        **({"protocol": PROTOCOL} if schema is SFT_SCHEMA else {}),
        "left_out": [str(mistake) for mistake in count.mistakes],
        "too_long": count.too_long,
        "shortened": count.shortened,
        "steps_dropped": count.steps_dropped,
        "pyarrow": pa.__version__,
        "files": {name: entry},
    }
    with replacing(out / "manifest.json") as partial:
        partial.write_text(json.dumps(manifest, indent=2) + "\n")
    return manifest


@contextmanager
def _opened(source: Path) -> Iterator[TextIO]:
    """The file as text; bytes that are not UTF-8 become lone surrogates, found in the row that has them."""
    try:
        file = source.open(encoding="utf-8-sig", errors="surrogateescape", newline="")
    except (OSError, ValueError) as error:
        raise BadFile(f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
    with file:
        yield file


def _form(file: TextIO) -> tuple[str, pa.Schema, Iterator[dict[str, Any] | list[Mistake]]]:
    """Name of the file to write, its schema, and the rows: told by how the text begins, whatever the file is called."""
    head = file.read(65_536)
    file.seek(0)
    first = head.lstrip().partition("\n")[0]
    if "\t" in first:
        return "trajectories.parquet", TRAJECTORY_SCHEMA, trajectories(file)
    if first[:1] in ("{", "["):
        return "sft_train.parquet", SFT_SCHEMA, conversations(file.read())
    begins = f"begins with {shown(first)}" if head.strip() else "is empty"
    raise BadFile(
        f"{begins}; expected StepTool's SFT JSON, an object of queries, or its step CSV, whose header is prompt, "
        "response, reward, parted by tabs"
    )


def _good(rows: Iterator[dict[str, Any] | list[Mistake]], count: _Count) -> Iterator[dict[str, Any]]:
    for row in rows:
        count.read += 1
        if isinstance(row, dict):
            yield row
        else:
            count.mistakes += row


def _short_trajectory(row: dict[str, Any], measure: Measure, count: _Count) -> dict[str, Any] | None:
    fitting, steps = measure.trajectory(row), len(row["steps"])
    if not _counted(count, f"row {row['source_row']}", fitting, steps - fitting):
        return None
    return {**row, "steps": row["steps"][:fitting], "steps_dropped": steps - fitting}


def _short_conversation(row: dict[str, Any], measure: Measure, count: _Count) -> dict[str, Any] | None:
    fitting = measure.conversation(row)
    dropped = sum(message["role"] == "assistant" for message in row["messages"][fitting:])
    if not _counted(count, row["task_id"], fitting, dropped):
        return None
    return {**row, "messages": row["messages"][:fitting]}


def _counted(count: _Count, name: str, fitting: int, dropped: int) -> bool:
    """Notes what was dropped; whether anything is left."""
    if not fitting:
        count.too_long.append(name)
        return False
    count.shortened += dropped > 0
    count.steps_dropped += dropped
    return True


def _command(source: Path, limits: Limits, skip_bad: bool) -> str:
    parts: list[str] = [f"python -m data_prep --steptool {shlex.quote(str(source))} --out DIR"]
    given: dict[str, Any] = {"--max-context": limits.context, "--max-response": limits.response}
    given["--tokenizer"] = limits.tokenizer
    parts += [f"{name} {shlex.quote(str(value))}" for name, value in given.items() if value is not None]
    return " ".join(parts + ["--skip-bad"] * skip_bad)
