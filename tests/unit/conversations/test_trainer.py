"""The validation of a warm start sees every conversation once, on however many processes."""

from typing import Any

import pytest
import torch
from torch.utils.data import DistributedSampler

from recipe.conversations.trainer import Filled


class Rows:
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, place: int) -> dict[str, Any]:
        return {"input_ids": torch.full((3 + place,), place), "loss_mask": torch.ones(3 + place)}


@pytest.mark.parametrize("count", [1, 2, 5, 16, 17])
@pytest.mark.parametrize(("ranks", "each"), [(1, 1), (1, 2), (8, 1), (4, 4)])
def test_each_process_has_as_many_rows_and_all_of_them_count_once(count: int, ranks: int, each: int) -> None:
    rows = Filled(Rows(count), ranks * each)
    sampled = [list(DistributedSampler(rows, num_replicas=ranks, rank=rank, shuffle=False)) for rank in range(ranks)]
    assert {len(places) for places in sampled} == {len(rows) // ranks} and len(rows) // ranks % each == 0
    seen = [rows[place] for places in sampled for place in places]
    counting = [int(row["input_ids"][0]) for row in seen if row["loss_mask"].any()]
    assert sorted(counting) == list(range(count))
    assert all(row["input_ids"].shape == row["loss_mask"].shape for row in seen)
