"""Rows in verl's form, and their parquet files, the same bytes for the same input.

The agent loop builds its messages from the task that `extra_info` names; the `prompt` column repeats the opening
for verl's length filter and for people who look into the file.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from data_prep.sft import gold_messages
from interaction.environment import Task, UserWords
from interaction.gold import beside_each_other, opening
from interaction.protocol import Message, Protocol

_MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))

_INFO = ("split", "index", "environment", "task_id", "category", "part")
RL_SCHEMA = pa.schema(
    [
        ("data_source", pa.string()),
        ("prompt", _MESSAGES),
        ("ability", pa.string()),
        ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
        ("extra_info", pa.struct([(name, pa.int64() if name == "index" else pa.string()) for name in _INFO])),
        ("agent_name", pa.string()),
    ]
)
SFT_SCHEMA = pa.schema([("messages", _MESSAGES), ("task_id", pa.string()), ("query_id", pa.string())])
"""`query_id` is what conversations have in common that must not stand on two sides of a split: of a task its cluster,
of StepTool's instances their query."""


def rl_table(
    tasks: Iterable[Task], split: str, protocol: Protocol, options: Mapping[str, Mapping[str, Any]] | None = None
) -> pa.Table:
    """Rows for reinforcement learning or validation.

    Args:
        options: environment -> its own settings, as far as they decide what a conversation begins with.
    """
    rows = []
    for number, task in enumerate(tasks):
        index = getattr(task, "index", None)  # of a tuple with names a method
        own = (options or {}).get(task.environment, {})
        info = {
            "split": split,
            "index": index if isinstance(index, int) else number,
            "environment": task.environment,
            "task_id": task.id,
            "category": task.category,
            "part": task.part,
        }
        rows.append(
            {
                "data_source": f"{task.environment}/{task.category.removeprefix('multi_turn_')}",
                "prompt": opening(task, protocol, environments={task.environment: dict(own)}),
                "ability": "multi_turn_function_calling",
                "reward_model": {"style": "rule", "ground_truth": json.dumps(_gold_calls(task))},
                "extra_info": info,
                "agent_name": "conversation",
            }
        )
    return pa.Table.from_pylist(rows, schema=RL_SCHEMA)


def _gold_calls(task: Task) -> list[list[dict[str, Any]]]:
    """Gold's calls of each user turn."""
    turns: list[list[dict[str, Any]]] = []
    going_on = False
    for item in task.gold():
        if isinstance(item, UserWords):
            continue
        if not going_on:
            turns.append([])
        turns[-1] += [{"name": call.name, "arguments": call.arguments} for call in item.calls]
        going_on = bool(item.calls)
    return turns


def sft_table(
    tasks: Iterable[Task],
    protocol: Protocol,
    max_result_chars: int | None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> pa.Table:
    """Gold conversations for supervised fine-tuning; `options` by environment, as in `rl_table`."""
    tasks = [*tasks]

    def gold(task: Task) -> list[Message]:
        return gold_messages(task, protocol, max_result_chars, (options or {}).get(task.environment))

    rows = [
        {
            "messages": messages,
            "task_id": task.id,
            "query_id": f"{task.environment}/{task.cluster}",
        }
        for task, messages in zip(tasks, beside_each_other(gold, tasks), strict=True)
    ]
    return pa.Table.from_pylist(rows, schema=SFT_SCHEMA)


def write_table(table: pa.Table, path: Path) -> None:
    """Every page has a checksum, so that a reader who asks for it notices one changed byte.

    Raises:
        OSError: it cannot be written; what stood there before still does.
    """
    with replacing(path) as partial:
        pq.write_table(table, partial, write_page_checksum=True)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file to write, which takes the place of `path` when it is whole: an interruption leaves no half file behind."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
