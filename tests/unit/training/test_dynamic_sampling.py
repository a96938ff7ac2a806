"""Dynamic sampling ends: with a full batch of groups that differ, or with a message.

verl's buffer runs as it is, over a dictionary in place of TransferQueue. Groups finish one at a look, so some still run
while others are judged."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from support.queue import PartlyFailed, Queue, metrics_of
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1 import replay_buffer
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from recipe.training.sampling import DynamicSampling, GroupsAlike

N, BATCH = 4, 2
SOLVED, FAILED, MIXED = [1.0] * N, [0.0] * N, [1.0, 0.0, 0.0, 1.0]
LOST: list[float] = []
"""No episode came back."""
LONE = [1.0]
"""One came back."""


@pytest.fixture
def sampling(monkeypatch: pytest.MonkeyPatch):
    """A buffer in which a step's first groups are being played, as verl would have made it."""
    return lambda outcomes, **options: make(monkeypatch, outcomes, **options)


def make(monkeypatch: Any, outcomes: Sequence[Any], metric: str = "acc", limit: int = 5, lost: float = 0.25) -> Any:
    queue = Queue(outcomes)
    monkeypatch.setattr(replay_buffer, "tq", queue)
    nothing = OmegaConf.create({})
    verls = ReplayBuffer(
        "sync", nothing, None, "drop", nothing, 0.0, queue.play, metric, train_batch_size=BATCH, gen_batch_size=1
    )
    stage = {"max_gen_batches": limit, "max_lost_share": lost}
    config = OmegaConf.create({"stage": stage, "data": {"train_batch_size": BATCH}})
    buffer = DynamicSampling.instead_of(verls, config)
    queue.play(BATCH)
    return buffer, queue


def uids(batch: KVBatchMeta) -> set[str]:
    return {key.split("_")[0] for key in batch.keys}


def test_a_step_trains_on_groups_that_differ_and_plays_others_for_the_rest(sampling):
    buffer, queue = sampling([SOLVED, MIXED, FAILED, MIXED])
    batch, metrics = buffer.sample(1, "train", BATCH)
    assert uids(batch) == {"u1", "u3"} and len(batch.keys) == BATCH * N
    assert buffer.played == queue.asked
    assert metrics["training/filter_groups/evicted_samples"] == buffer.filtered >= 2
    assert not queue.tags["train"].keys() - set(batch.keys), "what is not trained on must not stay in the queue"


@given(
    outcomes=st.lists(
        st.sampled_from([SOLVED, FAILED, MIXED, LONE, LOST, PartlyFailed(SOLVED[1:]), PartlyFailed(MIXED[1:])]),
        min_size=1,
        max_size=30,
    ),
    limit=st.integers(2, 6),
)
@settings(deadline=None, max_examples=50)
def test_whatever_the_groups_are_a_step_is_full_or_ends(outcomes, limit):
    with pytest.MonkeyPatch.context() as patch:
        buffer, queue = make(patch, outcomes, limit=limit, lost=1.0)
        try:
            batch, _ = buffer.sample(1, "train", BATCH)
        except GroupsAlike:
            assert queue.asked == limit * BATCH
        else:
            assert len(uids(batch)) == BATCH
            assert all(
                len({queue.values[key] for key in batch.keys if key.startswith(f"{uid}_")}) > 1 for uid in uids(batch)
            )
        assert buffer.played == queue.asked <= limit * BATCH
        assert buffer.filtered + buffer.lost <= buffer.played


def test_a_group_that_the_engine_lost_is_played_again_and_counted_as_lost(sampling, trainer_for):
    buffer, _ = sampling([LOST, MIXED, MIXED, MIXED], lost=0.5)
    batch, metrics = buffer.sample(1, "train", BATCH)
    assert len(uids(batch)) == BATCH and (buffer.lost, buffer.filtered) == (1, 0)
    assert metrics["training/rollout_failure/evicted_samples"] == 1
    trainer = trainer_for(buffer, groups=BATCH, max_lost_share=0.5)
    assert metrics_of(trainer, batch.keys)["train/lost_samples"] == pytest.approx(1 / (BATCH + 1))


def test_a_rollout_that_is_left_alone_is_played_again_with_its_group(sampling, trainer_for, monkeypatch):
    buffer, queue = sampling([LONE, MIXED, MIXED, MIXED], lost=0.5)
    batch, _ = buffer.sample(1, "train", BATCH)
    assert uids(batch) == {"u1", "u2"} and (buffer.lost, buffer.lone, buffer.filtered) == (1, 1, 0)
    assert not queue.tags["train"].keys() - set(batch.keys), "what is not trained on must not stay in the queue"
    trainer = trainer_for(buffer, groups=BATCH, max_lost_share=0.5)
    monkeypatch.setattr(PPOTrainerSync, "_balance_batch", lambda self, batch, *_, **__: batch)
    metrics = metrics_of(trainer, trainer._balance_batch(batch, {}).keys)
    assert metrics["train/lost_samples"] == pytest.approx((N - 1) / (N * (BATCH + 1)))
    assert metrics["train/lone_samples"] == 1


def test_more_lost_groups_than_allowed_stop_the_training_and_say_why(sampling, trainer_for, monkeypatch):
    monkeypatch.setattr(PPOTrainerSync, "step", lambda self, *_: self.replay_buffer.sample(1, "train", BATCH))
    for outcome, cause in (
        (LOST, "the inference engine failed"),
        (ValueError("my own mistake"), "the reward compute_score of my_reward.py failed for 1 prompts"),
    ):
        buffer, queue = sampling([outcome])
        with pytest.raises(RuntimeError, match=rf"4 of 12 samples of step 7 were lost because {cause}.*max_lost_share"):
            trainer_for(buffer, groups=BATCH).step({}, {})
        assert queue.asked == BATCH, "an engine that is gone is not asked again and again"
