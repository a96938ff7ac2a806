"""Rows in verl's form, and their parquet files, the same bytes for the same input.

The agent loop builds its messages from the scenario that `extra_info` names; the `prompt` column repeats the opening
for verl's length filter and for people who look into the file.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bfcl_env import Scenario
from data_prep.sft import gold_messages
from interaction import Conversation
from interaction.protocol import Protocol

_MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))

RL_SCHEMA = pa.schema(
    [
        ("data_source", pa.string()),
        ("prompt", _MESSAGES),
        ("ability", pa.string()),
        ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
        (
            "extra_info",
            pa.struct(
                [("split", pa.string()), ("index", pa.int64()), ("scenario_id", pa.string()), ("category", pa.string())]
            ),
        ),
        ("agent_name", pa.string()),
    ]
)
SFT_SCHEMA = pa.schema([("messages", _MESSAGES), ("scenario_id", pa.string())])


def rl_row(scenario: Scenario, split: str, protocol: Protocol) -> dict[str, Any]:
    """One training or validation row."""
    with Conversation(scenario, protocol=protocol) as conversation:
        prompt = conversation.start()
    gold = [[{"name": call.name, "arguments": call.arguments} for call in turn.gold] for turn in scenario.turns]
    return {
        "data_source": f"bfcl/{scenario.category.removeprefix('multi_turn_')}",
        "prompt": prompt,
        "ability": "multi_turn_function_calling",
        "reward_model": {"style": "rule", "ground_truth": json.dumps(gold)},
        "extra_info": {
            "split": split,
            "index": scenario.index,
            "scenario_id": scenario.id,
            "category": scenario.category,
        },
        "agent_name": "bfcl",
    }


def rl_table(scenarios: Iterable[Scenario], split: str, protocol: Protocol) -> pa.Table:
    """Rows for reinforcement learning."""
    return pa.Table.from_pylist([rl_row(scenario, split, protocol) for scenario in scenarios], schema=RL_SCHEMA)


def sft_table(scenarios: Iterable[Scenario], protocol: Protocol, max_result_chars: int | None) -> pa.Table:
    """Gold conversations for supervised fine-tuning."""
    rows = [
        {"messages": gold_messages(scenario, protocol, max_result_chars), "scenario_id": scenario.id}
        for scenario in scenarios
    ]
    return pa.Table.from_pylist(rows, schema=SFT_SCHEMA)


def write_table(table: pa.Table, path: Path) -> None:
    """Writes the file under another name first, so that an interrupted run leaves no half file behind.

    Every page has a checksum, so that a reader who asks for it notices one changed byte.

    Raises:
        OSError: it cannot be written; what stood there before still does.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        pq.write_table(table, partial, write_page_checksum=True)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
