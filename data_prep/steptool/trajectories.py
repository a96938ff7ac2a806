"""StepTool's step CSV: one trajectory a row, and a reward for each of its steps.

    prompt	response	reward
    "['system and user', 'result']"	"['Thought: ...', 'Thought: ...']"	[0.5, 1.0]

Columns are parted by tabs, and a cell is a Python list: of quoted texts, or of numbers. `prompt[0]` is everything up to
the first message of the model, `prompt[i]` what stands between two of them, with the marks of a chat template in both;
`response[i]` is a message with the mark that ends it. A column `query_id`, which StepTool's files do not have, is taken
where there is one.

A cell is data: it is read by `ast.literal_eval`, which runs nothing.
"""

import ast
import csv
import hashlib
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa

from data_prep.steptool.mistakes import BadFile, Mistake, fault_of, shown

MOST_STEPS = 1_000
"""Steps of a trajectory; StepTool's have under twenty."""
LONGEST_CELL = 1_000_000
"""Characters; a context of 32,768 tokens has about 130,000."""

COLUMNS = ("prompt", "response", "reward")
TEXTS = (str, (str,), "quoted texts")
FLOATS = (float, (int, float), "numbers")

TRAJECTORY_SCHEMA = pa.schema(
    [
        ("query_id", pa.string()),
        ("source_row", pa.int64()),
        (
            "steps",
            pa.list_(pa.struct([("prompt", pa.string()), ("response", pa.string()), ("reward", pa.float64())])),
        ),
        ("steps_dropped", pa.int64()),
    ]
)
"""Tokens of a trajectory are those of prompt, response, prompt, response, ...: each text on its own, special tokens in
it as such, none added. `query_id` is the column's, else a hash of the first prompt; `source_row` counts from 1 below
the header; `steps_dropped` is how many steps were taken from the end because they were too long."""


def trajectories(lines: Iterable[str]) -> Iterator[dict[str, Any] | list[Mistake]]:
    """Each row in the form of TRAJECTORY_SCHEMA, or what is wrong with it.

    Args:
        lines: of the file, decoded so that bytes that are not UTF-8 are lone surrogates.

    Raises:
        BadFile: the header is missing or has other columns.
    """
    before = csv.field_size_limit(LONGEST_CELL)
    try:
        rows = csv.reader(lines, delimiter="\t", strict=True)
        columns = _columns(rows)
        number = 0
        while True:
            number += 1
            try:
                cells = next(rows)
            except StopIteration:
                return
            except csv.Error as error:
                yield [Mistake(f"row {number}", "columns", f"no row of cells parted by tabs: {error}")]
                continue
            yield _row(number, columns, cells)
    finally:
        csv.field_size_limit(before)


def batch(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    """Rows as Arrow has them, made column by column, without an Arrow object for every step."""
    steps = [step for row in rows for step in row["steps"]]
    offsets = [0, *accumulate(len(row["steps"]) for row in rows)]
    kind = TRAJECTORY_SCHEMA.field("steps").type.value_type
    columns = {name: pa.array([row[name] for row in rows]) for name in ("query_id", "source_row", "steps_dropped")}
    flat = pa.StructArray.from_arrays([pa.array([step[name] for step in steps]) for name in COLUMNS], fields=list(kind))
    columns["steps"] = pa.ListArray.from_arrays(offsets, flat)
    return pa.RecordBatch.from_arrays([columns[name] for name in TRAJECTORY_SCHEMA.names], schema=TRAJECTORY_SCHEMA)


def _columns(rows: Iterator[list[str]]) -> list[str]:
    try:
        names = [name.strip() for name in next(rows, [])]
    except csv.Error as error:
        raise BadFile(f"has no header of columns parted by tabs: {error}") from error
    if sorted(names) not in (sorted(COLUMNS), sorted([*COLUMNS, "query_id"])):
        raise BadFile(
            f"the columns are {shown(', '.join(names))}; expected {', '.join(COLUMNS)}, parted by tabs, and query_id "
            "if there is one"
        )
    return names


def _row(number: int, columns: Sequence[str], cells: Sequence[str]) -> dict[str, Any] | list[Mistake]:
    row = f"row {number}"
    if len(cells) != len(columns):
        return [Mistake(row, "columns", f"{len(cells)} cells; expected {len(columns)}, parted by tabs")]
    given = dict(zip(columns, cells, strict=True))
    query = given.get("query_id")
    mistakes = []
    if query is not None and (fault := fault_of(query)):
        mistakes.append(Mistake(row, "query_id", fault))
    values: list[list[Any]] = []
    for name in COLUMNS:
        try:
            values.append(_listed(given[name], *(FLOATS if name == "reward" else TEXTS)))
        except ValueError as error:
            mistakes.append(Mistake(row, name, str(error)))
            continue
        faults = ((place, _fault(value)) for place, value in enumerate(values[-1]))
        mistakes += [Mistake(row, f"{name}[{place}]", fault) for place, fault in faults if fault]
    if len(values) == len(COLUMNS) and len(set(map(len, values))) > 1:
        counts = ", ".join(f"{len(value)} in {name}" for name, value in zip(COLUMNS, values, strict=True))
        mistakes.append(Mistake(row, "steps", f"unequal lists, {counts}; expected one of each for a step"))
    if mistakes:
        return mistakes
    prompts, responses, rewards = values
    query = hashlib.sha256(prompts[0].encode()).hexdigest()[:16] if query is None else query.strip()
    steps = [
        {"prompt": prompt, "response": response, "reward": reward}
        for prompt, response, reward in zip(prompts, responses, rewards, strict=True)
    ]
    return {"query_id": query, "source_row": number, "steps": steps, "steps_dropped": 0}


def _fault(value: Any) -> str | None:
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{value} is no finite number"
    return fault_of(value)


def _listed(cell: str, kind: Callable[[Any], Any], types: tuple[type, ...], items: str) -> list[Any]:
    """The values in a cell. Raises ValueError for what is not a list of them."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of escapes that Python does not know, and keeps
            found = ast.literal_eval(cell.strip())
    except UnicodeEncodeError:
        raise ValueError("holds bytes that are not UTF-8") from None
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"expected a Python list of {items}: {shown(str(error))}") from None
    if not isinstance(found, list) or not found or not all(type(item) in types for item in found):
        raise ValueError(f"found {shown(found)}; expected a list of {items}, one for each step")
    if len(found) > MOST_STEPS:
        raise ValueError(f"{len(found)} {items}; expected at most {MOST_STEPS}")
    return [kind(item) for item in found]
