"""Which start the checkpoints are of, and what starting over leaves in peace."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from recipe.files import PreflightError
from recipe.report.tables import stage_dirs
from recipe.stage import checkpoints, choosing, starts
from recipe.stage.integrity import note_sums
from recipe.stage.notes import STARTED, STARTED_FILE


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
    (folder.parent / starts.TRACKER).write_text(str(step))
    return folder


@pytest.fixture
def finished(tmp_path: Path) -> DictConfig:
    """A stage of model /a with all that a stage leaves."""
    config = config_of(tmp_path)
    starts.note(config)
    save(config, 12)
    stage = Path(config.paths.stage)
    for name in ("metrics/1.jsonl", "rollouts/train/000001.jsonl", "hf/config.json", "best/global_step_3/hf/x"):
        (stage / name).parent.mkdir(parents=True, exist_ok=True)
        (stage / name).write_text("{}")
    for name in ("done.json", "total_steps.json", "best.json"):
        (stage / name).write_text("{}")
    return config


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_starting_over_sets_everything_aside_and_loses_nothing(finished, tmp_path):
    before = tree(tmp_path / "stage")
    over = config_of(tmp_path, "/b", "disable")
    starts.check_same_start(over)
    assert not checkpoints.at_target(over)
    (said,) = starts.start_over(over)
    assert "trainer.resume_mode=disable" in said and f"{tmp_path}/aside/stage" in said
    starts.note(over)
    assert tree(tmp_path / "aside" / "stage") == before
    assert tree(tmp_path / "stage").keys() == {f"checkpoints/{STARTED_FILE}"}


def test_after_a_kill_before_the_first_save_the_old_checkpoints_are_not_found_again(finished, tmp_path):
    over = config_of(tmp_path, "/b", "disable")
    starts.start_over(over)
    starts.note(over)
    again = config_of(tmp_path, "/b")
    starts.check_same_start(again)
    assert not starts.resumes(again) and not checkpoints.at_target(again)
    assert checkpoints.read_done(tmp_path / "stage") is None
    assert starts.start_over(again) == []


def test_what_was_set_aside_is_no_stage_of_the_run_and_can_be_looked_at_as_a_run(finished, tmp_path):
    starts.start_over(config_of(tmp_path, "/b", "disable"))
    assert stage_dirs(tmp_path) == [] and choosing.of_run(tmp_path) == []
    assert stage_dirs(tmp_path / "aside") == [tmp_path / "aside" / "stage"]


def test_each_time_is_set_aside_under_a_name_of_its_own(finished, tmp_path):
    for model in ("/b", "/c"):
        over = config_of(tmp_path, model, "disable")
        starts.start_over(over)
        starts.note(over)
        save(over, 1)
    assert sorted(path.name for path in (tmp_path / "aside").iterdir()) == ["stage", "stage.2"]
    models = [STARTED.read(tmp_path / "aside" / name / "checkpoints" / STARTED_FILE) for name in ("stage", "stage.2")]
    assert [start and start.model for start in models] == ["/a", "/b"]


def test_a_folder_of_checkpoints_elsewhere_keeps_what_is_not_ours(tmp_path):
    disk = tmp_path / "disk"
    config = config_of(tmp_path, default_local_dir=str(disk))
    starts.note(config)
    save(config, 5)
    (disk / "notes.txt").write_text("mine")
    (disk / "global_step_5.bak").mkdir()
    over = config_of(tmp_path, "/b", "disable", default_local_dir=str(disk))
    (said,) = starts.start_over(over)
    assert f"set aside in {disk}/aside/stage" in said
    assert sorted(path.name for path in disk.iterdir()) == ["aside", "global_step_5.bak", "notes.txt"]
    assert sorted(path.name for path in (disk / "aside" / "stage").iterdir()) == [
        "global_step_5",
        starts.TRACKER,
        STARTED_FILE,
    ]


@pytest.mark.parametrize("relative", [True, False])
def test_a_link_to_a_larger_disk_stays_and_what_was_behind_it_is_set_aside_there(tmp_path, relative):
    disk, over = tmp_path / "disk", config_of(tmp_path, "/b", "disable")
    link = Path(over.trainer.default_local_dir)
    disk.mkdir()
    link.parent.mkdir()
    link.symlink_to("../disk" if relative else disk)
    starts.note(config_of(tmp_path))
    save(over, 5)
    (tmp_path / "stage" / "done.json").write_text("{}")
    assert len(starts.start_over(over)) == 2
    assert link.is_symlink() and link.resolve() == disk and list(disk.iterdir()) == [disk / "aside"]
    assert [path.name for path in link.parent.iterdir()] == ["checkpoints"]
    aside = tmp_path / "aside" / "stage" / "checkpoints"
    assert aside.resolve() == disk / "aside" / "stage" and sorted(starts.step_folders(aside)) == [5]
    assert starts.start_over(over) == [], "the link alone is nothing to set aside"
    starts.note(over)
    save(over, 1)
    assert (disk / "global_step_1").is_dir() and sorted(starts.step_folders(aside)) == [5]


def test_without_anything_to_set_aside_nothing_is_said_or_made(tmp_path):
    assert starts.start_over(config_of(tmp_path, mode="disable")) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("setting", ["MODEL", "data.train_files", "data.val_files", "reward"])
def test_what_the_start_itself_reads_is_not_set_aside(finished, tmp_path, setting):
    path = str(tmp_path / "stage" / "hf")
    over = config_of(tmp_path, path if setting == "MODEL" else "/b", "disable")
    if setting == "data.train_files":
        over.data.train_files = path
    elif setting == "data.val_files":
        over.data.val_files = ["rows.parquet", path]
    elif setting == "reward":
        over.reward = {"custom_reward_function": {"path": path}}
    with pytest.raises(PreflightError, match=f"{setting}.*which trainer.resume_mode=disable sets aside"):
        starts.check_same_start(over)


@pytest.mark.parametrize("setting", ["MODEL", "critic.model.path", "data.train_files"])
def test_a_checkpoint_elsewhere_that_the_start_itself_reads_is_not_set_aside(tmp_path, setting):
    disk = tmp_path / "disk"
    over = config_of(tmp_path, "/b", "disable", default_local_dir=str(disk))
    path = str(save(over, 5) / "actor" / "huggingface")
    OmegaConf.update(over, "actor_rollout_ref.model.path" if setting == "MODEL" else setting, path, force_add=True)
    with pytest.raises(PreflightError, match=f"{setting}.*global_step_5, which trainer.resume_mode=disable sets aside"):
        starts.check_same_start(over)
    (disk / "global_step_5").rename(disk / "kept")
    OmegaConf.update(over, "actor_rollout_ref.model.path", str(disk / "kept"))
    OmegaConf.update(over, "data.train_files", "rows.parquet")
    starts.check_same_start(over)


@pytest.mark.parametrize("mode", ["resume_path", "disabled", "Auto", "", None, True, 3])
def test_another_resume_mode_is_refused(tmp_path, mode):
    with pytest.raises(PreflightError, match="trainer.resume_mode="):
        starts.check_same_start(config_of(tmp_path, mode=mode))


def test_another_start_is_refused_before_anything_changes(finished, tmp_path):
    before = tree(tmp_path)
    with pytest.raises(PreflightError, match="checkpoints of .*/a.*this start is .*/b.*resume_mode=disable"):
        starts.check_same_start(config_of(tmp_path, "/b"))
    assert tree(tmp_path) == before


HOSTILE = [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"stage": 1, "model": "/a"}', b'{"version": 9}']


@pytest.mark.parametrize("content", HOSTILE, ids=lambda content: repr(content[:20]))
def test_where_it_is_not_known_whose_the_checkpoints_are_the_message_says_what_to_write(finished, tmp_path, content):
    note = Path(finished.trainer.default_local_dir) / STARTED_FILE
    note.write_bytes(content)
    with pytest.raises(PreflightError) as refused:
        starts.check_same_start(config_of(tmp_path, "/a"))
    text = str(refused.value)
    assert str(note) in text and "resume_mode=disable" in text and "\n" not in text
    note.write_text(text.rpartition("write into that file: ")[2])
    starts.check_same_start(config_of(tmp_path, "/a"))


def test_another_number_of_processes_than_wrote_the_checkpoint_is_refused_before_verl_fails_on_it(finished, tmp_path):
    actor = Path(finished.trainer.default_local_dir) / "global_step_12" / "actor"
    (actor / "fsdp_config.json").write_text('{"world_size": 8}')
    for cards, nodes, fits in ((8, 1, True), (4, 2, True), (4, 1, False), (8, 2, False)):
        config = config_of(tmp_path, n_gpus_per_node=cards, nnodes=nodes)
        if fits:
            starts.check_same_start(config)
        else:
            with pytest.raises(PreflightError, match=f"written by 8 processes, and this start has {cards * nodes} "):
                starts.check_same_start(config)


def test_a_start_model_that_was_trained_anew_under_the_same_path_is_another_one(finished, tmp_path):
    model = tmp_path / "before" / "hf"
    model.mkdir(parents=True)
    config = config_of(tmp_path, str(model))
    starts.note(config)
    starts.check_same_start(config)
    for content, same in ((b"one", True), (b"one", True), (b"two", False), (b"one", True)):
        (model / "model.safetensors").write_bytes(content)
        note_sums(model)  # at first the note names no weights
        if same:
            starts.check_same_start(config)
            starts.note(config)
        else:
            with pytest.raises(PreflightError, match='"weights": "\\w+"}, this start is'):
                starts.check_same_start(config)


def test_a_start_model_that_was_moved_is_the_same_where_its_weights_are_known(finished, tmp_path):
    models = [tmp_path / name / "hf" for name in ("old", "new", "other")]
    for model, content in zip(models, (b"one", b"one", b"two"), strict=True):
        model.mkdir(parents=True)
        (model / "model.safetensors").write_bytes(content)
        note_sums(model)
    starts.note(config_of(tmp_path, str(models[0])))
    moved, other = config_of(tmp_path, str(models[1])), config_of(tmp_path, str(models[2]))
    starts.check_same_start(moved)
    assert starts.other_model(moved) is None
    with pytest.raises(PreflightError, match="this start is .*other"):
        starts.check_same_start(other)
    assert "other/hf. Leave MODEL out to go on" in str(starts.other_model(other))


def test_folders_without_any_sum_are_told_apart_by_their_place(finished, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        note_sums(tmp_path / name)
    starts.note(config_of(tmp_path, str(tmp_path / "one")))
    with pytest.raises(PreflightError, match="this start is .*two"):
        starts.check_same_start(config_of(tmp_path, str(tmp_path / "two")))


def test_a_start_model_that_is_reached_through_a_link_is_the_same(finished, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "link").symlink_to("model")
    starts.note(config_of(tmp_path, str(tmp_path / "model")))
    linked = config_of(tmp_path, str(tmp_path / "link"))
    starts.check_same_start(linked)
    assert starts.other_model(linked) is None


@pytest.mark.parametrize("noted", ["Qwen/Qwen3-8B", "/moved/repository/Qwen/Qwen3-8B"])
def test_a_hub_id_is_the_same_wherever_the_start_is_made(finished, tmp_path, monkeypatch, noted):
    note = Path(finished.trainer.default_local_dir) / STARTED_FILE
    note.write_text(json.dumps({"stage": "stage", "model": noted}))
    monkeypatch.chdir(tmp_path)
    same, other = config_of(tmp_path, "Qwen/Qwen3-8B"), config_of(tmp_path, "Other/Qwen3-8B")
    starts.check_same_start(same)
    assert starts.other_model(same) is None and starts.start_of(same).model == "Qwen/Qwen3-8B"
    with pytest.raises(PreflightError, match="this start is .*Other/Qwen3-8B"):
        starts.check_same_start(other)
    (tmp_path / "Qwen" / "Qwen3-8B").mkdir(parents=True)  # a folder of that name is what is loaded
    with pytest.raises(PreflightError, match=f"this start is .*{tmp_path}/Qwen/Qwen3-8B"):
        starts.check_same_start(same)


def test_a_note_of_an_earlier_release_is_read(finished, tmp_path):
    note = Path(finished.trainer.default_local_dir) / STARTED_FILE
    note.write_text(json.dumps({"stage": "stage", "model": "/a"}, indent=1))
    starts.check_same_start(config_of(tmp_path, "/a"))
    lora = config_of(tmp_path, "/a")
    lora.actor_rollout_ref.model.update({"lora_rank": 8, "lora_alpha": 16})
    with pytest.raises(PreflightError, match="lora_rank"):
        starts.check_same_start(lora)
    note.write_text(json.dumps({"stage": "stage", "model": "/a", "lora_rank": 8, "lora_alpha": 16}))
    starts.check_same_start(lora)


SIBLINGS = [
    "global_step_10.bak",
    "global_step_10_old",
    "global_step_10.tar",
    "old_global_step_10",
    "global_step_",
    "global_step_-3",
    "global_step_1e3",
    "global_step_٣",
    "global_step_³",
    "global_step_007",
    "global_step_10 (copy)",
    "global_step_" + "9" * 200,
    "Global_step_10",
]


@pytest.mark.parametrize("name", SIBLINGS)
@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_sibling_of_the_checkpoints_is_never_taken_for_one_nor_deleted(tmp_path, name, kind):
    config = config_of(tmp_path)
    for step in (1, 2, 3):
        save(config, step)
    sibling = Path(config.trainer.default_local_dir) / name
    if kind == "folder":
        sibling.mkdir()
    else:
        sibling.write_text("mine")
    assert sorted(starts.step_folders(sibling.parent)) == [1, 2, 3]
    checkpoints.prune(config)
    assert sorted(starts.step_folders(sibling.parent)) == [2, 3] and sibling.exists()
    assert starts.latest(sibling.parent) == 3


def test_a_file_with_a_checkpoints_name_is_none_and_what_is_behind_a_link_is_never_pruned(tmp_path):
    config = config_of(tmp_path)
    folder = save(config, 5).parent
    (folder / "global_step_3").write_text("a file")
    (tmp_path / "backup").mkdir()
    os.symlink(tmp_path / "backup", folder / "global_step_9")
    os.symlink(tmp_path / "nothing", folder / "global_step_11")
    assert sorted(starts.step_folders(folder)) == [5, 9]
    for step in (6, 7, 10):
        save(config, step)
    (folder / starts.TRACKER).write_text("10")
    checkpoints.prune(config)
    assert (folder / "global_step_9").is_symlink() and (tmp_path / "backup").is_dir()


@pytest.mark.parametrize(("steps", "tracked", "kept"), [((12, 1, 2, 3), 3, [2, 3, 12]), ((10, 11, 5), 5, [5, 10, 11])])
def test_the_checkpoint_that_was_just_written_is_never_pruned(tmp_path, steps, tracked, kept):
    config = config_of(tmp_path)
    for step in steps:
        save(config, step)
    (Path(config.trainer.default_local_dir) / starts.TRACKER).write_text(str(tracked))
    checkpoints.prune(config)
    assert sorted(starts.step_folders(Path(config.trainer.default_local_dir))) == kept


@pytest.mark.parametrize("content", [b"", b"x", b"-4", b"1.5", b"\xff", b"9" * 10_000, b"nan", b"\0" * 8, None])
def test_a_tracker_that_names_no_step_is_none(tmp_path, content):
    if content is None:
        (tmp_path / starts.TRACKER).mkdir()
    else:
        (tmp_path / starts.TRACKER).write_bytes(content)
    assert starts.latest(tmp_path) in (0, int("9" * 32))
