"""Sampling ends: with a full batch of groups that can be trained on, or with a message.

verl's buffers run as they are, over a dictionary in place of TransferQueue; groups finish one at a look.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from support.queue import PartlyFailed, Queue, metrics_of
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from recipe.training.async_trainer import AsyncTrainer
from recipe.training.sampling import AsyncSampling, DynamicSampling, GroupsAlike, GroupsLost
from recipe.training.trainer import CurriculumTrainer

N, BATCH = 4, 2
SOLVED, FAILED, MIXED = [1.0] * N, [0.0] * N, [1.0, 0.0, 0.0, 1.0]
LOST, LONE, RAISED = list[float](), [1.0], ValueError("the reward raised")
NOTHING = OmegaConf.create({})


def make(patch, *outcomes, limit=5, lost=0.25, old=""):
    """A buffer whose groups have these `outcomes`; `old`: what an asynchronous trainer does with old groups."""
    queue, batch = Queue(outcomes), BATCH
    patch.setattr("verl.trainer.ppo.v1.replay_buffer.tq", queue)
    stage = {"max_gen_batches": limit, "max_lost_share": lost}
    config = OmegaConf.create({"stage": stage, "data": {"train_batch_size": BATCH}})
    if old:
        verls = ReplayBufferAsync("colocate_async", NOTHING, 4, old, NOTHING, 0.0, queue.play)
        trainer, batch = AsyncTrainer.__new__(AsyncTrainer), 2 * BATCH
    else:
        sizes = {"train_batch_size": BATCH, "gen_batch_size": 1}
        verls = ReplayBuffer("sync", NOTHING, None, "drop", NOTHING, 0.0, queue.play, "acc", **sizes)
        trainer = CurriculumTrainer.__new__(CurriculumTrainer)
    patch.setattr(PPOTrainer, "_build_replay_buffer", lambda _: verls)
    trainer.config = config
    buffer = trainer._build_replay_buffer()
    queue.play(batch)
    return buffer, queue


def uids(batch):
    return {key.split("_")[0] for key in batch.keys}


KINDS = [SOLVED, FAILED, MIXED, LONE, LOST, PartlyFailed(SOLVED[1:]), PartlyFailed(MIXED[1:])]


@given(outcomes=st.lists(st.sampled_from(KINDS), min_size=1, max_size=30), limit=st.integers(2, 6))
@settings(deadline=None, max_examples=50)
def test_whatever_the_groups_are_a_step_is_full_or_ends(outcomes, limit):
    with pytest.MonkeyPatch.context() as patch:
        buffer, queue = make(patch, *outcomes, limit=limit, lost=1.0)
        try:
            batch, _ = buffer.sample(1, "train", BATCH)
        except GroupsAlike:
            assert queue.asked == limit * BATCH
        else:
            values = [{queue.values[key] for key in batch.keys if key.startswith(f"{uid}_")} for uid in uids(batch)]
            assert len(values) == BATCH and all(len(group) > 1 for group in values), "groups that differ"
            assert not queue.tags["train"].keys() - {*batch.keys}, "what is not trained on must not stay in the queue"
        assert buffer.played == queue.asked <= limit * BATCH
        assert buffer.alike.total() + buffer.lost <= buffer.played


def test_a_group_of_which_at_most_one_rollout_came_back_is_played_again_and_counted_as_lost(trainer_for, monkeypatch):
    monkeypatch.setattr(PPOTrainerSync, "_balance_batch", lambda self, batch, *_, **__: batch)
    monkeypatch.setattr(PPOTrainerSync, "on_sample_end", lambda self: None)
    for outcome, alone, failed in ((LOST, 0, 0), (LONE, 1, 0), (RAISED, 0, 1), (PartlyFailed(LONE), 1, 1)):
        buffer, queue = make(monkeypatch, outcome, SOLVED, *[MIXED] * 9, lost=1 / 3)
        batch, _ = buffer.sample(1, "train", BATCH)
        queue.tags["val"] = {"v": {"is_prompt": True, "status": "finished", "global_steps": 1}, "v_0_0": {}}
        assert buffer.sample(2, "val", 1)[0].keys == ["v_0_0"], "one rollout is enough where nothing is compared"
        assert uids(batch) <= {"u2", "u3", "u4"} and (buffer.lost, buffer.lone, buffer.alike.total()) == (1, alone, 1)
        trainer = trainer_for(buffer, groups=BATCH, max_lost_share=0.5)
        trainer.on_sample_end()
        assert trainer.failed_prompts == failed
        logged = metrics_of(trainer, trainer._balance_batch(batch, {}).keys)
        assert logged["train/lost_samples"] == pytest.approx((N - alone) / (N * (BATCH + 1)))
        assert (logged["train/lone_samples"], logged["train/failed_rewards"]) == (alone, failed / (BATCH + 1))
        assert (logged["train/played_groups"], logged["train/filtered_groups"]) == (buffer.played, 1 / buffer.played)


def test_more_lost_groups_than_allowed_stop_the_training_and_say_why(trainer_for, monkeypatch):
    monkeypatch.setattr(PPOTrainerSync, "step", lambda self, *_: self.replay_buffer.sample(1, "train", BATCH))
    for outcome, cause in ((LOST, "the inference engine failed"), (RAISED, "the reward .* failed for 1 prompts")):
        buffer, queue = make(monkeypatch, outcome)
        with pytest.raises(RuntimeError, match=rf"4 of 12 samples of step 7 were lost because {cause}.*max_lost_share"):
            trainer_for(buffer, groups=BATCH).step({}, {})
        assert queue.asked == BATCH, "an engine that is gone is not asked again and again"
    alike = ([value / 8] * N for value in range(7))
    with pytest.raises(GroupsAlike, match="only 1 of the 2 groups") as error:
        make(monkeypatch, PartlyFailed(MIXED[1:]), *alike, limit=4)[0].sample(1, "train", BATCH)
    assert str(error.value).count(" at 0") == 5, "the most frequent values"


def test_a_group_in_which_the_reward_raised_is_trained_on_while_two_of_its_episodes_came_back(trainer_for, monkeypatch):
    monkeypatch.setattr(PPOTrainerSync, "on_sample_end", lambda self: None)
    one, two = PartlyFailed([1.0]), PartlyFailed([1.0, 0.0])
    for outcomes, size, counts in (([RAISED], BATCH * N, (1, 1, 0)), ([one, two], N + 2, (1, 2, 1))):
        buffer, _ = make(monkeypatch, *outcomes, *[MIXED] * 30, lost=0.4, old="wait")
        batch, _ = buffer.sample(1, "train", BATCH)
        assert len(batch.keys) == size and (buffer.lost, buffer.failed, buffer.lone) == counts
        trainer = trainer_for(buffer, groups=BATCH)
        trainer.on_sample_end()
        assert trainer.failed_prompts == buffer.failed, "no other step's"
        buffer.sample(2, "train", BATCH)
        assert buffer.lost == 0, "forgotten in the next step"
    own = type("Own", (ReplayBufferAsync,), {})("colocate_async", NOTHING, 4, "wait", NOTHING)
    unfiltered = ReplayBuffer("sync", NOTHING, None, "drop", NOTHING)
    assert AsyncSampling.instead_of(own, NOTHING) is own, "a buffer of one's own stays"
    assert DynamicSampling.instead_of(unfiltered, NOTHING) is unfiltered
    for step in (3, 4):  # with hybrid_rollout.enable_switch verl's trainer looks, waits, looks and samples
        buffer, _ = make(monkeypatch, *[one] * (step == 3), *[MIXED] * 30, lost=0.4, old="wait")
        assert [buffer.get_sampleable_count(step, "train") for _ in range(3)][0] == (step == 4)
        buffer.wait_for_sampleable(step, "train", BATCH)
        buffer.get_sampleable_count(step, "train")
        buffer.sample(step, "train", BATCH)
        buffer.get_sampleable_count(step + 1, "train")
        assert (buffer.lost, buffer.lone) == ((1, 1) if step == 3 else (0, 0))
    with pytest.raises(GroupsLost):
        make(monkeypatch, RAISED, lost=0.25, old="wait")[0].sample(1, "train", BATCH)


def test_with_drop_a_group_that_is_too_old_goes_whether_or_not_the_reward_raised_in_it(monkeypatch):
    buffer, queue = make(monkeypatch, PartlyFailed([1.0, 0.0]), *[MIXED] * 30, old="drop")
    while any(tag["status"] == "running" for tag in queue.tags["train"].values()):
        queue.kv_list()
    queue.play(BATCH)
    new = {f"u{number}" for number in range(2 * BATCH, 3 * BATCH)}
    for uid in new:
        queue.tags["train"][uid]["global_steps"] = 5
    batch, _ = buffer.sample(5, "train", BATCH)
    assert uids(batch) == new
