"""Which rows are in play in which epoch, and that a resumed stage draws the same ones."""

import torch
from tensordict import NonTensorStack, TensorDict
from torchdata.stateful_dataloader import StatefulDataLoader

from recipe.training.resampling import Resampler, progress_of

SETTINGS = {"keep": [0.2, 0.85], "retire": 0.95, "replace": 0.2}
ROWS, SPARE, BATCH = 23, 30, 5
"""An epoch has four steps, and three rows are left over."""


def make(rows: int = ROWS, spare: int = SPARE, shuffle: bool = True, **settings) -> Resampler:
    tasks = [f"t{number}" for number in range(rows + spare)]
    return Resampler(tasks, ["bfcl/base"] * len(tasks), rows, SETTINGS | settings, 1, shuffle)


def play_epoch(sampler: Resampler, progress: dict[int, float]) -> list[int]:
    """Play each row once, with this progress or one that keeps it; returns the rows."""
    rows = list(sampler)
    sampler.observe({sampler.tasks[row]: [progress.get(row, 0.5)] for row in rows})
    return rows


def test_what_is_mastered_retires_first_and_what_is_out_of_reach_gives_way_to_spare_rows():
    sampler = make(rows=10, shuffle=False)
    assert play_epoch(sampler, {0: 0.1, 1: 0.0, 2: 0.86, 3: 1.0, 4: 0.96, 5: 0.2, 6: 0.85}) == [*range(10)]
    first, second, *_ = spare = list(sampler.pool)
    assert play_epoch(sampler, {}) == [0, 1, 2, first, second, 5, 6, 7, 8, 9], "two of ten, by the order of the pool"
    assert sampler.pool == spare[2:], "what is retired never comes back"
    sampler.observe({"t0": [0.0, 0.2], "t1": [0.0], "t2": [0.9]})
    assert list(sampler)[:3] == [spare[3], spare[2], 2], "1 is farther from the kept range than 0, and 0 than 2"
    assert sampler.pool == [*spare[4:], 1, 0], "they may come again"


def test_shares_are_bounds_and_without_spare_rows_everything_stays():
    hopeless = dict.fromkeys(range(100), 0.0)
    for spare, gone in ((0, 0), (2, 2), (SPARE, 4)):
        sampler = make(spare=spare)
        play_epoch(sampler, hopeless)
        assert len({*range(ROWS)} - {*play_epoch(sampler, hopeless)}) == gone


def test_no_task_is_twice_in_an_epoch_and_progress_of_what_has_left_is_forgotten():
    tasks = ["a", "b", "c", "b", "d", "d"]
    sampler = Resampler(tasks, ["x"] * 6, 3, SETTINGS | {"replace": 1.0}, 1, True)
    assert sampler.pool == [4], "what is in play is no spare row, and a spare row is there once"
    sampler = make(replace=1.0)
    for _ in range(5):
        rows = play_epoch(sampler, {row: (0.0, 0.5, 1.0)[row % 3] for row in range(60)})
        assert len({*rows}) == len(rows) == ROWS
        assert len({*rows} & {*sampler.pool}) == 0
    assert sampler.progress.keys() <= {sampler.tasks[row] for row in sampler.order}


def steps(loader: StatefulDataLoader, count: int) -> list[list[int]]:
    """As verl fetches: of the next epoch where this one ends. Progress depends on the row, every 7th group is lost."""
    found, rows = [], iter(loader)
    for _ in range(count):
        batch = next(rows, None)
        if batch is None:
            rows = iter(loader)
            batch = next(rows)
        found.append(batch.tolist())
        loader.sampler.observe({f"t{row}": [row % 11 / 10] for row in found[-1] if row % 7})
    return found


def test_a_resumed_stage_draws_the_same_rows_wherever_it_was_killed(tmp_path):
    def loader() -> StatefulDataLoader:
        return StatefulDataLoader(range(ROWS + SPARE), batch_size=BATCH, drop_last=True, sampler=make())

    whole = steps(loader(), 15)
    assert {*sum(whole[:4], [])} != {*sum(whole[12:], [])}, "something was replaced"
    for killed in range(15):
        before, after = loader(), loader()
        assert steps(before, killed) == whole[:killed]
        torch.save(before.state_dict(), tmp_path / "data.pt")
        after.load_state_dict(torch.load(tmp_path / "data.pt", weights_only=False))
        assert steps(after, 15 - killed) == whole[killed:], f"killed after step {killed}"


def test_progress_is_that_of_the_rollouts_that_came_back_by_task():
    data = TensorDict(batch_size=3)  # as TransferQueue gives it
    tasks = [{"environment": name, "task_id": "a"} for name in ("bfcl", "generated", "bfcl")]
    data["extra_info"] = NonTensorStack(*tasks)
    data["extra_fields"] = NonTensorStack(*({"reward_extra_info": {"progress": one}} for one in (0.5, 1.0, 0.0)))
    assert progress_of(data) == {"a": [0.5, 0.0], "generated/a": [1.0]}
