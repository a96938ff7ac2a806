"""Checkpoints on the disk: whole or not, which one a start goes on from, when a stage ends, and what it hands on."""

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from safetensors.torch import load_file, save_file
from transformers import Qwen2Config, Qwen2ForCausalLM

from recipe.files import PreflightError
from recipe.stage import end as ends
from recipe.stage import starts, state
from recipe.stage.end import StageEnd
from recipe.stage.export import ExportError
from recipe.stage.state import Verdict

LEAVE = {"kind": "leave_at", "metric": "m", "value": 1.0, "window": 2}


def config_of(tmp_path: Path, **stage) -> DictConfig:
    return OmegaConf.create(
        {
            "paths": {"run": str(tmp_path), "stage": str(tmp_path / "stage")},
            "stage": {
                "name": "stage",
                "gate": None,
                "handover": "last",
                "handover_metric": "val_dev/score",
                **stage,
            },
            "data": {"train_batch_size": 4, "train_files": "rows.parquet"},
            "trainer": {
                "default_local_dir": str(tmp_path / "stage" / "checkpoints"),
                "resume_mode": "auto",
                "max_actor_ckpt_to_keep": 2,
                "total_epochs": 20,
                "total_training_steps": None,
                "save_freq": 1,
                "test_freq": 1,
            },
            "actor_rollout_ref": {
                "model": {"path": "start"},
                "actor": {
                    "strategy": "fsdp2",
                    "checkpoint": {"save_contents": ["model", "optimizer", "extra", "hf_model"]},
                },
            },
        }
    )


@cache
def model_files() -> dict[str, bytes]:
    """The smallest model that loads."""
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 8}
    heads = {"num_attention_heads": 1, "num_key_value_heads": 1}
    with TemporaryDirectory() as folder:
        Qwen2ForCausalLM(Qwen2Config(**sizes, **heads)).save_pretrained(folder)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def save(config: DictConfig, step: int, noted: bool = True) -> Path:
    """A checkpoint as verl leaves it."""
    folder = Path(config.trainer.default_local_dir) / f"global_step_{step}"
    hf = folder / "actor" / "huggingface"
    hf.mkdir(parents=True)
    for name in ("model", "optim", "extra_state"):
        torch.save({"step": step}, folder / "actor" / f"{name}_world_size_1_rank_0.pt")
    (folder / "actor" / "fsdp_config.json").write_text('{"FSDP_version": 2, "world_size": 1}')
    for name, content in model_files().items():
        (hf / name).write_bytes(content)
    weights = load_file(hf / "model.safetensors")
    weights["model.norm.weight"] = torch.full((8,), float(step))
    save_file(weights, hf / "model.safetensors", metadata={"format": "pt"})
    torch.save({}, folder / "data.pt")
    if noted:
        (folder.parent / state.TRACKER).write_text(str(step))
    return folder


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def test_old_checkpoints_go_whichever_start_wrote_them(tmp_path):
    config = config_of(tmp_path)
    for step in (1, 2, 3, 4):
        save(config, step)
    state.prune(config)
    assert sorted(state.step_folders(Path(config.trainer.default_local_dir))) == [3, 4]


def test_a_line_that_was_cut_off_does_not_swallow_the_next_one(tmp_path):
    config = config_of(tmp_path)
    save(config, 1)
    rollouts = tmp_path / "stage" / "rollouts" / "train"
    rollouts.mkdir(parents=True)
    (rollouts / "000002.jsonl").write_text('{"a": 1}\n{"a"')
    (rollouts / "000003.jsonl").write_text('{"a": 1}\n')
    (rollouts / "000004.jsonl").write_text("")
    starts.repair(config)
    assert [path.read_text()[-1:] for path in sorted(rollouts.iterdir())] == ["\n", "\n", ""]


def test_a_stage_is_done_only_at_its_last_step(tmp_path):
    config = config_of(tmp_path)
    save(config, 3)
    with pytest.raises(SystemExit, match="step 3 of an unknown number"):
        ends.finish(config)
    ends.note_target(config, 4, 4)
    assert not ends.at_target(config)
    with pytest.raises(SystemExit, match="step 3 of 4"):
        ends.finish(config)
    save(config, 4)
    assert ends.at_target(config)
    done = ends.finish(config)
    assert (done.global_step, done.target, done.model_step) == (4, 4, 4)
    assert ends.read_done(tmp_path / "stage") == done


def test_more_epochs_than_were_asked_for_before_are_trained(tmp_path):
    config = config_of(tmp_path)
    save(config, 4)
    ends.note_target(config, 4, 4)
    assert ends.at_target(config)
    config.trainer.total_epochs = 21
    assert not ends.at_target(config)


def test_a_gate_makes_the_next_step_the_last_and_that_counts_as_done(tmp_path, capsys):
    config = config_of(tmp_path, gate=LEAVE)
    Path(config.paths.stage).mkdir()
    end = StageEnd(config, planned=20, done=0)
    assert [end(step, {"m": value}) for step, value in enumerate((0.5, 1.0, 1.2, 0.0), 1)] == [20, 20, 4, 4]
    assert "GATE left at step 4 of 20: m reached 1.100 (gate 1)" in capsys.readouterr().out
    save(config, 4)
    assert ends.at_target(config)
    done = ends.finish(config)
    assert done.gate == Verdict(passed=True, stops=False, text=str(done.reason))
    assert (done.global_step, done.target) == (4, 20)


def test_a_stage_that_was_killed_after_its_gate_is_left_after_it_is_resumed(tmp_path):
    config = config_of(tmp_path, gate=LEAVE)
    metrics = tmp_path / "stage" / "metrics"
    metrics.mkdir(parents=True)
    lines = [json.dumps({"step": step, "data": {"m": 1.0}}) for step in (1, 2, 3)]
    (metrics / "1.jsonl").write_text("\n".join(lines))
    assert StageEnd(config, planned=20, done=1).last == 20
    assert StageEnd(config, planned=20, done=2).last == 3


def test_a_gate_that_was_not_reached_is_said_and_stops_only_where_it_is_required(tmp_path):
    for required in (False, True):
        config = config_of(tmp_path / str(required), gate={**LEAVE, "required": required})
        Path(config.paths.stage).mkdir(parents=True)
        StageEnd(config, planned=2, done=0)
        save(config, 2)
        gate = ends.finish(config).gate
        assert gate is not None and (gate.passed, gate.stops) == (False, required)


def test_the_best_validated_checkpoint_is_handed_on(tmp_path):
    config = config_of(tmp_path, handover="best")
    Path(config.paths.stage).mkdir()
    end = StageEnd(config, planned=4, done=0)
    for step, value in ((1, 0.2), (2, 0.7), (3, 0.5)):
        save(config, step)
        end(step, {"val_dev/score": value})
    end(4, {"other": 1.0})
    save(config, 4)
    done = ends.finish(config)
    assert (done.model_step, done.best and done.best.value) == (2, 0.7)
    chose = {"stage": "stage", "setting": "stage.handover_metric", "metric": "val_dev/score"}
    best = state.look(tmp_path / "stage").best
    assert state.look(tmp_path / "stage").chose == (chose,) and best is not None and best.metric == chose["metric"]
    exported = (tmp_path / "stage" / "hf" / "model.safetensors").read_bytes()
    checkpoint = Path(config.trainer.default_local_dir) / "global_step_2" / "actor" / "huggingface"
    assert exported == (checkpoint / "model.safetensors").read_bytes()
    assert [path.name for path in (tmp_path / "stage" / "best").iterdir()] == ["global_step_2"]


def test_a_model_that_is_not_what_it_says_is_not_handed_on(tmp_path):
    for handover in ("last", "best"):
        config = config_of(tmp_path / handover, handover=handover)
        weights = save(config, 2) / "actor" / "huggingface" / "model.safetensors"
        save_file({"base_model.model.weight": torch.zeros(4)}, weights)
        ends.note_target(config, 2, 2)
        with pytest.raises(SystemExit, match="has made all its steps, but .* cannot be handed on.* are missing"):
            ends.finish(config)
        assert ends.read_done(Path(config.paths.stage)) is None
        with pytest.raises(ExportError, match="are missing"):
            StageEnd(config, 4, 0).keep_best(2, 0.5)


def test_the_best_of_a_training_that_is_not_continued_is_forgotten(tmp_path):
    config = config_of(tmp_path, handover="best")
    Path(config.paths.stage).mkdir()
    save(config, 3)
    StageEnd(config, planned=4, done=2)(3, {"val_dev/score": 0.9})
    assert (best := state.look(tmp_path / "stage").best) and best.step == 3
    StageEnd(config, planned=4, done=0)
    assert state.look(tmp_path / "stage").best is None


def test_the_best_by_another_metric_is_forgotten_and_that_is_said(tmp_path, capsys):
    config = config_of(tmp_path, handover="best")
    Path(config.paths.stage).mkdir()
    save(config, 1)
    StageEnd(config, planned=4, done=0)(1, {"val_dev/score": 0.9})
    config.stage.handover_metric = "val_dev/acc"
    StageEnd(config, planned=4, done=1)
    assert state.look(tmp_path / "stage").best is None
    assert "RESUME step 1 was the best by val_dev/score" in capsys.readouterr().out


def test_a_stage_that_is_only_exported_again_notes_the_metric_by_which_its_best_was_chosen(tmp_path):
    config = config_of(tmp_path, handover="best")
    Path(config.paths.stage).mkdir()
    end = StageEnd(config, planned=2, done=0)
    for step, value in ((1, 0.9), (2, 0.1)):
        save(config, step)
        end(step, {"val_dev/score": value})
    config.stage.handover_metric = "val_dev/acc"
    assert ends.at_target(config), "nothing is trained again"
    done = ends.finish(config)
    assert done.model_step == 1
    assert [item["metric"] for item in state.look(tmp_path / "stage").chose or ()] == ["val_dev/score"]


def test_a_gate_on_validation_that_no_longer_is_has_not_chosen_the_last_model(tmp_path):
    config = config_of(tmp_path, gate={**LEAVE, "metric": "val_dev/acc", "window": 1})
    Path(config.paths.stage).mkdir()
    assert StageEnd(config, planned=4, done=0)(1, {"val_dev/acc": 1.0}) == 2
    save(config, 2)
    ends.finish(config)
    assert [item["metric"] for item in state.look(tmp_path / "stage").chose or ()] == ["val_dev/acc"]
    config.stage.gate = None
    assert not ends.at_target(config), "all steps are trained now"
    assert StageEnd(config, planned=4, done=2).last == 4
    save(config, 4)
    done = ends.finish(config)
    assert (done.global_step, state.look(tmp_path / "stage").chose) == (4, ())


def test_a_handover_metric_that_validation_does_not_log_is_an_error(tmp_path):
    config = config_of(tmp_path, handover="best", handover_metric="val_dev/scor")
    Path(config.paths.stage).mkdir()
    end = StageEnd(config, planned=4, done=0)
    end(1, {"critic/score/mean": 1.0})
    with pytest.raises(PreflightError, match="stage.handover_metric=val_dev/scor is not logged; .*val_dev/score"):
        end(2, {"critic/score/mean": 1.0, "val/score": 0.5, "val_dev/score": 0.5})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trainer": {"max_actor_ckpt_to_keep": 1}}, "Set 2 or more"),
        ({"critic": {"enable": True}, "trainer": {"max_critic_ckpt_to_keep": 1}}, "Set 2 or more"),
        ({"stage": {"handover": "best"}, "trainer": {"test_freq": -1}}, "no multiple of trainer.test_freq=-1"),
        ({"stage": {"handover": "best"}, "trainer": {"test_freq": 4, "save_freq": 6}}, "trainer.save_freq=6"),
        ({"stage": {"gate": {"kind": "leave_at"}}}, "set stage.gate.value"),
        ({"actor_rollout_ref": {"actor": {"checkpoint": {"save_contents": ["hf_model"]}}}}, "lacks extra, model"),
        ({"actor_rollout_ref": {"actor": {"checkpoint": {"async_save": True}}}}, "async_save=true"),
        (
            {
                "stage": {"gate": {"kind": "minimum", "value": 1, "metric": "val_dev/acc"}},
                "trainer": {"test_freq": -1},
            },
            "needs validations",
        ),
    ],
)
def test_what_cannot_work_is_said_before_anything_starts(tmp_path, change, message):
    config = config_of(tmp_path)
    ends.check(config)
    with pytest.raises(PreflightError, match=message):
        ends.check(OmegaConf.merge(config, change))


def test_a_start_goes_on_from_the_newest_checkpoint_whose_last_file_is_there(tmp_path):
    config = config_of(tmp_path)
    tracker = save(config, 2).parent / state.TRACKER
    for step in (3, 4):
        save(config, step)
    assert starts.repair(config) == ["from the checkpoint of step 4"]
    tracker.write_text("")  # cut off
    starts.repair(config)
    assert tracker.read_text() == "4"
    for step, name in ((4, "data.pt"), (3, "data.pt"), (5, "data.pt")):
        (save(config, 5, noted=False) if step == 5 else tracker.with_name(f"global_step_{step}")).joinpath(
            name
        ).unlink()
    said = starts.repair(config)
    assert said[0] == "checkpoint of step 5 is not whole and is removed" and tracker.read_text() == "2"
    assert sorted(state.step_folders(tracker.parent)) == [2] and len(list(tracker.parent.glob("*.aside"))) == 2
    (tracker.parent / "global_step_2" / state.QUEUE_FILE).write_text("{}")  # and its queue was not written
    assert starts.repair(config)[-1] == "no whole checkpoint is left: from the start model"
    assert not tracker.exists() and not state.resumes(config)


def test_in_a_cluster_nothing_is_removed_that_another_node_may_have_the_rest_of(tmp_path):
    config = config_of(tmp_path)
    folder = save(config, 2, noted=False)
    (folder / "data.pt").unlink()
    assert "set aside" in state.go_back(folder.parent, alone=False)[0] and list(folder.parent.iterdir())


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("harm", [flip, cut, Path.unlink])
@pytest.mark.parametrize("handover", ["last", "best"])
def test_a_damaged_export_is_made_again_from_its_checkpoint(tmp_path, capsys, harm, handover):
    config = config_of(tmp_path, handover=handover)
    Path(config.paths.stage).mkdir()
    end = StageEnd(config, planned=2, done=0)
    for step, value in ((1, 0.9), (2, 0.1)):
        save(config, step)
        end(step, {"val_dev/score": value})
    stage, first = tmp_path / "stage", ends.finish(config)
    weights = (stage / "hf" / "model.safetensors").read_bytes()
    harm(stage / "hf" / "model.safetensors")
    if handover == "best":
        harm(stage / "best" / "global_step_1" / "hf" / "model.safetensors")
    assert ends.read_done(stage) is None and ends.at_target(config)
    assert ends.finish(config).model_step == first.model_step
    assert (stage / "hf" / "model.safetensors").read_bytes() == weights and ends.read_done(stage)
    assert ("is damaged" in capsys.readouterr().out) == (handover == "best")


def test_a_checkpoint_with_damaged_weights_is_not_handed_on(tmp_path):
    config = config_of(tmp_path)
    cut(save(config, 2) / "actor" / "huggingface" / "model.safetensors")
    ends.note_target(config, 2, 2)
    with pytest.raises(SystemExit, match="cut off or damaged"):
        ends.finish(config)


def test_a_checkpoint_is_known_by_its_whole_name_and_a_tracker_by_its_number(tmp_path):
    config = config_of(tmp_path)
    folder = save(config, 5).parent
    for name in ("global_step_10.bak", "global_step_010", "global_step_", "global_step_10 (copy)", "Global_step_10"):
        (folder / name).mkdir()
    (folder / "global_step_3").write_text("a file")
    (folder / "global_step_11").symlink_to(tmp_path / "nothing")
    assert sorted(state.step_folders(folder)) == [5]
    for content in (b"", b"x", b"-4", b"1.5", b"\xff", b"9" * 10_000, b"nan"):
        (folder / state.TRACKER).write_bytes(content)
        assert state.latest(folder) == 0, content


def test_a_state_that_cannot_be_read_is_said(tmp_path):
    for content in (b"", b"{", b"[]", b"\xff", b'{"began": 1}', b"[" * 100_000):
        (tmp_path / state.FILE).write_bytes(content)
        assert state.look(tmp_path) == state.State()
        with pytest.raises(PreflightError, match=r"state\.json.*\n.*resume_mode=disable"):
            state.read(tmp_path)
