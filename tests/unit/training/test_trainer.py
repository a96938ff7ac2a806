"""What the trainer logs of a step and of a validation, and which errors it leaves alone."""

from math import isfinite
from types import SimpleNamespace

import pytest
from support.queue import metrics_of
from support.runs import write_metrics
from support.stages import config_of, save
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from recipe.settings import compose
from recipe.stage.end import note_target
from recipe.stage.state import look
from recipe.training import trainer as module


def test_without_validation_data_verl_makes_its_data_set_of_the_training_rows(monkeypatch, trainer_for):
    seen = []
    monkeypatch.setattr(PPOTrainer, "_init_dataloader", lambda self: seen.append(self.config.data.val_files))
    trainer = trainer_for(SimpleNamespace(failure_keys={"train": set()}), groups=1)
    trainer.config.data.update({"train_files": ["a"], "val_files": []})
    trainer.total_training_steps = 1
    trainer._init_dataloader()
    assert seen == [["a"]]


def test_a_start_validates_first_what_a_killed_one_has_saved_and_not_validated(tmp_path, monkeypatch):
    monkeypatch.setattr(PPOTrainer, "_validate", lambda self: {"val_dev/score": 0.5})
    monkeypatch.setattr(PPOTrainer, "fit", lambda self, _: self._validate())
    cases = [(1, 9, {}, False), (2, 9, {}, True), (2, 9, {"val/acc": 1.0}, False), (3, 3, {"train/acc": 1.0}, True)]
    for number, (done, last, logged, owed) in enumerate(cases):
        run, off = tmp_path / str(number), {"val_before_train": False, "val_only": False}
        config = config_of(run, stage__handover="best", trainer__test_freq=2)
        config.trainer.update(off)
        write_metrics(run, "stage", "1.jsonl", [(1, {"val/acc": 1.0}), (done, logged)])
        save(config, done)
        note_target(config, last, 9, "a gate")
        trainer = module.CurriculumTrainer.__new__(module.CurriculumTrainer)
        trainer.config, trainer.global_steps, trainer.total_training_steps, trainer.steps_per_epoch = config, done, 9, 1
        trainer.fit(None)
        found, asked = look(run / "stage"), config.trainer
        assert (asked.val_before_train, asked.val_only, found.target.total_steps) == (owed, done == last, last)
        assert (found.best and found.best.step) == (done if owed else None)


def test_faults_of_model_environment_and_engine_are_counted_apart(trainer_for):
    extra = [
        {"reward_extra_info": {"stop/format_errors": 1.0}, "engine_faults": 0, "user_faults": 0},
        {"reward_extra_info": {"stop/format_errors": 0.0}, "engine_faults": 2, "user_faults": 1},
    ]
    trainer = trainer_for(SimpleNamespace(failure_keys={"train": {"a"}}), groups=1)
    metrics = metrics_of(trainer, ["a_0_0", "a_1_0"], extra=extra)
    names = ("stop/format_errors", "bfcl/base/stop/format_errors")
    names += ("lost_samples", "failed_rewards", "engine_faults", "user_faults")
    assert [metrics[f"train/{name}"] for name in names] == [0.5, 1, 0.5, 1, 1, 0.5]


@pytest.fixture
def step_of(monkeypatch, trainer_for):
    """Gives a trainer the keys of a step's samples; returns those that go on, those deleted, and the trainer."""

    def take(keys, **settings):
        cleared = []
        monkeypatch.setattr(module.tq, "kv_clear", lambda keys, partition_id: cleared.extend(keys))
        monkeypatch.setattr(PPOTrainerSync, "_balance_batch", lambda self, batch, *_, **__: batch)
        trainer = trainer_for(SimpleNamespace(failure_keys={"train": set()}), **settings)
        batch = KVBatchMeta(partition_id="train", keys=keys, tags=[{"seq_len": place} for place in range(len(keys))])
        return trainer._balance_batch(batch, {}), cleared, trainer

    return take


GROUPS = ["a_0_0", "a_1_0", "a_2_0", "a_3_0", "b_c_2_0", "d_0_0", "d_1_0", "d_3_0", "e_1_0", "e_1_1"]
"""Of four rollouts each: all of a, one of b_c, three of d, and one of e which has two outputs."""


def test_a_rollout_whose_siblings_were_all_lost_is_left_out_and_counted(step_of):
    batch, cleared, trainer = step_of(GROUPS, groups=4, max_lost_share=0.6)
    assert batch.keys == [key for key in GROUPS if key[0] in "ad"]
    assert [tag["seq_len"] for tag in batch.tags] == [0, 1, 2, 3, 5, 6, 7]
    assert (sorted(cleared), trainer.lone_samples) == (["b_c_2_0", "e_1_0", "e_1_1"], 3)


def test_rollouts_that_are_left_alone_count_against_the_limit_but_are_no_fault(step_of):
    keys = ["a_0_0", "a_1_0", "a_2_0", "b_0_0", "b_1_0", "b_2_0", "c_3_0"]
    with pytest.raises(RuntimeError, match="5 of 12 samples of step 7 .* 1 more are alone .*max_lost_share=0.45"):
        step_of(keys, groups=3, max_lost_share=0.45)
    batch, _, trainer = step_of(keys, groups=3, max_lost_share=0.5)
    scores = [[0.0, 1.0], [0.5, 0.5], [1.0, 0.0], [0.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    metrics = metrics_of(trainer, batch.keys, scores)
    assert metrics["train/groups_alike"] == 0.5, "a, of a and b: what counts is an episode's sum"
    assert metrics["train/lost_samples"] == pytest.approx(5 / 12)
    assert metrics["train/lone_samples"] == 1


def test_the_engine_is_told_whether_an_update_begins_with_the_policy_that_played(monkeypatch):
    monkeypatch.setattr(PPOTrainer, "_update_actor", lambda self, batch, metrics: batch)
    trainer = object.__new__(module.CurriculumTrainer)
    for epochs in (1, 2):
        trainer.config = compose("stage2", ["hardware=tiny", f"actor_rollout_ref.actor.ppo_epochs={epochs}"])
        batch = trainer._update_actor(KVBatchMeta(partition_id="train", keys=[], tags=[]), {})
        assert batch.extra_info["on_policy"] is (epochs == 1)


def test_validation_is_logged_over_all_categories_and_lost_samples_too(trainer_for):
    trainer = trainer_for(SimpleNamespace(failure_keys={"train": set()}), groups=1)
    infos = {"reward": [1.0, 0.0], "acc": [1.0, 0.0], "stop/completed": [1.0, 1.0], "part": ["dev", "test"]}
    sources, expected = ["bfcl/base", "bfcl/miss_func"], {("bfcl/base", "a"): 1, ("bfcl/miss_func", "b"): 1}
    expected["bfcl/base", "c"] = 1
    metrics = trainer._val_metrics_update(sources, ["a", "b"], infos, [3, 5], expected_acc_counts=expected)
    assert (metrics["val/acc"], metrics["val/stop/completed"]) == (0.5, 1.0)
    assert (metrics["val_dev/acc"], metrics["val_test/acc"]) == (1.0, 0.0)
    assert metrics["val/lost_samples"] == pytest.approx(1 / 3)
    assert all(map(isfinite, metrics.values())), "loggers take numbers only"
