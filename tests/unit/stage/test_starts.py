"""Which start the checkpoints are of, what starting over leaves in peace, and what a start sets for programs."""

import json
import os
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from support.stages import config_of, save

from recipe.files import PreflightError
from recipe.report.tables import stage_dirs
from recipe.stage import choosing, end, starts, state
from recipe.stage.metrics_log import read_steps
from recipe.stage.weights import note_sums


def note(config, **rows):
    """What `write_start` notes of a start."""
    state.update(Path(config.paths.stage), began=replace(starts.start_of(config), **rows), done=None)


def of_model(folder, model="/b", mode="auto", **changes):
    return config_of(folder, actor_rollout_ref__model__path=model, trainer__resume_mode=mode, **changes)


@pytest.fixture
def finished(tmp_path):
    """A stage of model /a with all that a stage leaves."""
    config = config_of(tmp_path)
    note(config)
    end.note_target(config, 12, 12)
    save(config, 12)
    for name in ("metrics/1.jsonl", "rollouts/train/000001.jsonl", "hf/config.json", "best/global_step_3/hf/x"):
        path = tmp_path / "stage" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    return config


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_starting_over_sets_everything_aside_loses_nothing_and_is_not_undone_by_a_kill(finished, tmp_path):
    before = tree(tmp_path / "stage")
    over = of_model(tmp_path, mode="disable")
    starts.check_same_start(over)
    assert end.at_target(finished) and not end.at_target(over)
    (said,) = starts.start_over(over)
    assert f"is set aside in {tmp_path}/aside/stage" in said
    assert stage_dirs(tmp_path) == [] and choosing.of_run(tmp_path) == []
    assert stage_dirs(tmp_path / "aside") == [tmp_path / "aside" / "stage"]
    note(over)
    assert tree(tmp_path / "aside" / "stage") == before
    assert tree(tmp_path / "stage").keys() == {state.FILE}
    again = of_model(tmp_path)  # after a kill before the first save
    starts.check_same_start(again)
    assert not state.resumes(again) and not end.at_target(again)
    assert end.read_done(tmp_path / "stage") is None and starts.start_over(again) == []
    save(over, 1)
    starts.start_over(of_model(tmp_path, "/c", "disable"))
    models = [state.look(tmp_path / "aside" / name).began for name in ("stage", "stage.2")]
    assert [start and start.model for start in models] == ["/a", "/b"]


def test_a_folder_of_checkpoints_elsewhere_keeps_what_is_not_ours_and_a_link_to_a_disk_is_set_aside(tmp_path):
    disk = tmp_path / "disk"
    config = config_of(tmp_path, trainer__default_local_dir=str(disk))
    note(config)
    save(config, 5)
    (disk / "notes.txt").write_text("mine")
    (disk / "global_step_5.bak").mkdir()
    over = of_model(tmp_path, mode="disable", trainer__default_local_dir=str(disk))
    assert f"set aside in {disk}/aside/stage" in starts.start_over(over)[0]
    assert sorted(path.name for path in disk.iterdir()) == ["aside", "global_step_5.bak", "notes.txt"]
    assert sorted(path.name for path in (disk / "aside" / "stage").iterdir()) == ["global_step_5", state.TRACKER]
    over = of_model(tmp_path / "other", mode="disable")
    (link := Path(over.trainer.default_local_dir)).parent.mkdir(parents=True)
    link.symlink_to(disk)
    save(over, 5)
    assert len(starts.start_over(over)) == 1
    assert [*state.step_folders(tmp_path / "other" / "aside" / "stage" / "checkpoints")] == [5] and not link.exists()


def test_a_start_model_is_known_by_its_weights_and_without_them_by_its_place(finished, tmp_path):
    models = [tmp_path / name / "hf" for name in ("old", "new", "other")]
    for model, content in zip(models, (b"one", b"one", b"two"), strict=True):
        model.mkdir(parents=True)
        (model / "model.safetensors").write_bytes(content)
    old, moved, other = (of_model(tmp_path, str(model)) for model in models)
    (tmp_path / "link").symlink_to(models[0])
    note(old)  # it names no weights
    for same in (old, of_model(tmp_path, str(tmp_path / "link"))):
        assert starts.check_same_start(same) is starts.other_start(same) is None
    adapted = of_model(tmp_path, str(models[0]), actor_rollout_ref__model__lora_adapter_path=str(models[2]))
    with pytest.raises(PreflightError, match="another start: adapter=None, not "):
        starts.check_same_start(adapted)
    assert "trained from another adapter" in str(starts.other_start(adapted))
    for model in models:
        note_sums(model)
    note(old)
    assert starts.check_same_start(moved) is starts.other_start(moved) is None
    with pytest.raises(PreflightError, match="another start: model="):
        starts.check_same_start(other)
    assert "other/hf. Leave MODEL out to go on" in str(starts.other_start(other))
    moved.stage.previous = "old"
    assert starts.other_start(moved, first=False) is None
    (models[0] / "model.safetensors").write_bytes(b"two")  # trained anew under the same path
    note_sums(models[0])
    assert "another model than old hands on now" in str(starts.other_start(moved, first=False))
    with pytest.raises(PreflightError, match="another start: model="):
        starts.check_same_start(old)


def test_checkpoints_of_another_or_an_unknown_start_are_refused_before_anything_changes(finished, tmp_path):
    before = tree(tmp_path)
    with pytest.raises(PreflightError, match="checkpoints of another start: model=/a .*not /b .*resume_mode=disable"):
        starts.check_same_start(of_model(tmp_path))
    with pytest.raises(PreflightError, match="which trainer.resume_mode=disable sets aside"):
        starts.check_same_start(of_model(tmp_path, str(tmp_path / "stage" / "hf"), "disable"))
    assert tree(tmp_path) == before
    model, disk = "actor_rollout_ref__model", str(tmp_path / "disk")
    changes = {
        "processes=8, not 4": {"trainer__n_gpus_per_node": 4},
        "lora_rank=None, not 8; lora_alpha=None, not 8": {model: {"path": "/a", "lora_rank": 8, "lora_alpha": 8}},
        "checkpoints=None, not": {"trainer__default_local_dir": disk},
        "model=/a .*not Qwen/Qwen3-8B": {f"{model}__path": "Qwen/Qwen3-8B"},
    }
    save(config_of(tmp_path, trainer__default_local_dir=disk), 3)
    for said, change in changes.items():
        with pytest.raises(PreflightError, match=said):
            starts.check_same_start(config_of(tmp_path, **change))
            pytest.fail(said)
    starts.check_same_start(config_of(tmp_path, trainer__n_gpus_per_node=4, trainer__nnodes=2))
    for content in (b"", b"[]", b'{"began": 1}', b'{"began": {"model": "/a", "rows": -1}}'):
        (tmp_path / "stage" / state.FILE).write_bytes(content)
        with pytest.raises(PreflightError, match=r"unknown start.*state\.json.*resume_mode=disable"):
            starts.check_same_start(config_of(tmp_path))
    note(finished)
    save(finished, 11, noted=False)
    folder = tmp_path / "stage" / "checkpoints" / "global_step_12"  # with prompts in play
    (folder / state.QUEUE_FILE).write_text('{"rollouts": 8}')
    (folder / state.QUEUE_END).parent.mkdir()
    (folder / state.QUEUE_END).write_text("{}")
    for mode, rollouts, fine in (("colocate_async", 8, True), ("sync", 8, False), ("separate_async", 4, False)):
        config = config_of(tmp_path, trainer__v1={"trainer_mode": mode}, actor_rollout_ref__rollout={"n": rollouts})
        with nullcontext() if fine else pytest.raises(PreflightError, match="in groups of 8"):
            starts.check_same_start(config)


def test_a_saved_position_means_the_same_rows_only_among_the_same_rows(finished, tmp_path):
    note(finished, rows=3, digest="abc")
    starts.check_same_rows(finished, 3, "abc")
    with pytest.raises(PreflightError, match=r"other data \(3 rows, now 2\)"):
        starts.check_same_rows(finished, 2, "abd")
    starts.check_same_rows(config_of(tmp_path, trainer__resume_mode="disable"), 2, "abd")
    assert starts.other_start(finished) is None
    finished.data.train_files = "other.parquet"
    assert "rows.parquet" in str(starts.other_start(finished))


def test_what_programs_write_stays_in_the_stage_and_the_last_launch_wins(tmp_path, monkeypatch):
    found = {"WANDB_DIR": "http://mine"}
    monkeypatch.setattr(os, "environ", found)
    config = OmegaConf.create({"paths": {"stage": str(tmp_path)}, "launcher": {"env": {"A": "1"}}})
    for number, now in enumerate(("20261025-025900", "20261025-020100", "20261025-020100", "20261025-030000")):
        monkeypatch.setattr(time, "strftime", lambda _, now=now: now)  # the clock has gone back
        starts.set_environment(config, nodes=1)
        log = Path(found["VERL_FILE_LOGGER_PATH"])
        log.parent.mkdir(exist_ok=True)
        log.write_text(json.dumps({"step": 1, "data": {"launch": number}}) + "\n")
        assert read_steps(tmp_path) == {1: {"launch": number}}
    for name in ("TENSORBOARD_DIR", "TRACKIO_DIR", "MLFLOW_TRACKING_URI"):
        assert Path(found[name].removeprefix("sqlite:///")).is_relative_to(tmp_path), name
    assert (found["WANDB_DIR"], found["A"]) == ("http://mine", "1")
