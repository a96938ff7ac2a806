"""One file of StepTool's into one parquet file of ours, and the manifest that says what became of its rows.

Its SFT JSON has conversations by query, in ToolBench's message form; its step CSV is read in `trajectories.py`.

    {"10012": {"cnt": 1, "instances": [{"id": "Step 2: ...", "conversations": [
        {"from": "system", "value": "..."}, {"from": "user", "value": "..."},
        {"from": "assistant", "value": "Thought: ...\\nAction: ...\\nAction Input: {}"}]}]}}

Every instance becomes a row, as StepTool trains on them: of one query there are often several that begin alike and end
one message later each. Results ("function") become messages of the user, as our `toolbench` protocol gives them, and
each message of the model is one that this protocol reads.
"""

import hashlib
import json
import shlex
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TextIO

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, field_validator

from data_prep.rows import SFT_SCHEMA, replacing, write_table
from data_prep.steptool.lengths import Measure
from data_prep.steptool.trajectories import TRAJECTORY_SCHEMA, BadFile, Text, checked, trajectories
from interaction import get_protocol
from interaction.protocol.calls import unique_keys

PROTOCOL = "toolbench"
FOLLOWS: dict[str, tuple[str | None, ...]] = {
    "system": (None,),
    "user": (None, "system", "user", "assistant", "function"),
    "assistant": ("user", "function"),
    "function": ("assistant",),
}
"""Role -> the roles that it may follow; None at the beginning."""
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
        return SFT_SCHEMA, _conversations(file.read())
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


class _Message(BaseModel):
    role: Literal["system", "user", "assistant", "function"] = Field(alias="from")
    value: Text


class _Instance(BaseModel):
    model_config = ConfigDict(strict=True)

    id: Text
    conversations: list[_Message]

    @field_validator("conversations")
    @classmethod
    def _in_order(cls, messages: list[_Message]) -> list[_Message]:
        before: str | None = None
        for number, message in enumerate(messages):
            if before not in FOLLOWS[message.role]:
                raise ValueError(f"message {number}: {message.role} follows {before or 'nothing'}")
            if message.role == "assistant":
                parsed = get_protocol(PROTOCOL).parse(message.value)
                if parsed.error is not None:
                    detail = f"{parsed.error} ({parsed.detail})"
                    raise ValueError(f"message {number}: not in the form of {PROTOCOL}: {detail}")
            before = message.role
        if before != "assistant":
            raise ValueError("does not end with the assistant: nothing to learn at the end")
        return messages


class _Query(BaseModel):
    id: Text
    instances: list[Any] = Field(min_length=1)


def _conversations(text: str) -> Iterator[dict[str, Any] | list[str]]:
    """Each instance in the form of SFT_SCHEMA, or what is wrong with it.

    Raises:
        BadFile: it is not JSON, or not an object of queries.
    """
    try:
        queries = json.loads(text, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise BadFile(f"the file is not JSON: {str(error)[:200]}") from None
    if not isinstance(queries, dict):
        raise BadFile("the file is no object of queries")
    for name, entry in queries.items():
        row = f"query {name[:60]!r}"
        query = checked(_Query, {**entry, "id": name} if isinstance(entry, dict) else {"id": name}, row)
        if isinstance(query, list):
            yield query
            continue
        for number, values in enumerate(query.instances):
            instance = checked(_Instance, values, f"{row}, instances[{number}]")
            if isinstance(instance, list):
                yield instance
                continue
            messages = [
                {"role": "user" if one.role == "function" else one.role, "content": one.value.strip()}
                for one in instance.conversations
            ]
            yield {"messages": messages, "task_id": f"{name}/{instance.id}", "query_id": name}
