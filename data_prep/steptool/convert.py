"""One file of StepTool's into one parquet file of ours, and the manifest that says what became of its rows."""

import hashlib
import json
import shlex
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa

from data_prep.rows import SFT_SCHEMA, replacing, write_table
from data_prep.steptool.conversations import PROTOCOL, conversations
from data_prep.steptool.lengths import Measure
from data_prep.steptool.trajectories import TRAJECTORY_SCHEMA, BadFile, trajectories

BATCH = 1_000
"""Rows that are held as Python objects at a time."""


def convert(
    source: Path, out: Path, tokenizer: str | None, max_context: int | None, max_response: int | None, skip_bad: bool
) -> dict[str, Any]:
    """Writes `sft_train.parquet` (SFT_SCHEMA) or `trajectories.parquet` (TRAJECTORY_SCHEMA) into `out`, as `source` is
    StepTool's SFT JSON or its step CSV, and returns the manifest, which is written there as well, last.

    Args:
        max_context, max_response: as `Measure` has them. Steps that do not fit are dropped from a row's end; a row
            without any left is left out, and counted.
        skip_bad: leave out the rows that are wrong, and say so in the manifest, in place of writing nothing.

    Raises:
        BadFile: it cannot be read, is neither, some rows are wrong, or no row of it is left.
        ValueError: the tokenizer cannot be used.
        OSError: `out` cannot be written.
    """
    measure = Measure(tokenizer, max_context, max_response)
    count: dict[str, Any] = {"left_out": [], "too_long": [], "shortened": 0, "steps_dropped": 0}
    try:
        # Bytes that are not UTF-8 become lone surrogates, found in the row that has them.
        file = source.open(encoding="utf-8-sig", errors="surrogateescape", newline="")
    except OSError as error:
        raise BadFile(f"{source} cannot be read: {error.strerror}") from error
    with file:
        schema, rows = _form(file)
        kept = (row for row in rows if _is_kept(row, measure, count))
        batches = []
        while part := list(islice(kept, BATCH)):
            batches.append(pa.RecordBatch.from_pylist(part, schema=schema))
    if count["left_out"] and not skip_bad:
        what = f"{source} has rows that are wrong. Nothing was written; mend them, or leave them out with --skip-bad"
        raise BadFile(what, count["left_out"])
    if not batches:
        raise BadFile(f"{source}: no row is left; {len(count['left_out'])} mistakes, {len(count['too_long'])} too long")
    name = "sft_train.parquet" if schema is SFT_SCHEMA else "trajectories.parquet"
    out.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_batches(batches, schema=schema)
    write_table(table, out / name)
    given = {"--max-context": max_context, "--max-response": max_response, "--tokenizer": tokenizer}
    command = [f"python -m data_prep --steptool {shlex.quote(str(source))} --out DIR"]
    command += [f"{option} {shlex.quote(str(value))}" for option, value in given.items() if value is not None]
    manifest = {
        "command": " ".join(command + ["--skip-bad"] * skip_bad),
        "source": {"file": source.name, "sha256": _digest(source)},
        **({"protocol": PROTOCOL} if schema is SFT_SCHEMA else {}),
        **count,
        "pyarrow": pa.__version__,
        "files": {name: {"rows": table.num_rows, "sha256": _digest(out / name)}},
    }
    with replacing(out / "manifest.json") as partial:
        partial.write_text(json.dumps(manifest, indent=2) + "\n")
    return manifest


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _form(file: TextIO) -> tuple[pa.Schema, Iterator[Any]]:
    """Schema and rows: told by how the text begins, whatever the file is called."""
    head = file.read(65_536).lstrip()
    file.seek(0)
    if "\t" in head.partition("\n")[0]:
        return TRAJECTORY_SCHEMA, trajectories(file)
    if head[:1] in ("{", "["):
        return SFT_SCHEMA, conversations(file.read())
    raise BadFile(
        f"{file.name} begins with {head[:60]!r}; expected StepTool's SFT JSON, an object of queries, or its step CSV, "
        "whose header is prompt, response, reward, parted by tabs"
    )


def _is_kept(row: dict[str, Any] | list[str], measure: Measure, count: dict[str, Any]) -> bool:
    """Shortens a row to what fits, and notes what became of it; whether anything is left."""
    if isinstance(row, list):
        count["left_out"] += row
        return False
    if "steps" in row:
        name, fitting = f"row {row['source_row']}", measure.trajectory(row)
        dropped = len(row["steps"]) - fitting
        row |= {"steps": row["steps"][:fitting], "steps_dropped": dropped}
    else:
        name, fitting = row["task_id"], measure.conversation(row)
        dropped = sum(message["role"] == "assistant" for message in row["messages"][fitting:])
        row |= {"messages": row["messages"][:fitting]}
    if not fitting:
        count["too_long"].append(name)
        return False
    count["shortened"] += dropped > 0
    count["steps_dropped"] += dropped
    return True
