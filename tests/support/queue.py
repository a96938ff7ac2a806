"""TransferQueue as a dictionary, for verl's replay buffers and for what its trainer computes."""

from collections import defaultdict
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from transfer_queue import KVBatchMeta

from recipe.training import trainer as trainer_module


class PartlyFailed(list):
    """Values of the episodes that came back of a group in which the reward raised for another one."""


class Queue:
    """TransferQueue, and the agent loops that fill it: `outcomes` are the metric's values of group after group."""

    def __init__(self, outcomes: Sequence[Any]):
        self.outcomes = list(outcomes)
        self.tags: dict[str, dict[str, dict]] = defaultdict(dict)
        self.values: dict[str, float] = {}
        self.asked = 0

    def play(self, prompts: int) -> None:
        for _ in range(prompts):
            uid = f"u{self.asked}"
            self.asked += 1
            self.tags["train"][uid] = {"is_prompt": True, "status": "running", "global_steps": 1}

    def kv_list(self) -> Any:
        running = [uid for uid, tag in self.tags["train"].items() if tag.get("status") == "running"]
        if running:
            uid = running[0]
            outcome = self.outcomes[int(uid[1:]) % len(self.outcomes)]
            raised = isinstance(outcome, Exception | PartlyFailed)
            for session, value in enumerate([] if isinstance(outcome, Exception) else outcome):
                self.tags["train"][f"{uid}_{session}_0"] = {"status": "success"}
                self.values[f"{uid}_{session}_0"] = value
            self.tags["train"][uid]["status"] = "failure" if raised else "finished"
        return {name: {key: dict(tag) for key, tag in tags.items()} for name, tags in self.tags.items()}

    def kv_clear(self, partition_id: str, keys: Sequence[str]) -> None:
        for key in keys:
            self.tags[partition_id].pop(key, None)

    def kv_batch_get(self, keys: Sequence[str], partition_id: str, select_fields: Sequence[str]) -> Any:
        if select_fields == ["rm_scores"]:
            return {"rm_scores": [torch.tensor([0.0, self.values[key]]) for key in keys]}
        return {"extra_fields": [{"reward_extra_info": {"acc": self.values[key]}} for key in keys]}


def nested(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    """Rows of different lengths as verl stores them."""
    return torch.nested.as_nested_tensor(list(rows), layout=torch.jagged)


class Store:
    """The part of TransferQueue that holds the columns of a step."""

    def __init__(self, **columns: Any):
        self.columns = columns
        self.written: dict[str, torch.Tensor] = {}

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str]) -> TensorDict:
        found = {name: self.columns[name] for name in select_fields if name in self.columns}
        return TensorDict(found, batch_size=len(keys))

    def kv_batch_put(self, keys: list[str], partition_id: str, fields: TensorDict) -> Any:
        self.written |= {name: fields[name].to_padded_tensor(padding=0) for name in fields.keys()}
        return "batch"


def metrics_of(trainer: Any, keys: Sequence[str], scores: Any = None, extra: Sequence[Any] = ()) -> dict[str, float]:
    """What the trainer logs of a step with these samples, their scores on tokens and what the agent loop said."""
    columns = {
        "data_source": SimpleNamespace(tolist=lambda: ["bfcl/base", "bfcl/miss_func", *keys][: len(keys)]),
        "extra_fields": SimpleNamespace(tolist=lambda: list(extra) or [{}] * len(keys)),
        "rm_scores": torch.zeros(len(keys), 1) if scores is None else torch.tensor(scores),
    }
    batch = KVBatchMeta(partition_id="train", keys=[*keys, "pad"], tags=[*[{}] * len(keys), {"is_padding": True}])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer_module.tq, "kv_batch_get", lambda **_: dict(columns))
        return trainer._reward_metrics(batch)
