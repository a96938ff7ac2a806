"""What the trainer logs of a step and of a validation, and which errors it leaves alone."""

import logging
from math import isfinite
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from support.queue import metrics_of
from support.runs import write_metrics
from support.stages import config_of, save
from tensordict import NonTensorStack, TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from recipe.settings import compose
from recipe.stage.end import note_target
from recipe.stage.metrics_log import trained_files
from recipe.stage.state import QUEUE_FILE, look
from recipe.training import async_trainer
from recipe.training import trainer as module

NO_FAILURES = SimpleNamespace(failure_keys={"train": set()})


def test_without_validation_data_verls_data_set_has_the_training_rows_and_no_step_is_refused(monkeypatch, trainer_for):
    seen = []
    monkeypatch.setattr(PPOTrainer, "_init_dataloader", lambda self: seen.append(self.config.data.val_files))
    trainer = trainer_for(NO_FAILURES, groups=1)
    trainer.total_training_steps, trainer.train_dataset = 1, ["a"]
    for files in ([], ["b"]):
        trainer.config.data.update({"train_files": ["a"], "val_files": files})
        trainer._init_dataloader()
    assert seen == [["a"], ["b"]] and trainer.resampler is None
    trainer.config.stage.resample.pool, trainer.tokenizer, trainer.processor = "spare.parquet", None, None
    monkeypatch.setattr(module, "resampled", lambda *_, **__: SimpleNamespace(sampler="notes progress"))
    trainer.train_dataloader = None
    trainer._init_dataloader()
    assert trainer.resampler == trainer.train_dataloader.sampler == "notes progress"
    trainer.total_training_steps = 0
    with pytest.raises(ValueError, match="1 rows pass verl's length filter"):
        trainer._init_dataloader()


def test_a_start_validates_first_what_a_killed_one_has_saved_and_not_validated(tmp_path, monkeypatch):
    monkeypatch.setattr(PPOTrainer, "_validate", lambda self: {"val_dev/score": 0.5})
    monkeypatch.setattr(PPOTrainer, "fit", lambda self, _: self._validate())
    known, other = {"val/acc": 1.0}, {"train/acc": 1.0}
    cases = [(1, 9, {}, 2, False, False, 9), (2, 9, {}, 2, True, False, 9), (2, 9, {}, -1, False, False, 9)]
    cases += [(2, 9, known, 2, False, False, 9), (3, 3, other, 2, True, True, 3)]
    cases += [(12, 20, known, 2, False, True, 9)]  # fewer epochs than before
    for number, (done, noted, logged, every, owed, over, last) in enumerate(cases):
        run, epochs = tmp_path / str(number), {"trainer__total_epochs": 3, "trainer__test_freq": every}
        config = config_of(run, stage__handover="best", **epochs)
        config.trainer.update({"val_before_train": False, "val_only": False})
        write_metrics(run, "stage", "1.jsonl", [(1, known), (done, logged)])
        save(config, done)
        note_target(config, noted, 9, "a gate")
        trainer = module.CurriculumTrainer.__new__(module.CurriculumTrainer)
        trainer.config, trainer.global_steps = config, done
        trainer.total_training_steps, trainer.steps_per_epoch = ((9, 4), (12, 3))[number % 2]  # the smaller one counts
        trainer.fit(None)
        found, asked = look(run / "stage"), config.trainer
        assert (asked.val_before_train, asked.val_only, found.target.total_steps) == (owed, over, last), number
        assert (found.best and found.best.step) == (done if owed else None)


def test_faults_of_model_environment_and_engine_are_counted_apart(trainer_for):
    one = {"reward_extra_info": {"stop/format_errors": 1.0}, "engine_faults": 0, "user_faults": 0}
    other = {"reward_extra_info": {"stop/format_errors": 0.0, "why": "a text"}, "engine_faults": 2, "user_faults": 1}
    other["seconds"] = {"reward": 2.0}
    trainer = trainer_for(SimpleNamespace(failure_keys={"train": {"a"}}), groups=2)
    metrics = metrics_of(trainer, ["a_0_0", "a_1_0"], extra=[one, other])
    expected = {"stop/format_errors": 0.5, "bfcl/base/stop/format_errors": 1, "lost_samples": 0.75}
    expected |= {"failed_rewards": 0.5, "engine_faults": 1, "user_faults": 0.5, "tool_faults": 0, "seconds/reward": 2}
    expected |= {"groups_alike": 1, "bfcl/miss_func/stop/format_errors": 0, "lone_samples": 0}
    assert metrics == {f"train/{name}": value for name, value in expected.items()}
    assert "train/groups_alike" not in metrics_of(trainer, ["a_0_0"]), "one alone is no group"


def test_a_step_of_which_nothing_came_back_says_why_and_another_error_stays(trainer_for, monkeypatch):
    for error, said in (
        ("terminal groups with no materializable trajectories", "4 of 4 samples .* failed for 2 prompts; 0 more"),
        ("something else", "^something else$"),
    ):
        monkeypatch.setattr(PPOTrainerSync, "step", Mock(side_effect=RuntimeError(error)))
        with pytest.raises(RuntimeError, match=said):
            trainer_for(SimpleNamespace(failure_keys={"train": {"a", "b"}}), groups=1).step({}, {})


def test_progress_is_noted_each_step_and_logged_where_an_epoch_or_the_stage_ends(trainer_for, monkeypatch, capsys):
    batch = KVBatchMeta(partition_id="train", keys=[*"abc", "pad"], tags=[{}] * 3 + [{"is_padding": True}])
    tasks = [{"environment": name, "task_id": "a"} for name in ("bfcl", "generated", "bfcl")]
    progress = [{"reward_extra_info": {"progress": value}} for value in (0.5, 1.0, 0.0)]
    data = {"extra_info": NonTensorStack(*tasks), "extra_fields": NonTensorStack(*progress)}  # as TransferQueue has it
    monkeypatch.setattr(module.tq, "kv_batch_get", lambda keys, **_: TensorDict(data, batch_size=len(keys)))
    monkeypatch.setattr(PPOTrainerSync, "step", lambda *_: batch)
    monkeypatch.setattr(PPOTrainer, "_compute_metrics", lambda *_: None)
    monkeypatch.setattr(module.Curriculum, "_reward_metrics", lambda *_: {})
    trainer, logged = trainer_for(NO_FAILURES, groups=1), []
    trainer.alarms, trainer.stage_end = (lambda metrics: ["ALARM"]), lambda step, metrics: 7 if step < 4 else 5
    trainer.resampler = module.Resampler(["a", "generated/a"], ["bfcl/base"] * 2, 2, {"keep": [0.2, 0.8]}, 1, True)
    trainer.steps_per_epoch, trainer.total_training_steps = 3, 7
    for step in range(1, 6):
        assert trainer.step({}, {}) is batch and trainer.resampler.progress == {"a": 0.25, "generated/a": 1}
        trainer._compute_metrics(batch, metrics := {}, {}, step, 0)
        logged.append(metrics.get("resample/edge"))
        assert capsys.readouterr().out == f"ALARM (step {step})\n"
    assert logged == [None, None, 1.0, None, 1.0]
    trainer.resampler = None
    trainer._compute_metrics(trainer.step({}, {}), metrics := {}, {}, 6, 0)
    assert metrics == {}


def test_a_resumed_asynchronous_stage_forgets_its_last_batch_and_keeps_what_is_in_play(tmp_path, monkeypatch):
    prompt, cleared = {"is_prompt": True}, list[str]()
    tags = {"a": prompt, "a_0_0": {}, "b_0_0": {}, "b_1_0": {}, "c_d": prompt, "c_d_1_0": {}}
    listed = [{"train": tags}, {"train": {"a": prompt}}, {}, None]
    clear = {"kv_list": lambda partition: listed.pop(0), "kv_clear": lambda keys, partition_id: cleared.extend(keys)}
    monkeypatch.setattr(async_trainer, "tq", SimpleNamespace(**clear))
    monkeypatch.setattr(PPOTrainer, "_load_checkpoint", lambda self: None)
    trainer = async_trainer.AsyncTrainer.__new__(async_trainer.AsyncTrainer)
    trainer.config = config_of(tmp_path, actor_rollout_ref__rollout={"n": 8})
    trainer.global_steps = 3
    while listed:
        trainer._load_checkpoint()
    assert cleared == ["b_0_0", "b_1_0"]
    notes = Path(trainer.config.trainer.default_local_dir) / "global_step_3" / QUEUE_FILE
    monkeypatch.setattr(PPOTrainer, "_save_checkpoint", lambda self: cleared.append(notes.read_text()))
    trainer._save_checkpoint()
    trainer._save_checkpoint()
    assert cleared[2:] == ['{"rollouts": 8}'] * 2, "before verl calls the checkpoint whole"
    monkeypatch.setattr(module.Curriculum, "_compute_metrics", lambda *_: None)
    batch = KVBatchMeta(partition_id="train", keys=["a_0_0"], tags=[{"global_steps": 2}])
    trainer._compute_metrics(batch, {}, {}, 4, 0)
    stage = tmp_path / "stage"
    assert trained_files(stage, 4) == {stage / "rollouts" / "train" / "000002.jsonl": {"a"}}
    async_trainer.Unflushed(logging.getLogger()).warning("verl's argument is taken away", flush=True, stacklevel=1)


def test_a_rollout_without_siblings_is_left_out_where_groups_are_compared_and_counts_as_lost(monkeypatch, trainer_for):
    def step_of(keys, estimator="mine", grouped=True, **settings):
        """What goes on of a step with these keys, what is deleted, and the trainer."""
        cleared = []
        monkeypatch.setattr(module.tq, "kv_clear", lambda keys, partition_id: cleared.extend(keys))
        monkeypatch.setattr(PPOTrainerSync, "_balance_batch", lambda self, batch, *_, **__: batch)
        trainer = trainer_for(NO_FAILURES, **settings)
        trainer.config.algorithm = {"adv_estimator": estimator, "credit": {"grouped": grouped}}
        batch = KVBatchMeta(partition_id="train", keys=keys, tags=[{"seq_len": place} for place in range(len(keys))])
        return trainer._balance_batch(batch, {}), cleared, trainer

    # of four rollouts each: all of a, one of b_c, three of d_x, one of e which has two outputs, and two of f
    keys = ["a_0_0", "a_1_0", "a_2_0", "a_3_0", "b_c_2_0", "d_x_0_0", "d_x_1_0", "d_x_3_0", "e_1_0", "e_1_1"]
    keys += ["f_0_0", "f_3_0"]
    for estimator, grouped in (("mine", True), ("grpo", None)):
        batch, cleared, trainer = step_of(keys, estimator, grouped, groups=5, max_lost_share=0.6)
        assert batch.keys == [key for key in keys if key[0] in "adf"]
        assert [tag["seq_len"] for tag in batch.tags] == [0, 1, 2, 3, 5, 6, 7, 10, 11]
        assert (sorted(cleared), trainer.lone_samples) == (["b_c_2_0", "e_1_0", "e_1_1"], 3)
    for estimator, grouped in (("mine", False), ("gae_bad", None)):
        batch, cleared, trainer = step_of(keys, estimator, grouped, groups=5, max_lost_share=0.6)
        assert (batch.keys, cleared, trainer.lone_samples) == (keys, [], 0)
    with pytest.raises(RuntimeError, match="3 of 4 samples of step 7 .* 1 more are alone"):
        step_of(["a_0_0"], groups=1, max_lost_share=1.0)
    keys = ["a_0_0", "a_1_0", "a_2_0", "b_0_0", "b_1_0", "b_2_0", "c_3_0"]
    with pytest.raises(RuntimeError, match="5 of 12 samples of step 7 .* 1 more are alone .*max_lost_share=0.45"):
        step_of(keys, groups=3, max_lost_share=0.45)
    batch, _, trainer = step_of(keys, groups=3, max_lost_share=0.5)
    scores = [[0.0, 1.0], [0.5, 0.500002], [1.0, 0.0], [0.0, 0.0], [0.0, 0.00003], [0.0, 0.0]]
    metrics = metrics_of(trainer, batch.keys, scores)
    assert metrics["train/groups_alike"] == 0.5, "a, of a and b: what counts is an episode's sum, to five digits"
    assert metrics["train/lost_samples"] == pytest.approx(5 / 12)
    assert metrics["train/lone_samples"] == 1


def test_the_engine_is_told_whether_an_update_begins_with_the_policy_that_played(monkeypatch):
    monkeypatch.setattr(PPOTrainer, "_update_actor", lambda self, batch, metrics: batch)
    trainer, stored = object.__new__(module.CurriculumTrainer), "offline.files=rollouts"
    others = [["actor_rollout_ref.actor.ppo_epochs=2"], ["actor_rollout_ref.actor.ppo_mini_batch_size=2"], [stored]]
    others.append(["algorithm.rollout_correction.bypass_mode=true"])
    whole = ["actor_rollout_ref.actor.ppo_mini_batch_size=64"]  # more than a batch: one update
    for given in ([], whole, [stored, "offline.old_log_probs=step"], *others):
        trainer.config = compose("stage2", ["hardware=tiny", *given])
        batch = trainer._update_actor(KVBatchMeta(partition_id="train", keys=[], tags=[]), {})
        assert batch.extra_info["on_policy"] is (given not in others), given


def test_validation_is_logged_over_all_categories_and_lost_samples_too(trainer_for):
    trainer = trainer_for(NO_FAILURES, groups=1)
    infos = {"reward": [1.0, 0.0], "acc": [1.0, 0.0], "stop/completed": [1.0, 1.0], "part": ["dev", "test"]}
    sources, expected = ["bfcl/base", "bfcl/miss_func"], {("bfcl/base", "a"): 1, ("bfcl/miss_func", "b"): 1}
    expected["bfcl/base", "c"] = 1
    metrics = trainer._val_metrics_update(sources, ["a", "b"], infos, [3, 5], expected_acc_counts=expected)
    assert (metrics["val/acc"], metrics["val/stop/completed"]) == (0.5, 1.0)
    assert (metrics["val_dev/acc"], metrics["val_test/acc"]) == (1.0, 0.0)
    assert metrics["val/lost_samples"] == pytest.approx(1 / 3)
    assert all(map(isfinite, metrics.values())), "loggers take numbers only"
