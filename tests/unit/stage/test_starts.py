"""Which start the checkpoints are of, what starting over leaves in peace, and what a start sets for programs."""

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from recipe.files import PreflightError
from recipe.report.tables import stage_dirs
from recipe.stage import choosing, end, starts, state
from recipe.stage.metrics_log import read_steps
from recipe.stage.weights import note_sums


def note(config: DictConfig, **rows: Any) -> None:
    """What `write_start` notes of a start."""
    state.update(Path(config.paths.stage), began=replace(starts.start_of(config), **rows), done=None)


def config_of(tmp_path: Path, model: str = "/a", mode: str = "auto", **trainer: Any) -> DictConfig:
    return OmegaConf.create(
        {
            "paths": {"run": str(tmp_path), "stage": str(tmp_path / "stage")},
            "stage": {"name": "stage", "over_budget": "keep"},
            "data": {"train_files": "rows.parquet", "val_files": ["rows.parquet"], "train_batch_size": 4},
            "trainer": {
                "default_local_dir": str(tmp_path / "stage" / "checkpoints"),
                "resume_mode": mode,
                "max_actor_ckpt_to_keep": 2,
                "n_gpus_per_node": 8,
                "nnodes": 1,
                "total_epochs": 1,
                "total_training_steps": None,
                **trainer,
            },
            "actor_rollout_ref": {"model": {"path": model, "lora_rank": 0}},
        }
    )


def save(config: DictConfig, step: int) -> Path:
    """The names of what verl leaves; `test_recipe_curriculum_checkpoints` has whole ones."""
    folder = Path(config.trainer.default_local_dir) / f"global_step_{step}"
    (folder / "actor").mkdir(parents=True)
    (folder / "data.pt").write_text(str(step))
    (folder.parent / state.TRACKER).write_text(str(step))
    return folder


@pytest.fixture
def finished(tmp_path: Path) -> DictConfig:
    """A stage of model /a with all that a stage leaves."""
    config = config_of(tmp_path)
    note(config)
    save(config, 12)
    stage = Path(config.paths.stage)
    for name in ("metrics/1.jsonl", "rollouts/train/000001.jsonl", "hf/config.json", "best/global_step_3/hf/x"):
        (stage / name).parent.mkdir(parents=True, exist_ok=True)
        (stage / name).write_text("{}")
    return config


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_starting_over_sets_everything_aside_and_loses_nothing(finished, tmp_path):
    before = tree(tmp_path / "stage")
    over = config_of(tmp_path, "/b", "disable")
    starts.check_same_start(over)
    assert not end.at_target(over)
    (said,) = starts.start_over(over)
    assert "trainer.resume_mode=disable" in said and f"{tmp_path}/aside/stage" in said
    note(over)
    assert tree(tmp_path / "aside" / "stage") == before
    assert tree(tmp_path / "stage").keys() == {state.FILE}


def test_after_a_kill_before_the_first_save_the_old_checkpoints_are_not_found_again(finished, tmp_path):
    over = config_of(tmp_path, "/b", "disable")
    starts.start_over(over)
    note(over)
    again = config_of(tmp_path, "/b")
    starts.check_same_start(again)
    assert not state.resumes(again) and not end.at_target(again)
    assert end.read_done(tmp_path / "stage") is None
    assert starts.start_over(again) == []


def test_what_was_set_aside_is_no_stage_of_the_run_and_can_be_looked_at_as_a_run(finished, tmp_path):
    starts.start_over(config_of(tmp_path, "/b", "disable"))
    assert stage_dirs(tmp_path) == [] and choosing.of_run(tmp_path) == []
    assert stage_dirs(tmp_path / "aside") == [tmp_path / "aside" / "stage"]


def test_each_time_is_set_aside_under_a_name_of_its_own(finished, tmp_path):
    for model in ("/b", "/c"):
        over = config_of(tmp_path, model, "disable")
        starts.start_over(over)
        note(over)
        save(over, 1)
    assert sorted(path.name for path in (tmp_path / "aside").iterdir()) == ["stage", "stage.2"]
    models = [state.look(tmp_path / "aside" / name).began for name in ("stage", "stage.2")]
    assert [start and start.model for start in models] == ["/a", "/b"]


def test_a_folder_of_checkpoints_elsewhere_keeps_what_is_not_ours(tmp_path):
    disk = tmp_path / "disk"
    config = config_of(tmp_path, default_local_dir=str(disk))
    note(config)
    save(config, 5)
    (disk / "notes.txt").write_text("mine")
    (disk / "global_step_5.bak").mkdir()
    over = config_of(tmp_path, "/b", "disable", default_local_dir=str(disk))
    assert f"set aside in {disk}/aside/stage" in starts.start_over(over)[0]
    assert sorted(path.name for path in disk.iterdir()) == ["aside", "global_step_5.bak", "notes.txt"]
    assert sorted(path.name for path in (disk / "aside" / "stage").iterdir()) == [
        "global_step_5",
        state.TRACKER,
    ]


@pytest.mark.parametrize("relative", [True, False])
def test_a_link_to_a_larger_disk_stays_and_what_was_behind_it_is_set_aside_there(tmp_path, relative):
    disk, over = tmp_path / "disk", config_of(tmp_path, "/b", "disable")
    link = Path(over.trainer.default_local_dir)
    disk.mkdir()
    link.parent.mkdir()
    link.symlink_to("../disk" if relative else disk)
    note(config_of(tmp_path))
    save(over, 5)
    (tmp_path / "stage" / "x.txt").write_text("{}")
    assert len(starts.start_over(over)) == 2
    assert link.is_symlink() and link.resolve() == disk and list(disk.iterdir()) == [disk / "aside"]
    assert [path.name for path in link.parent.iterdir()] == ["checkpoints"]
    aside = tmp_path / "aside" / "stage" / "checkpoints"
    assert aside.resolve() == disk / "aside" / "stage" and sorted(state.step_folders(aside)) == [5]
    assert starts.start_over(over) == [], "the link alone is nothing to set aside"
    note(over)
    save(over, 1)
    assert (disk / "global_step_1").is_dir() and sorted(state.step_folders(aside)) == [5]


def test_without_anything_to_set_aside_nothing_is_said_or_made(tmp_path):
    assert starts.start_over(config_of(tmp_path, mode="disable")) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("setting", ["model.path", "data.train_files", "data.val_files", "reward"])
def test_what_the_start_itself_reads_is_not_set_aside(finished, tmp_path, setting):
    path = str(tmp_path / "stage" / "hf")
    over = config_of(tmp_path, path if setting == "model.path" else "/b", "disable")
    if setting == "data.train_files":
        over.data.train_files = path
    elif setting == "data.val_files":
        over.data.val_files = ["rows.parquet", path]
    elif setting == "reward":
        over.reward = {"custom_reward_function": {"path": path}}
    with pytest.raises(PreflightError, match=f"{setting}.*which trainer.resume_mode=disable sets"):
        starts.check_same_start(over)


@pytest.mark.parametrize("mode", ["resume_path", "disabled", "Auto", "", None, True, 3])
def test_another_resume_mode_is_refused(tmp_path, mode):
    with pytest.raises(PreflightError, match="trainer.resume_mode="):
        starts.check_same_start(config_of(tmp_path, mode=mode))


def test_another_start_is_refused_before_anything_changes(finished, tmp_path):
    before = tree(tmp_path)
    with pytest.raises(PreflightError, match="checkpoints of another start: model=/a .*not /b .*resume_mode=disable"):
        starts.check_same_start(config_of(tmp_path, "/b"))
    assert tree(tmp_path) == before


def test_a_start_model_that_was_trained_anew_under_the_same_path_is_another_one(finished, tmp_path):
    model = tmp_path / "before" / "hf"
    model.mkdir(parents=True)
    config = config_of(tmp_path, str(model))
    note(config)
    starts.check_same_start(config)
    for content, same in ((b"one", True), (b"one", True), (b"two", False), (b"one", True)):
        (model / "model.safetensors").write_bytes(content)
        note_sums(model)  # at first the note names no weights
        if same:
            starts.check_same_start(config)
            note(config)
        else:
            with pytest.raises(PreflightError, match="another start: model="):
                starts.check_same_start(config)


def test_a_start_model_that_was_moved_is_the_same_where_its_weights_are_known(finished, tmp_path):
    models = [tmp_path / name / "hf" for name in ("old", "new", "other")]
    for model, content in zip(models, (b"one", b"one", b"two"), strict=True):
        model.mkdir(parents=True)
        (model / "model.safetensors").write_bytes(content)
        note_sums(model)
    note(config_of(tmp_path, str(models[0])))
    moved, other = config_of(tmp_path, str(models[1])), config_of(tmp_path, str(models[2]))
    starts.check_same_start(moved)
    assert starts.other_start(moved)[0] is None
    with pytest.raises(PreflightError, match="another start: model="):
        starts.check_same_start(other)
    assert "other/hf. Leave MODEL out to go on" in str(starts.other_start(other)[0])


def test_a_start_model_that_is_reached_through_a_link_is_the_same(finished, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "link").symlink_to("model")
    note(config_of(tmp_path, str(tmp_path / "model")))
    linked = config_of(tmp_path, str(tmp_path / "link"))
    starts.check_same_start(linked)
    assert starts.other_start(linked)[0] is None


@pytest.mark.parametrize(("steps", "tracked", "kept"), [((12, 1, 2, 3), 3, [2, 3, 12]), ((10, 11, 5), 5, [5, 10, 11])])
def test_the_checkpoint_that_was_just_written_is_never_pruned(tmp_path, steps, tracked, kept):
    config = config_of(tmp_path)
    for step in steps:
        save(config, step)
    (Path(config.trainer.default_local_dir) / state.TRACKER).write_text(str(tracked))
    state.prune(config)
    assert sorted(state.step_folders(Path(config.trainer.default_local_dir))) == kept


def test_checkpoints_of_other_settings_are_refused_and_of_an_unknown_start_too(finished, tmp_path):
    changes = {
        "n_gpus_per_node=4": ("processes=8, not 4", {"trainer.n_gpus_per_node": 4}),
        "two nodes of half": (None, {"trainer.n_gpus_per_node": 4, "trainer.nnodes": 2}),
        "lora": ("lora_rank=None, not 8", {"actor_rollout_ref.model": {"path": "/a", "lora_rank": 8, "lora_alpha": 8}}),
        "elsewhere": ("checkpoints=None, not", {"trainer.default_local_dir": str(tmp_path / "disk")}),
        "hub id": ("model=/a .*not Qwen/Qwen3-8B", {"actor_rollout_ref.model.path": "Qwen/Qwen3-8B"}),
    }
    save(config_of(tmp_path, default_local_dir=str(tmp_path / "disk")), 3)
    for name, (said, change) in changes.items():
        config = config_of(tmp_path)
        for key, value in change.items():
            OmegaConf.update(config, key, value, force_add=True)
        if said is None:
            starts.check_same_start(config)
            continue
        with pytest.raises(PreflightError, match=said):
            starts.check_same_start(config)
            pytest.fail(name)
    (tmp_path / "stage" / state.FILE).unlink()
    with pytest.raises(PreflightError, match="checkpoints of an unknown start"):
        starts.check_same_start(config_of(tmp_path))


def test_a_saved_position_means_the_same_rows_only_among_the_same_rows(finished, tmp_path):
    note(finished, rows=3, digest="abc")
    starts.check_same_rows(finished, 3, "abc")
    with pytest.raises(PreflightError, match=r"other data \(3 rows, now 2\)"):
        starts.check_same_rows(finished, 2, "abd")
    starts.check_same_rows(config_of(tmp_path, mode="disable"), 2, "abd")


def test_prompts_in_play_are_gone_on_with_in_groups_of_the_same_size(finished, tmp_path):
    folder = tmp_path / "stage" / "checkpoints" / "global_step_12"
    (folder / state.QUEUE_FILE).write_text('{"rollouts": 8}')
    (folder / state.QUEUE_END).parent.mkdir()
    (folder / state.QUEUE_END).write_text("{}")
    for mode, rollouts, fits in (("colocate_async", 8, True), ("sync", 8, False), ("separate_async", 4, False)):
        config = config_of(tmp_path, v1={"trainer_mode": mode})
        config.actor_rollout_ref.rollout = {"n": rollouts}
        if fits:
            starts.check_same_start(config)
        else:
            with pytest.raises(PreflightError, match="in groups of 8"):
                starts.check_same_start(config)


def test_a_stage_that_is_done_with_other_files_says_so(finished, tmp_path):
    assert starts.other_start(finished) == (None, None)
    finished.data.train_files = "other.parquet"
    assert "rows.parquet, not on" in str(starts.other_start(finished)[1])


@pytest.fixture
def surroundings(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    found: dict[str, str] = {}
    monkeypatch.setattr(os, "environ", found)
    return found


def begun(folder: Path) -> None:
    config = OmegaConf.create({"paths": {"stage": str(folder)}, "launcher": {"env": {"A": "1"}}})
    starts.set_environment(config, nodes=1)


def test_what_trackers_write_stays_in_the_stages_folder_unless_a_person_has_set_a_place(tmp_path, surroundings):
    surroundings["WANDB_DIR"] = "http://mine"
    begun(tmp_path / "run" / "stage1")
    for name in ("TENSORBOARD_DIR", "TRACKIO_DIR", "MLFLOW_TRACKING_URI"):
        assert Path(surroundings[name].removeprefix("sqlite:///")).is_relative_to(tmp_path / "run" / "stage1"), name
    assert surroundings["WANDB_DIR"] == "http://mine"


def test_the_last_launch_wins_also_when_the_clock_has_gone_back(tmp_path: Path, surroundings, monkeypatch) -> None:
    for number, now in enumerate(("20261025-025900", "20261025-020100", "20261025-020100", "20261025-030000")):
        monkeypatch.setattr(time, "strftime", lambda _, now=now: now)
        begun(tmp_path)
        log = Path(surroundings["VERL_FILE_LOGGER_PATH"])
        log.parent.mkdir(exist_ok=True)
        log.write_text(json.dumps({"step": 1, "data": {"launch": number}}) + "\n")
        assert read_steps(tmp_path) == {1: {"launch": number}}
