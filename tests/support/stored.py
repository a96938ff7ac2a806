"""Stored trajectories: lines as the agent loop writes them, made by hand from ids, and files of them."""

import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet

from data_prep.steptool.trajectories import TRAJECTORY_SCHEMA
from recipe.cpu.tiny_policy import make_tokenizer

PROMPT, CONTEXT = [1, 2, 3], [4]


@cache
def tokenizer() -> Any:
    """One that knows bytes and a few words."""
    return make_tokenizer(["Will it rain?", "Thought: look", "Action: weather", "It is dry."])


def line(
    steps: Sequence[Sequence[int]] = ((5, 6), (7, 8, 9)),
    scores: Sequence[float] | None = (0.25, 1.0),
    *,
    uid: str = "u",
    session: int = 0,
    log_probs: bool = True,
    **other: Any,
) -> dict[str, Any]:
    """An episode of these steps, each a turn of its own; the environment says one token between two."""
    response, mask, records = list[int](), list[int](), []
    for number, ids in enumerate(steps):
        if number:
            response, mask = response + CONTEXT, mask + [0]
        place = [len(response), len(response) + len(ids)]
        response, mask = response + list(ids), mask + [1] * len(ids)
        text = tokenizer().decode(ids, skip_special_tokens=True)
        records.append({"text": text, "tokens": place, "well_formed": True})
    logged = [-0.5 * value for value in mask] if log_probs else None
    task = {"environment": "bfcl", "task_id": "multi_turn_base_7", "category": "multi_turn_base"}
    made = {
        **{"step": 1, "split": "train", "launch": "a", "uid": uid, "session_id": session},
        **task,
        "score": 1.0 if scores is None else sum(scores),
        "reward": {"acc": 1.0},
        "episode": {
            **{"version": 3, "stop_reason": "completed", "protocol": "think_xml", "options": {}, **task},
            "turns": [{"user": "", "steps": [step]} for step in records],
        },
        "tokens": {"prompt": PROMPT, "response": response, "mask": mask, "logprobs": logged},
    }
    return made | ({} if scores is None else {"step_scores": list(scores)}) | other


def write_lines(path: Path, lines: Iterable[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{item if isinstance(item, str) else json.dumps(item)}\n" for item in lines))
    return path


def write_rows(path: Path, *rows: tuple[str, Sequence[tuple[str, str, float]]]) -> Path:
    """A file of StepTool's trajectories: query, and prompt, response and reward of each step."""
    content = []
    for number, (query, given) in enumerate(rows, 1):
        steps = [dict(zip(("prompt", "response", "reward"), step, strict=True)) for step in given]
        content.append({"query_id": query, "source_row": number, "steps": steps, "steps_dropped": 0})
    parquet.write_table(pa.Table.from_pylist(content, schema=TRAJECTORY_SCHEMA), path)
    return path
