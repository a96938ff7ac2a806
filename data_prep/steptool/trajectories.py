"""StepTool's step CSV: one trajectory a row, and a reward for each of its steps.

    prompt	response	reward
    "['system and user', 'result']"	"['Thought: ...', 'Thought: ...']"	[0.5, 1.0]

Columns are parted by tabs, and a cell is a Python list: of quoted texts, or of numbers. `prompt[0]` is everything up to
the first message of the model, `prompt[i]` what stands between two of them, with the marks of a chat template in both;
`response[i]` is a message with the mark that ends it. A column `query_id`, which StepTool's files do not have, is taken
where there is one.

A cell is data. What is not a list of at most MOST_STEPS literals on one level is refused by one pass of a regular
expression before `ast.literal_eval` sees it, so code in a cell, nesting and sheer size cost nothing and do nothing.
"""

import ast
import csv
import hashlib
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa

from data_prep.steptool.mistakes import BadFile, Mistake, fault_of, shown

MOST_STEPS = 1_000
"""Steps of a trajectory; StepTool's have under twenty."""
LONGEST_CELL = 1_000_000
"""Characters; a context of 32,768 tokens has about 130,000."""

COLUMNS = ("prompt", "response", "reward")

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

_TEXT = r"""(?:'(?:[^'\\\n]++|\\.)*+'|"(?:[^"\\\n]++|\\.)*+")"""
_NUMBER = r"(?:[-+]?+(?:(?:\d++\.?+\d*+|\.\d++)(?:[eE][-+]?+\d++)?+|inf)|nan)"

_ESCAPES = {r"\\": "\0", r"\n": "\n", r"\t": "\t", r"\r": "\r", r"\'": "'", r"\"": '"', "\0": "\\"}
"""In this order: a backslash that was written out is out of sight, as what is in no text, while the others go."""
_COMMON = r"\\[ntr'\"\\]"
_SIMPLE = re.compile(rf""" *+(?:'((?:[^'\\\n\r\0]++|{_COMMON})*+)'|"((?:[^"\\\n\r\0]++|{_COMMON})*+)") *+([],])""")
"""An item of a list with what ends it: a text as `repr` writes it, but for escapes by number."""


def _list_of(item: str) -> re.Pattern[str]:
    """A list of them, as far as it is one; the group is its closing bracket."""
    more = rf"(?:,\s*+{item}\s*+){{0,{MOST_STEPS - 1}}}+"
    return re.compile(rf"\[\s*+(?:{item}\s*+{more},?+\s*+)?+(\])?+", re.DOTALL)


_TEXTS, _NUMBERS = _list_of(_TEXT), _list_of(_NUMBER)


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
            values.append(_numbers(given[name]) if name == "reward" else _texts(given[name]))
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


def _texts(cell: str) -> list[str]:
    """The texts in a cell. Raises ValueError for what is not a list of them."""
    if (simple := _simple_texts(cell)) is not None:
        return simple
    text = _checked(cell, _TEXTS, "quoted texts")
    try:
        with warnings.catch_warnings(action="ignore"):  # of escapes that Python does not know, and keeps
            return ast.literal_eval(text)
    except UnicodeEncodeError:
        raise ValueError("holds bytes that are not UTF-8") from None
    except (ValueError, SyntaxError) as error:
        raise ValueError(f"a text in it is no Python literal: {shown(str(error))}") from None


def _simple_texts(cell: str) -> list[str] | None:
    """The texts of a list with no escapes but the common ones, in half the time; None for anything else."""
    found, at, begun = list[str](), 1, cell.startswith("[")
    while begun and len(found) < MOST_STEPS and (item := _SIMPLE.match(cell, at)):
        found.append(item[1] or item[2] or "")
        if item[3] == "]":
            return [_unescaped(text) for text in found] if item.end() == len(cell) else None
        at = item.end()
    return None


def _unescaped(text: str) -> str:
    if "\\" in text:
        for escape, meant in _ESCAPES.items():
            text = text.replace(escape, meant)
    return text


def _numbers(cell: str) -> list[float]:
    """The numbers in a cell, infinite ones and those that are none included. Raises ValueError as above."""
    text = _checked(cell, _NUMBERS, "numbers")
    return [float(number) for number in text.strip("[],\n\r\t ").split(",")]


def _checked(cell: str, form: re.Pattern[str], items: str) -> str:
    """The list in a cell, which is safe to read. Raises ValueError for anything else."""
    text = cell.strip()
    found = form.match(text)
    end = found.end() if found else 0
    if found is None or found[1] is None or end < len(text):
        raise ValueError(
            f"expected a Python list of at most {MOST_STEPS} {items} and nothing else, which is read and never run; at "
            f"character {end} stands {shown(text[end : end + 60])}"
        )
    if not text[1:-1].strip():
        raise ValueError(f"the list is empty; expected {items}, one for each step")
    return text
