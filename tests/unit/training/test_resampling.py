"""Which rows are in play in which epoch, and that a resumed stage draws the same ones."""

import torch
from omegaconf import OmegaConf
from torchdata.stateful_dataloader import StatefulDataLoader

from recipe.training.resampling import STANDINGS, Resampler, resampled

SETTINGS = {"keep": [0.2, 0.85], "retire": 0.95, "replace": 0.2}
ROWS, SPARE, BATCH = 23, 300, 5
"""An epoch has four steps, and three rows are left over."""
DRAWN = [[6, 10, 21], [12, 10, 19]]
"""With which rows the first two epochs begin."""


def make(rows: int = ROWS, spare: int = SPARE, shuffle: bool = True, **settings) -> Resampler:
    tasks = [f"t{number}" for number in range(rows + spare)]
    return Resampler(tasks, ["bfcl/base"] * rows + ["generated"] * spare, rows, SETTINGS | settings, 1, shuffle)


def play_epoch(sampler: Resampler, progress: dict[int, float]) -> list[int]:
    """Play each row once, with this progress or one that keeps it; returns the rows."""
    rows = list(sampler)
    sampler.observe({sampler.tasks[row]: [progress.get(row, 0.5)] for row in rows})
    return rows


def counts(sampler: Resampler) -> tuple[float, ...]:
    """Out of reach, at the edge, mastered, replaced; and spare rows. What has come is of another source."""
    found, names = sampler.metrics(), (*STANDINGS, "replaced")
    for name in names:
        assert found[f"resample/bfcl/base/{name}"] + found[f"resample/generated/{name}"] == found[f"resample/{name}"]
    assert found["resample/generated/replaced"] == found["resample/replaced"]
    return *(found[f"resample/{name}"] for name in names), found["resample/spare"]


def test_what_is_mastered_retires_first_and_what_is_out_of_reach_gives_way_to_spare_rows():
    sampler = make(rows=10, shuffle=False)
    progress = {0: 0.1, 1: 0.0, 2: 0.95, 3: 1.0, 4: 0.96, 5: 0.2, 6: 0.85}
    assert play_epoch(sampler, progress) == [*range(10)]
    assert counts(sampler) == (2, 5, 3, 0, SPARE)
    first, second, *_ = spare = list(sampler.pool)
    assert play_epoch(sampler, {}) == [0, 1, 2, first, second, 5, 6, 7, 8, 9], "two of ten, by the order of the pool"
    assert sampler.pool == spare[2:], "what is retired never comes back"
    sampler.observe({"t0": [0.0, 0.2], "t1": [0.0], "t2": [0.95], "t3": [0.5]})
    assert counts(sampler) == (2, 7, 1, 2, SPARE - 2) and "t3" not in sampler.progress, "it has left"
    assert list(sampler)[:3] == [spare[3], spare[2], 2], "1 is farther from the kept range than 0, and 0 than 2"
    assert sampler.pool == [*spare[4:], 1, 0], "they may come again"
    assert counts(sampler) == (0, 7, 1, 2, SPARE - 2)
    sampler.observe({"t2": [0.95]})
    list(sampler)
    assert sampler.order[2] == spare[4] and sampler.pool[-1] == 2, "at the border nothing retires"


def test_no_more_is_replaced_than_its_share_and_than_is_spare_and_no_task_is_twice_in_an_epoch():
    hopeless = dict.fromkeys(range(ROWS + SPARE), 0.0)
    for spare, gone in ((0, 0), (2, 2), (SPARE, 4)):
        sampler = make(spare=spare)
        play_epoch(sampler, hopeless)
        assert len({*range(ROWS)} - {*play_epoch(sampler, hopeless)}) == gone
    tasks = ["a", "b", "c", "b", "d", "d"]
    sampler = Resampler(tasks, ["x"] * 6, 3, SETTINGS | {"replace": 1.0}, 1, True)
    assert sampler.pool == [4], "what is in play is no spare row, and a spare row is there once"
    sampler = make(replace=1.0)
    for _ in range(5):
        rows = play_epoch(sampler, {row: (0.0, 0.5, 1.0)[row % 3] for row in range(ROWS + SPARE)})
        assert len({*rows}) == len(rows) == ROWS
        assert len({*rows} & {*sampler.pool}) == 0


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

    assert [list(sampler)[:3] for sampler in [make()] * 2] == DRAWN, "one seed draws the same rows in every version"
    unbroken = loader()
    whole = steps(unbroken, 15)
    assert {*sum(whole[:4], [])} != {*sum(whole[12:], [])}, "something was replaced"
    for killed in range(15):
        before, after = loader(), loader()
        assert steps(before, killed) == whole[:killed]
        torch.save(before.state_dict(), tmp_path / "data.pt")
        after.load_state_dict(torch.load(tmp_path / "data.pt", weights_only=False))
        assert steps(after, 15 - killed) == whole[killed:], f"killed after step {killed}"
        assert after.sampler.metrics() == unbroken.sampler.metrics()


class Rows(list):
    """A data set of verl's, of rows that are their names."""

    def __init__(self, name: str, size: int) -> None:
        super().__init__(f"{name}/{row}" for row in range(size))
        infos = [{"environment": name, "task_id": str(row)} for row in range(size)]
        self.dataframe = {"extra_info": infos, "data_source": [name] * size}


def test_the_loader_of_a_stage_gives_full_batches_of_rows_in_play_and_then_of_those_that_come(monkeypatch):
    spare = Rows("spare", 2)
    monkeypatch.setattr("recipe.training.resampling.create_rl_dataset", lambda *_, is_train, **__: is_train and spare)
    settings = {"resample": {**SETTINGS, "replace": 1.0, "pool": "spare.parquet"}}
    config = OmegaConf.create({"data": {"seed": 1, "shuffle": False}, "stage": settings})
    loader = resampled(config, StatefulDataLoader(Rows("own", 5), batch_size=2, collate_fn=list))
    assert [*loader] == [["own/0", "own/1"], ["own/2", "own/3"]]
    loader.sampler.observe({"own/0": [1.0], "own/3": [0.0]})
    (first, *others), (*rest, last) = loader
    assert [others, rest, {first, last}] == [["own/1"], ["own/2"], {"spare/0", "spare/1"}]
