"""What the trainer logs of a step and of a validation, and which errors it leaves alone."""

from math import isfinite
from types import SimpleNamespace

import pytest
from transfer_queue import KVBatchMeta

from bfcl_env import choose_indices, report_indices


def test_another_error_of_a_step_is_left_as_it_is(monkeypatch, trainer_for):
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

    def step(self, metrics, timing_raw):
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(PPOTrainerSync, "step", step)
    with pytest.raises(RuntimeError, match="^CUDA out of memory$"):
        trainer_for(SimpleNamespace(failure_keys={"train": set()}), groups=1).step({}, {})


def test_faults_of_model_environment_and_engine_are_counted_apart(monkeypatch, trainer_for):
    from recipe import trainer as module

    infos = [
        {"stop/format_errors": 1.0, "stop/environment_error": 0.0},
        {"stop/format_errors": 0.0, "stop/environment_error": 1.0},
    ]
    fields = {
        "data_source": SimpleNamespace(tolist=lambda: ["bfcl/base", "bfcl/miss_func"]),
        "extra_fields": SimpleNamespace(
            tolist=lambda: [{"reward_extra_info": info, "engine_faults": 2 * place} for place, info in enumerate(infos)]
        ),
    }
    monkeypatch.setattr(module.tq, "kv_batch_get", lambda **_: dict(fields))
    trainer = trainer_for(SimpleNamespace(failure_keys={"train": {"a"}}), groups=1)
    batch = KVBatchMeta(partition_id="train", keys=["a_0_0", "a_1_0", "pad"], tags=[{}, {}, {"is_padding": True}])
    metrics = trainer._reward_metrics(batch)
    assert metrics["train/stop/format_errors"] == metrics["train/stop/environment_error"] == 0.5
    assert metrics["train/bfcl/base/stop/format_errors"] == 1.0
    assert (metrics["train/lost_samples"], metrics["train/failed_rewards"], metrics["train/engine_faults"]) == (
        0.5,
        1,
        1,
    )


def test_validation_is_logged_over_all_categories_and_lost_samples_too(trainer_for):
    trainer = trainer_for(SimpleNamespace(failure_keys={"train": set()}), groups=1)
    tasks = [f"multi_turn_base_{choose_indices()[0]}", f"multi_turn_miss_func_{report_indices()[0]}"]
    infos = {"reward": [1.0, 0.0], "acc": [1.0, 0.0], "stop/completed": [1.0, 1.0], "scenario_id": tasks}
    metrics = trainer._val_metrics_update(
        ["bfcl/base", "bfcl/miss_func"],
        ["a", "b"],
        infos,
        [3, 5],
        expected_acc_counts={("bfcl/base", "a"): 1, ("bfcl/miss_func", "b"): 1, ("bfcl/base", "c"): 1},
    )
    assert (metrics["val/acc"], metrics["val/stop/completed"]) == (0.5, 1.0)
    assert (metrics["val_choose/acc"], metrics["val_report/acc"]) == (1.0, 0.0)
    assert metrics["val/lost_samples"] == pytest.approx(1 / 3)
    assert all(map(isfinite, metrics.values())), "loggers take numbers only"
    assert metrics["val-aux/bfcl/miss_func/stop/completed/mean@1"] == 1.0
