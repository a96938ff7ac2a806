"""Where prompts are played ahead, groups in which the reward raised are played anew, as long as they are few."""

from typing import Any

import pytest
from omegaconf import OmegaConf
from support.queue import PartlyFailed, Queue
from verl.trainer.ppo.v1 import replay_buffer
from verl.trainer.ppo.v1.replay_buffer import ReplayBufferAsync

from recipe.training.sampling import AsyncSampling, GroupsLost

N, BATCH = 4, 4
GOOD, RAISED = [1.0, 0.0, 1.0, 0.5], ValueError("the reward raised")


def make(
    monkeypatch: pytest.MonkeyPatch, *outcomes: Any, lost: float = 0.25, ahead: int = BATCH, old: str = "wait"
) -> Any:
    """A buffer as verl would have made it, with a batch in play beside the one that is waited for."""
    queue = Queue(outcomes)
    monkeypatch.setattr(replay_buffer, "tq", queue)
    nothing = OmegaConf.create({})
    verls = ReplayBufferAsync("colocate_async", nothing, 4, old, nothing, 0.0, queue.play)
    queue.play(BATCH + ahead)
    config = OmegaConf.create({"stage": {"max_lost_share": lost}, "data": {"train_batch_size": BATCH}})
    return AsyncSampling.instead_of(verls, config), queue


def test_a_lost_group_is_replaced_counted_and_forgotten_in_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer, queue = make(monkeypatch, GOOD, RAISED, *[GOOD] * 30)
    batch, _ = buffer.sample(1, "train", BATCH)
    assert len(batch.keys) == BATCH * N and (buffer.lost, buffer.failed, buffer.lone) == (1, 1, 0)
    assert queue.asked == 2 * BATCH + 1
    buffer.sample(2, "train", BATCH)
    assert buffer.lost == 0


def test_a_group_is_trained_on_as_long_as_two_of_its_episodes_came_back(monkeypatch: pytest.MonkeyPatch) -> None:
    partly, one = PartlyFailed([1.0, 0.0]), PartlyFailed([1.0])
    buffer, _ = make(monkeypatch, GOOD, partly, one, *[GOOD] * 30, lost=0.3)
    batch, _ = buffer.sample(1, "train", BATCH)
    assert len(batch.keys) == 3 * N + 2 and (buffer.lost, buffer.failed, buffer.lone) == (1, 2, 1)


def test_with_drop_a_group_that_is_too_old_goes_whether_or_not_the_reward_raised_in_it(monkeypatch) -> None:
    buffer, queue = make(monkeypatch, PartlyFailed([1.0, 0.0]), *[GOOD] * 30, old="drop")
    while any(tag["status"] == "running" for tag in queue.tags["train"].values()):
        queue.kv_list()
    queue.play(BATCH)
    for number in range(2 * BATCH, 3 * BATCH):
        queue.tags["train"][f"u{number}"]["global_steps"] = 5
    batch, _ = buffer.sample(5, "train", BATCH)
    assert {key.split("_")[0] for key in batch.keys} == {f"u{number}" for number in range(2 * BATCH, 3 * BATCH)}


def test_when_too_many_are_lost_there_is_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(make(monkeypatch, GOOD, RAISED, lost=0.6)[0].sample(1, "train", BATCH)[0].keys) == BATCH * N
    with pytest.raises(GroupsLost):
        make(monkeypatch, GOOD, RAISED, lost=0.25)[0].sample(1, "train", BATCH)
