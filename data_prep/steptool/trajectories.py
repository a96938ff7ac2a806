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
import warnings
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Annotated, Any, TypeVar

import pyarrow as pa
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

LONGEST_CELL = 1_000_000
"""Characters; a context of 32,768 tokens has about 130,000."""

COLUMNS = ("prompt", "response", "reward")

_STEP = pa.struct([("prompt", pa.string()), ("response", pa.string()), ("reward", pa.float64())])
TRAJECTORY_SCHEMA = pa.schema(
    [
        ("query_id", pa.string()),
        ("source_row", pa.int64()),
        ("steps", pa.list_(_STEP)),
        ("steps_dropped", pa.int64()),
    ]
)
"""Tokens of a trajectory are those of prompt, response, prompt, response, ...: each text on its own, special tokens in
it as such, none added. `query_id` is the column's, else a hash of the first prompt; `source_row` counts from 1 below
the header; `steps_dropped` is how many steps were taken from the end because they were too long."""


class BadFile(ValueError):
    """The file cannot be used; `mistakes` are those of single rows."""

    def __init__(self, what: str, mistakes: Iterable[str] = ()) -> None:
        super().__init__(what)
        self.mistakes = list(mistakes)


def _said(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty")
    text.encode()  # raises a ValueError for half of a surrogate pair
    return text


Text = Annotated[str, AfterValidator(_said)]
"""A text that a model can read: UTF-8, and not blank."""
Model = TypeVar("Model", bound=BaseModel)


def checked(model: type[Model], values: Any, row: str) -> Model | list[str]:
    """The values as a model has them, or what is wrong with them: `row 2, response.1: ...`."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        return [
            f"{row}, {'.'.join(map(str, one['loc'])) or 'values'}: {one['msg'].removeprefix('Value error, ')[:200]}"
            for one in error.errors(include_input=False, include_url=False, include_context=False)
        ]


def _listed(cell: str) -> Any:
    try:
        with warnings.catch_warnings(action="ignore"):  # of escapes that Python does not know, and keeps
            return ast.literal_eval(cell.strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"expected a Python list: {error}") from None


class _Row(BaseModel):
    model_config = ConfigDict(strict=True)

    prompt: Annotated[list[Text], BeforeValidator(_listed), Field(min_length=1)]
    response: Annotated[list[Text], BeforeValidator(_listed)]
    reward: Annotated[list[Annotated[float, Field(allow_inf_nan=False)]], BeforeValidator(_listed)]
    query_id: Text | None = None

    @model_validator(mode="after")
    def _one_each(self) -> "_Row":
        counts = [len(self.prompt), len(self.response), len(self.reward)]
        if len(set(counts)) > 1:
            raise ValueError(f"{counts} entries in {', '.join(COLUMNS)}; expected one of each for a step")
        return self


def trajectories(lines: Iterable[str]) -> Iterator[dict[str, Any] | list[str]]:
    """Each row in the form of TRAJECTORY_SCHEMA, or what is wrong with it.

    Args:
        lines: of the file, decoded so that bytes that are not UTF-8 are lone surrogates.

    Raises:
        BadFile: the header is missing or has other columns.
    """
    csv.field_size_limit(LONGEST_CELL)
    rows = csv.reader(lines, delimiter="\t", strict=True)
    try:
        columns = [name.strip() for name in next(rows, [])]
    except csv.Error as error:
        raise BadFile(f"the file has no header of columns parted by tabs: {error}") from error
    if sorted(columns) not in (sorted(COLUMNS), sorted([*COLUMNS, "query_id"])):
        expected = f"{', '.join(COLUMNS)}, parted by tabs, and query_id if there is one"
        raise BadFile(f"the file has columns {str(columns)[:200]}; expected {expected}")
    for number in count(1):
        try:
            cells, found = next(rows), ""
        except StopIteration:
            return
        except csv.Error as error:
            cells, found = [], f" ({error})"
        if len(cells) != len(columns):
            yield [f"row {number}, columns: {len(cells)} cells{found}; expected {len(columns)}, parted by tabs"]
            continue
        row = checked(_Row, dict(zip(columns, cells, strict=True)), f"row {number}")
        if isinstance(row, list):
            yield row
            continue
        steps = [
            dict(zip(COLUMNS, step, strict=True)) for step in zip(row.prompt, row.response, row.reward, strict=True)
        ]
        query = (row.query_id or hashlib.sha256(row.prompt[0].encode()).hexdigest()[:16]).strip()
        yield {"query_id": query, "source_row": number, "steps": steps, "steps_dropped": 0}
