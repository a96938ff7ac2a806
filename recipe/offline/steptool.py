"""Trajectories as text with a reward a step, `trajectories.parquet` of `data_prep --steptool`.

Tokens are those of prompt, response, prompt, response, ...: each text on its own, none added
(`data_prep.steptool.lengths`). Those of responses are the model's. So ids do not depend on what stands beside a text,
and a step's reward stands on the token that ends it.
"""

import math
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet

from data_prep.steptool.lengths import token_ids
from data_prep.steptool.trajectories import TRAJECTORY_SCHEMA
from interaction.trajectory import Trajectory
from recipe.files import Damaged, require_file
from recipe.offline.stored import Mistake, Place, Stored

SOURCE = "steptool"
ROWS_AT_A_TIME = 256


@lru_cache(maxsize=64)
def table(path: Path) -> pa.Table:
    """The file, mapped into memory.

    Raises:
        Damaged: it is no parquet file with the columns of TRAJECTORY_SCHEMA.
    """
    require_file(path)
    try:
        found = parquet.read_table(path, memory_map=True)
    except (OSError, pa.ArrowException, OverflowError, MemoryError) as error:
        raise Damaged(f"{path} cannot be read as parquet: {' '.join(str(error).split())[:200]}") from error
    for field in TRAJECTORY_SCHEMA:
        if field.name not in found.schema.names or found.schema.field(field.name).type != field.type:
            raise Damaged(
                f"{path} has no column {field.name} of type {field.type}; expected what `python -m data_prep "
                "--steptool FILE --out DIR` writes as DIR/trajectories.parquet"
            )
    return found


def read_rows(path: Path) -> Iterator[tuple[Place, dict[str, Any]]]:
    """The rows of a file.

    Raises:
        Damaged: as `table`.
    """
    for number, row in enumerate(
        row for batch in table(path).to_batches(max_chunksize=ROWS_AT_A_TIME) for row in batch.to_pylist()
    ):
        yield Place(path, number, f"row {number + 1}"), row


def read_row(place: Place, tokenizer: Any) -> Stored:
    """The trajectory at a place.

    Raises:
        Mistake: as `stored_of`.
        Damaged: as `table`.
    """
    return stored_of(table(place.path).slice(place.at, 1).to_pylist()[0], tokenizer)


def stored_of(row: dict[str, Any], tokenizer: Any) -> Stored:
    """The trajectory of a row.

    Raises:
        Mistake: it has no steps, an empty text, or a reward that is not finite.
    """
    steps = row["steps"]
    if not steps:
        raise Mistake("steps: there are none")
    texts: list[str] = []
    for number, step in enumerate(steps):
        for name in ("prompt", "response"):
            text = step and step[name]
            if not text:
                raise Mistake(f"steps[{number}].{name}: is empty")
            texts.append(text)
        if step["reward"] is None or not math.isfinite(step["reward"]):
            raise Mistake(f"steps[{number}].reward: is {step['reward']}; expected a finite number")
    if row["query_id"] is None:
        raise Mistake("query_id: is empty")
    ids = token_ids(texts, tokenizer)
    for number, tokens in enumerate(ids):
        if not tokens:
            name = ("prompt", "response")[number % 2]
            raise Mistake(f"steps[{number // 2}].{name}: the model's tokenizer makes no token of it")
    trajectory = Trajectory(ids[0])
    for number, (prompt, response) in enumerate(zip(ids[::2], ids[1::2], strict=True)):
        if number:
            trajectory.add_context(prompt)
        trajectory.add_step(0, response, None)
    scores = [float(step["reward"]) for step in steps]
    return Stored(row["query_id"], SOURCE, trajectory, sum(scores), scores)
