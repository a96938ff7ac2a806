"""Whatever a later start reads may be damaged: it is said in a line, set aside, and made anew or gone back from."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from safetensors.torch import load_file, save_file
from transformers import Qwen2Config, Qwen2ForCausalLM

from recipe import files
from recipe.curriculum import state
from recipe.files import PreflightError
from recipe.stage import checkpoints, integrity, manifest, starts
from recipe.stage.end import StageEnd
from recipe.stage.metrics_log import read_steps
from recipe.stage.resume import WARM_START, go_back

CONTENTS = ["model", "optimizer", "extra", "hf_model"]


@pytest.fixture(autouse=True)
def models_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What transformers says of a model is for `test_recipe_export`, and takes its time."""
    monkeypatch.setattr("recipe.stage.export.misfit", lambda folder: None)


def config_of(tmp_path: Path, **stage: Any) -> DictConfig:
    folder = tmp_path / "stage"
    folder.mkdir(parents=True, exist_ok=True)
    best = {"handover": "best", "handover_metric": "val_choose/score"}
    return OmegaConf.create(
        {
            "paths": {"run": str(tmp_path), "stage": str(folder)},
            "stage": {"name": "stage", "gate": None, **best, **stage},
            "data": {"train_batch_size": 4, "train_files": "rows.parquet"},
            "trainer": {
                "default_local_dir": str(folder / "checkpoints"),
                "resume_mode": "auto",
                "max_actor_ckpt_to_keep": 2,
                "total_epochs": 20,
                "total_training_steps": None,
            },
            "actor_rollout_ref": {
                "model": {"path": "start", "lora_rank": 0},
                "actor": {"strategy": "fsdp2", "checkpoint": {"save_contents": CONTENTS}},
            },
        }
    )


@cache
def model_files() -> dict[str, bytes]:
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 8}
    with TemporaryDirectory() as folder:
        model = Qwen2ForCausalLM(Qwen2Config(**sizes, num_attention_heads=1, num_key_value_heads=1))
        model.save_pretrained(folder)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def save(config: DictConfig, step: int, ranks: int = 2) -> Path:
    """A checkpoint of several ranks as the trainer leaves it, with sums of its model, KL coefficient and LoRA note."""
    folder = Path(config.trainer.default_local_dir) / f"global_step_{step}"
    hf = folder / "actor" / "huggingface"
    hf.mkdir(parents=True)
    for rank in range(ranks):
        for name in ("model", "optim", "extra_state"):
            content = {"step": step, "rank": rank, "x": torch.full((50,), float(step))}
            torch.save(content, folder / "actor" / f"{name}_world_size_{ranks}_rank_{rank}.pt")
    (folder / "actor" / "fsdp_config.json").write_text(json.dumps({"FSDP_version": 2, "world_size": ranks}))
    for name, data in model_files().items():
        (hf / name).write_bytes(data)
    weights = load_file(hf / "model.safetensors")
    weights["model.norm.weight"] = torch.full((8,), float(step))
    save_file(weights, hf / "model.safetensors", metadata={"format": "pt"})
    integrity.note_sums(hf)
    (folder / "kl_coefficient.json").write_text('{"kl_coef": 0.1}')
    torch.save({"step": step}, folder / "data.pt")
    (folder.parent / starts.TRACKER).write_text(str(step))
    return folder


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    pickled = content.find(b"step")  # in the middle of an archive there may be padding
    content[pickled if pickled > 0 else len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


PARTS = [
    "data.pt",
    *(f"actor/{name}_world_size_2_rank_{rank}.pt" for name in ("model", "optim", "extra_state") for rank in (0, 1)),
    "actor/huggingface/model.safetensors",
    "actor/huggingface/checksums.json",
    "actor/fsdp_config.json",
    "kl_coefficient.json",
]
HARMS: dict[str, Callable[[Path], None]] = {"a bit": flip, "the end": cut, "all": lambda path: path.write_bytes(b"")}


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_is_resumed(tmp_path, name, harm):
    config = config_of(tmp_path)
    save(config, 2)
    newest = save(config, 4)
    HARMS[harm](newest / name)
    if name.endswith(".json") and harm == "a bit":  # which may leave the meaning as it is
        (newest / name).write_text("{")
    harmed = (newest / name).read_bytes()
    said = checkpoints.repair(config)
    aside = newest.with_name("global_step_4.aside")
    assert f"checkpoint of step 4 is not whole and is set aside as {aside.name}" in said[0]
    assert all("\n" not in line for line in said) and said[-1] == "from the checkpoint of step 2"
    assert starts.latest(newest.parent) == 2 and list(starts.step_folders(newest.parent)) == [2]
    assert (aside / name).read_bytes() == harmed


def test_a_warm_start_goes_back_in_the_same_way(tmp_path):
    folders = []
    for step in (9, 18):
        actor = save(config_of(tmp_path / str(step)), step) / "actor"
        folders.append(Path(shutil.copytree(actor, tmp_path / "checkpoints" / f"global_step_{step}")))
        torch.save({"step": step}, folders[-1] / "data_0.pt")
    (tmp_path / "checkpoints" / starts.TRACKER).write_text("18")
    assert go_back(tmp_path / "checkpoints", CONTENTS, WARM_START) == ["from the checkpoint of step 18"]
    flip(folders[1] / "optim_world_size_2_rank_1.pt")
    said = go_back(tmp_path / "checkpoints", CONTENTS, WARM_START)
    assert "step 18 is not whole and is set aside" in said[0] and said[-1] == "from the checkpoint of step 9"


@pytest.mark.parametrize("noted", [2, 0], ids=["one before is whole", "nothing is whole here"])
def test_in_a_cluster_nothing_is_removed_that_another_node_may_have_the_rest_of(tmp_path, monkeypatch, noted):
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    config = config_of(tmp_path)
    if noted:
        save(config, 2)
    half = save(config, 4)
    for path in [
        half / "data.pt",
        *half.glob("actor/*_rank_0.pt"),
    ]:  # as this machine sees what rank 1 alone wrote here
        path.unlink()
    (half.parent / starts.TRACKER).write_text(str(noted))
    kept = sorted(path.name for path in half.rglob("*"))
    said = checkpoints.repair(config)
    assert "step 4 is not whole and is set aside as global_step_4.aside" in said[0]
    assert sorted(path.name for path in half.with_name("global_step_4.aside").rglob("*")) == kept
    assert starts.latest(half.parent) == noted


def test_a_half_written_checkpoint_is_removed_for_its_room_is_needed(tmp_path):
    config = config_of(tmp_path)
    save(config, 2)
    half = save(config, 4)
    (half / "data.pt").unlink()
    (half.parent / starts.TRACKER).write_text("2")
    assert "step 4 is not whole and is removed" in checkpoints.repair(config)[0]
    assert sorted(path.name for path in half.parent.iterdir()) == ["global_step_2", starts.TRACKER]


@pytest.mark.parametrize("ranks", ["0", "-1", "1e9", "1000000000", "true", '"2"', "null", "[]"])
def test_a_number_of_ranks_that_cannot_be_is_damage(tmp_path, ranks):
    config = config_of(tmp_path)
    (save(config, 4) / "actor" / "fsdp_config.json").write_text(f'{{"world_size": {ranks}}}')
    assert "set aside" in checkpoints.repair(config)[0]


def test_a_newer_checkpoint_of_another_training_does_not_take_the_place_of_the_last_one(tmp_path):
    config = config_of(tmp_path)
    other = save(config, 12)
    os.utime(other / "data.pt", (1, 1))
    save(config, 2)
    said = checkpoints.repair(config)
    assert "step 12 is older than that of step 2" in said[0] and said[-1] == "from the checkpoint of step 2"
    assert (other.parent / "global_step_12.aside" / "data.pt").exists()


def test_a_checkpoint_that_was_whole_before_verl_could_name_it_is_resumed(tmp_path):
    config = config_of(tmp_path)
    save(config, 2)
    tracker = save(config, 4).parent / starts.TRACKER
    tracker.write_text("2")
    os.utime(tracker, (1, 1))
    assert checkpoints.repair(config)[-1] == "from the checkpoint of step 4"


def test_a_file_or_dead_link_in_the_place_of_a_checkpoint_is_set_aside_and_what_is_behind_a_link_stays(tmp_path):
    config = config_of(tmp_path)
    folder = save(config, 2).parent
    (tmp_path / "backup").mkdir()
    (folder / "global_step_3").write_text("mine")
    (folder / "global_step_4").symlink_to(tmp_path / "backup")
    (folder / "global_step_5").symlink_to(tmp_path / "nothing")
    (folder / "global_step_4.bak").mkdir()
    said = checkpoints.repair(config)
    assert len([line for line in said if "set aside" in line]) == 3
    assert (folder / "global_step_3.aside").read_text() == "mine" and (tmp_path / "backup").is_dir()
    assert (folder / "global_step_4.bak").is_dir() and said[-1] == "from the checkpoint of step 2"


def test_checkpoints_that_were_moved_to_another_disk_and_linked_back_are_resumed(tmp_path):
    config = config_of(tmp_path)
    folder = save(config, 2).parent
    save(config, 4)
    (folder / starts.TRACKER).write_text("4")
    (tmp_path / "disk").mkdir()
    for name in ("global_step_2", "global_step_4"):
        (folder / name).rename(tmp_path / "disk" / name)
        (folder / name).symlink_to(tmp_path / "disk" / name)
    assert checkpoints.repair(config) == ["from the checkpoint of step 4"]
    flip(tmp_path / "disk" / "global_step_4" / "data.pt")
    assert checkpoints.repair(config)[-1] == "from the checkpoint of step 2"
    assert (tmp_path / "disk" / "global_step_4" / "data.pt").exists()


def test_a_checkpoint_that_was_saved_without_something_is_refused_and_not_taken_for_damaged(tmp_path):
    config = config_of(tmp_path)
    folder = save(config, 4)
    for path in (folder / "actor").glob("optim_world_size_*"):
        path.unlink()
    with pytest.raises(PreflightError, match=r"saved with model, extra, hf_model alone.*save_contents"):
        checkpoints.repair(config)
    config.actor_rollout_ref.actor.checkpoint.save_contents = ["model", "extra", "hf_model"]
    assert checkpoints.repair(config) == ["from the checkpoint of step 4"]


def test_what_somebody_left_of_the_last_checkpoint_is_not_deleted(tmp_path):
    config = config_of(tmp_path)
    folder = save(config, 4)
    (folder.parent / starts.TRACKER).write_text("4")
    (folder / "data.pt").unlink()
    assert "is set aside as global_step_4.aside" in checkpoints.repair(config)[0]
    assert (folder.parent / "global_step_4.aside" / "actor" / "huggingface" / "config.json").exists()


def finished(config: DictConfig) -> None:
    """A stage of 4 steps, the best of which was step 2, with all its notes."""
    metrics = Path(config.paths.stage) / "metrics"
    metrics.mkdir()
    end, lines = StageEnd(config, planned=4, done=0), []
    for step, value in ((2, 0.7), (4, 0.5)):
        save(config, step)
        end(step, {"val_choose/score": value})
        lines.append(json.dumps({"step": step, "data": {"val_choose/score": value}}))
    (metrics / "1.jsonl").write_text("\n".join(lines))
    starts.note(config)
    checkpoints.finish(config)


HOSTILE = {
    "empty": b"",
    "zeros": b"\0" * 64,
    "cut off": b'{"version": 1, "global_step": 4, "target": 4, "total_st',
    "no UTF-8": b"\xff\xfe\x00",
    "a list": b"[]",
    "null": b"null",
    "a number": b"3",
    "deep": b"[" * 200_000,
    "deep object": b'{"best":' * 100_000,
    "another form": b'{"global_step": "4", "total_steps": [4], "step": {}, "value": "high"}',
    "not finite": b'{"step": 2, "value": NaN, "metric": "m", "model": "x", "global_step": Infinity}',
    "huge number": b'{"step": ' + b"9" * 5000 + b"}",
    "another release": b'{"version": 99}',
}
NOTES = ("done.json", "total_steps.json", "best.json")


@pytest.mark.parametrize("name", NOTES)
@pytest.mark.parametrize("content", HOSTILE)
def test_a_damaged_note_of_a_finished_stage_is_made_anew_without_training(tmp_path, name, content):
    config = config_of(tmp_path)
    finished(config)
    stage, before = tmp_path / "stage", checkpoints.read_done(tmp_path / "stage")
    assert before is not None and before.model_step == 2
    (stage / name).write_bytes(HOSTILE[content])
    said = checkpoints.repair(config)
    assert f"{name}.aside and made anew" in said[0] and all("\n" not in line for line in said)
    assert (stage / f"{name}.aside").read_bytes() == HOSTILE[content]
    if not checkpoints.at_target(config):  # the trainer reads the data again, and makes no step
        StageEnd(config, planned=4, done=4)
    assert checkpoints.finish(config) == before
    assert checkpoints.read_done(stage) == before


@pytest.mark.parametrize("name", NOTES)
def test_a_folder_or_a_pipe_in_the_place_of_a_note_is_damage_like_any_other(tmp_path, name):
    config = config_of(tmp_path)
    for make in (Path.mkdir, os.mkfifo):
        shutil.rmtree(tmp_path / "stage")
        config = config_of(tmp_path)
        finished(config)
        (tmp_path / "stage" / name).unlink()
        make(tmp_path / "stage" / name)
        assert f"{name}.aside and made anew" in checkpoints.repair(config)[0]


@pytest.mark.parametrize("harm", [flip, cut, Path.unlink])
def test_a_stage_whose_model_was_damaged_is_not_done_and_is_exported_again(tmp_path, harm):
    config = config_of(tmp_path)
    finished(config)
    weights = tmp_path / "stage" / "hf" / "model.safetensors"
    whole = weights.read_bytes()
    harm(weights)
    assert checkpoints.read_done(tmp_path / "stage") is None
    checkpoints.repair(config)
    assert checkpoints.at_target(config)
    checkpoints.finish(config)
    assert weights.read_bytes() == whole and checkpoints.read_done(tmp_path / "stage") is not None


@pytest.mark.parametrize("harm", [flip, cut, Path.unlink])
def test_a_damaged_best_model_is_exported_anew_from_its_checkpoint_or_forgotten_and_that_is_said(tmp_path, harm):
    config = config_of(tmp_path)
    finished(config)
    stage, before = tmp_path / "stage", checkpoints.read_best(tmp_path / "stage")
    harm(stage / "best" / "global_step_2" / "hf" / "model.safetensors")
    (said, _) = checkpoints.repair(config)
    assert "the best model, of step 2, is damaged" in said and "exported anew from its checkpoint" in said
    assert checkpoints.read_best(stage) == before
    harm(stage / "best" / "global_step_2" / "hf" / "model.safetensors")
    shutil.rmtree(Path(config.trainer.default_local_dir) / "global_step_2")
    (said, _) = checkpoints.repair(config)
    assert "The best is chosen from the steps to come" in said and checkpoints.read_best(stage) is None
    assert sorted(path.name for path in (stage / "best").iterdir()) == [f"global_step_2.aside{n}" for n in ("", "2")]


def test_a_damaged_checkpoint_is_not_handed_on(tmp_path):
    config = config_of(tmp_path, handover="last")
    finished(config)
    flip(Path(config.trainer.default_local_dir) / "global_step_4" / "actor" / "huggingface" / "model.safetensors")
    with pytest.raises(SystemExit, match="has made all its steps, but .*sum differs.*goes on from the last whole"):
        checkpoints.finish(config)
    config.trainer.resume_mode = "disable"
    with pytest.raises(SystemExit, match="Start it again without trainer.resume_mode=disable: it goes on"):
        checkpoints.finish(config)
    config.trainer.resume_mode = "auto"
    assert "from the checkpoint of step 2" in checkpoints.repair(config)
    assert not checkpoints.at_target(config)


def test_a_copied_stage_hands_on_its_own_best_model(tmp_path):
    config = config_of(tmp_path)
    finished(config)
    (tmp_path / "copy").mkdir()
    shutil.copytree(tmp_path / "stage", tmp_path / "copy" / "stage")
    shutil.rmtree(tmp_path / "stage")
    copied = config_of(tmp_path / "copy")
    best = checkpoints.read_best(tmp_path / "copy" / "stage")
    assert best is not None and best.step == 2
    assert checkpoints.finish(copied).model_step == 2


@pytest.mark.parametrize("content", HOSTILE)
def test_a_damaged_state_or_manifest_of_a_run_is_set_aside_and_begun_anew(tmp_path, capsys, monkeypatch, content):
    (tmp_path / state.FILE).write_bytes(HOSTILE[content])
    assert state.read(tmp_path).stages == ()
    state.State(tmp_path, "curriculum", [])
    assert (tmp_path / f"{state.FILE}.aside").read_bytes() == HOSTILE[content]
    (tmp_path / "manifest.json").write_bytes(HOSTILE[content])
    monkeypatch.setattr(manifest, "_files", lambda setting: {})
    config = config_of(tmp_path)
    config.merge_with(
        {
            "data": {"val_files": "x"},
            "actor_rollout_ref": {"rollout": {"seed": 1}},
            "reward": {"custom_reward_function": {"path": "r.py"}},
        }
    )
    assert len(json.loads(manifest.note(config).read_text())["starts"]) == 1
    assert (tmp_path / "manifest.json.aside").read_bytes() == HOSTILE[content]
    said = capsys.readouterr().out
    assert said.count("is set aside as") == said.count("\n") == 2


@pytest.mark.parametrize("content", [*HOSTILE.values(), b'{"step": 1e999, "data": {}}', b'{"step": 1, "data": [1]}'])
def test_a_damaged_line_of_metrics_is_left_out(tmp_path, content):
    (tmp_path / "metrics").mkdir()
    good = b'{"step": 7, "data": {"m": 1.0}}\n'
    (tmp_path / "metrics" / "1.jsonl").write_bytes(content.replace(b"\n", b"") + b"\n" + good)
    assert read_steps(tmp_path)[7] == {"m": 1.0}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT, errno.EIO])
def test_a_note_that_cannot_be_written_is_one_line_with_its_name_and_leaves_the_old_one(tmp_path, monkeypatch, number):
    config = config_of(tmp_path)
    checkpoints.note_target(config, 4, 4)
    path = tmp_path / "stage" / "total_steps.json"
    before = path.read_bytes()

    def fails(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files.os, "fsync", fails)
    with pytest.raises(OSError) as error:
        checkpoints.note_target(config, 5, 5)
    assert files.told(error.value) == f"{os.strerror(number)}: {path}"
    assert path.read_bytes() == before and [one.name for one in path.parent.iterdir()] == [path.name]


def test_many_files_that_cannot_be_copied_are_one_line():
    faults = [("a", "b", "[Errno 28] No space left on device: 'b'")] * 300
    assert files.told(shutil.Error(faults)) == "[Errno 28] No space left on device: 'b'"
