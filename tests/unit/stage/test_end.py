"""Checkpoints on the disk: whole or not, which one a start goes on from, when a stage ends, and what it hands on."""

import shutil
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf
from safetensors.torch import save_file
from support.runs import write_metrics
from support.stages import config_of, save

from recipe.files import PreflightError
from recipe.stage import end as ends
from recipe.stage import starts, state
from recipe.stage.export import ExportError

LEAVE = {"kind": "leave_at", "metric": "m", "value": 1.0, "window": 2}


def trained(config, *scores):
    """Make a step for each score of the validation, with its checkpoint."""
    end = ends.StageEnd(config, planned=len(scores), done=0)
    for step, score in enumerate(scores, start=1):
        save(config, step)
        end(step, {"val_dev/score": score})


def cut(path):
    path.write_bytes(path.read_bytes()[:-20])


def test_old_checkpoints_go_whichever_start_wrote_them_and_never_the_newest(tmp_path):
    for number, (steps, tracked, keep, kept) in enumerate(
        [((1, 2, 3, 4), 4, 2, [3, 4]), ((12, 1, 2, 3), 3, 2, [2, 3, 12]), ((10, 11, 5), 5, 2, [5, 10, 11])]
        + [((1, 2, 3, 4), 4, 1, [4]), ((1, 2, 3, 4), 4, None, [1, 2, 3, 4])]
    ):
        config = config_of(tmp_path / str(number), trainer__max_actor_ckpt_to_keep=keep)
        for step in steps:
            save(config, step)
        checkpoints = Path(config.trainer.default_local_dir)
        (checkpoints / state.TRACKER).write_text(str(tracked))
        (checkpoints / "global_step_0").symlink_to(tmp_path)  # which is left alone
        state.prune(config)
        assert sorted(state.step_folders(checkpoints)) == [0, *kept]


def test_a_stage_is_done_only_at_its_last_step_and_trains_on_where_more_epochs_are_asked_for(tmp_path):
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
    for last, reached in ((0, False), (5, False), (1, True)):
        ends.note_target(config, last, last)
        assert ends.at_target(config) is reached, last
    assert ends.finish(config).global_step == 4, "more than was asked for"
    for name, how in (("handover_metric", {"stage__handover": "best"}), ("gate.metric", {"stage__gate": LEAVE})):
        with pytest.raises(PreflightError, match=name):
            ends.StageEnd(config_of(tmp_path / name, **how), 9, 0)(1, {"val_dev/other": 1.0, "n": 1.0})
    asked = {"trainer.total_epochs": 21, "trainer.total_training_steps": 9, "data.train_batch_size": 2}
    asked |= {"data.train_files": "more.parquet", "stage.over_budget": "leave_out"}
    for key, value in asked.items():
        OmegaConf.update(changed := config.copy(), key, value, force_add=True)
        assert not ends.at_target(changed), key


def test_a_gate_makes_the_next_step_the_last_after_a_kill_too_and_that_counts_as_done(tmp_path, capsys):
    config = config_of(tmp_path, stage__gate=LEAVE)
    end = ends.StageEnd(config, planned=6, done=0)
    assert [end(step, {"m": value}) for step, value in enumerate((0.5, 1.0, 1.2, 0.0), 1)] == [6, 6, 4, 4]
    late = ends.StageEnd(config_of(tmp_path / "late", stage__gate={**LEAVE, "window": 1}), planned=2, done=0)
    assert [late(step, {"m": 1.0}) for step in (0, 1, 2)] == [2, 2, 2]
    target = state.look(tmp_path / "late" / "stage").target
    assert target and target.reason is None, "the gate changes nothing there"
    assert "GATE left at step 4 of 6" in capsys.readouterr().out
    save(config, 4)
    assert ends.at_target(config)
    done = ends.finish(config)
    assert done.gate == state.Verdict(passed=True, stops=False, text=str(done.reason))
    assert (done.global_step, done.target) == (4, 6)
    write_metrics(tmp_path, "stage", "1.jsonl", [(step, {"m": 1.0}) for step in (1, 2, 3)])
    assert [ends.StageEnd(config, planned=6, done=done).last for done in (1, 2)] == [6, 3]


def test_a_stage_is_judged_by_the_steps_up_to_its_last(tmp_path):
    for number, (gate, *expected) in enumerate(
        [({"kind": "minimum", "value": 0.5}, True, False), ({"kind": "minimum", "value": 0.6}, False, True)]
        + [({"value": 0.5}, True, False), ({"value": 0.6}, False, False)]
    ):
        config = config_of(tmp_path / str(number), stage__gate={**LEAVE, **gate})
        steps = [(1, {"m": 0.9}), (2, {"m": 0.4}), (3, {"other": 9.0}), (4, {"m": 0.6}), (5, {"m": 5.0})]
        write_metrics(tmp_path / str(number), "stage", "1.jsonl", steps)
        save(config, 4)
        ends.note_target(config, 4, 4)
        verdict = ends.finish(config).gate
        assert verdict and [verdict.passed, verdict.stops] == expected, gate


def test_the_best_validated_checkpoint_is_handed_on_with_the_metric_by_which_it_was_chosen(tmp_path):
    config = config_of(tmp_path, stage__handover="best")
    trained(config, 0.2, 0.7, 0.7, 0.5, float("nan"))
    end = ends.StageEnd(config, planned=9, done=5)
    end(6, {})
    assert not end.keep_best(6, 0.9), "nothing was saved"
    (tmp_path / "stage" / "best" / "notes").touch()  # not ours
    assert end.keep_best(3, 0.8) and end.keep_best(2, 0.6), "a step that is validated again counts anew"
    assert not end.keep_best(3, 0.6) and end.keep_best(2, 0.7)
    checkpoint = Path(config.trainer.default_local_dir) / "global_step_2"
    weights = (checkpoint / "actor" / "huggingface" / "model.safetensors").read_bytes()
    shutil.rmtree(checkpoint)
    done = ends.finish(config)
    assert (done.model_step, done.best and done.best.value) == (2, 0.7)
    found = state.look(tmp_path / "stage")
    chose = {"stage": "stage", "setting": "stage.handover_metric", "metric": "val_dev/score"}
    assert found.chose == (chose,) and found.best is not None and found.best.metric == chose["metric"]
    assert (tmp_path / "stage" / "hf" / "model.safetensors").read_bytes() == weights
    assert {path.name for path in (tmp_path / "stage" / "best").iterdir()} == {"global_step_2", "notes"}
    config.stage.handover_metric = "val_dev/acc"  # by which nothing has been chosen
    assert ends.at_target(config), "nothing is trained again"
    assert ends.finish(config).model_step == 2 and state.look(tmp_path / "stage").chose == (chose,)
    config.stage.handover = "last"
    assert ends.finish(config).model_step == 5


def test_a_model_that_is_not_what_it_says_is_not_handed_on(tmp_path):
    for handover in ("last", "best"):
        config = config_of(tmp_path / handover, stage__handover=handover)
        weights = save(config, 2) / "actor" / "huggingface" / "model.safetensors"
        ends.note_target(config, 2, 2)
        (part := tmp_path / handover / "stage" / "hf.part").touch()  # no folder can be written there
        with pytest.raises(SystemExit, match="cannot hand on its model"):
            ends.finish(config)
        part.unlink()
        cut(weights)
        with pytest.raises(SystemExit, match="cut off or damaged"):
            ends.finish(config)
        save_file({"base_model.model.weight": torch.zeros(4)}, weights)
        with pytest.raises(SystemExit, match="has made all its steps, but .* cannot be handed on.* are missing"):
            ends.finish(config)
        assert ends.read_done(Path(config.paths.stage)) is None
        with pytest.raises(ExportError, match="are missing"):
            ends.StageEnd(config, 4, 0).keep_best(2, 0.5)


def test_a_best_model_of_a_training_that_is_not_continued_or_by_another_metric_is_forgotten(tmp_path):
    for number, (metric, done, handover, stays) in enumerate(
        [("val_dev/score", 0, "best", False), ("val_dev/acc", 1, "best", False), ("val_dev/z", 1, "best", False)]
        + [("val_dev/score", 2, "best", True), ("val_dev/acc", 1, "last", True)]
    ):
        config = config_of(tmp_path / str(number), stage__handover="best")
        trained(config, 0.9)
        assert (best := state.look(Path(config.paths.stage)).best) and best.step == 1
        config.stage.update({"handover_metric": metric, "handover": handover})
        ends.StageEnd(config, planned=4, done=done)
        assert state.look(Path(config.paths.stage)).best == (best if stays else None)


def test_a_gate_on_validation_that_no_longer_is_has_not_chosen_the_last_model(tmp_path):
    config = config_of(tmp_path, stage__gate={**LEAVE, "metric": "val_dev/acc", "window": 1})
    assert ends.StageEnd(config, planned=3, done=0)(1, {"val_dev/acc": 1.0}) == 2
    save(config, 2)
    ends.finish(config)
    assert [item["metric"] for item in state.look(tmp_path / "stage").chose or ()] == ["val_dev/acc"]
    for gate in ({**LEAVE, "value": 2.0}, None):
        config.stage.gate = gate
        assert not ends.at_target(config), "all steps are trained now"
    assert ends.StageEnd(config, planned=4, done=2).last == 4
    save(config, 4)
    assert (ends.finish(config).global_step, state.look(tmp_path / "stage").chose) == (4, ())


def test_a_validation_is_owed_where_a_kill_came_between_a_checkpoint_and_it(tmp_path):
    for number, (step, every, last, logged, owed) in enumerate(
        [(0, 1, 0, {}, False), (1, 1, 9, {}, True), (4, 2, 9, {"m": 1.0}, True), (4, 2, 9, {"val_dev/m": 1.0}, False)]
        + [(4, 3, 5, {}, False), (4, 3, 4, {}, True), (4, 3, 3, {}, True), (4, 0, 4, {}, False), (4, -1, 4, {}, False)]
    ):
        config = config_of(tmp_path / str(number), trainer__test_freq=every)
        save(config, step)
        write_metrics(tmp_path / str(number), "stage", "1.jsonl", [(4, logged)])
        assert ends.owes_validation(config, last) is owed, number
        ends.note_target(config, last, last)
        assert ends.StageEnd(config, planned=last, done=step).owed == (step if owed else None)


def test_what_would_save_or_end_otherwise_is_a_problem(tmp_path):
    minimum, checkpoint = {"kind": "minimum", "value": 1, "metric": "val_dev/acc"}, "actor_rollout_ref.actor.checkpoint"
    every, best, keep = "trainer.test_freq", {"stage.handover": "best"}, "trainer.max_actor_ckpt_to_keep"
    critic = "trainer.max_critic_ckpt_to_keep"
    fine = [
        *({}, best, {**best, every: 2, "trainer.save_freq": 4}, {"critic.enable": True, critic: 2}),
        *({"critic.enable": False, critic: 1}, {"stage.gate": {**minimum, "metric": "m"}, every: -1}),
        *({"trainer.save_freq": -1, keep: 1}, {"trainer.save_freq": 0, keep: 1}, {keep: None}),
        {f"{checkpoint}.save_contents": ["model", "optimizer", "extra", "hf_model", "more"]},
    ]
    wrong = [
        *({keep: 1}, {"critic.enable": True, critic: 1}, {"trainer.remove_previous_ckpt_in_save": True}),
        *({**best, every: -1}, {**best, every: 0}, {**best, every: 4, "trainer.save_freq": 6}),
        *({f"{checkpoint}.save_contents": ["hf_model"]}, {f"{checkpoint}.async_save": True}),
        {"stage.gate": minimum, every: -1},
    ]
    for changes in [*fine, *wrong]:
        config = config_of(tmp_path)
        for key, value in changes.items():
            OmegaConf.update(config, key, value, force_add=True)
        assert len([*ends.problems(config)]) == (changes in wrong), changes


def test_a_start_goes_on_from_the_newest_checkpoint_whose_last_file_is_there_and_ends_lines_that_were_cut(tmp_path):
    config, rollouts = config_of(tmp_path), tmp_path / "stage" / "rollouts"
    tracker = save(config, 2).parent / state.TRACKER
    for step in (3, 4):
        save(config, step)
    for split in ("train", "val"):
        (rollouts / split).mkdir(parents=True)
        for name, text in {"2": '{"a": 1}\n{"a"', "3": '{"a": 1}\n', "4": ""}.items():
            (rollouts / split / f"{name}.jsonl").write_text(text)
    (trained := rollouts.with_name("trained.jsonl")).write_text('{"step": 4, "pla')
    assert starts.repair(config) == ["from the checkpoint of step 4"]
    ends_of = [path.read_text()[-1:] for path in (*sorted(rollouts.glob("*/*")), trained)]
    assert ends_of == [*["\n", "\n", ""] * 2, "\n"]
    tracker.write_text("")  # cut off
    starts.repair(config)
    assert tracker.read_text() == "4"
    save(config, 5, noted=False)
    for step in (3, 4, 5):
        (tracker.with_name(f"global_step_{step}") / "data.pt").unlink()
    assert starts.repair(config)[0] == "checkpoint of step 5 is not whole and is removed" and tracker.read_text() == "2"
    assert sorted(state.step_folders(tracker.parent)) == [2] and len(list(tracker.parent.glob("*.aside"))) == 2
    (tracker.parent / "global_step_2" / state.QUEUE_FILE).write_text("{}")  # and its queue was not written
    assert starts.repair(config)[-1] == "no whole checkpoint is left: from the start model"
    assert not tracker.exists() and not state.resumes(config)


def test_checkpoints_are_known_by_their_whole_names_and_links_and_those_of_other_nodes_are_set_aside(tmp_path):
    known = save(config_of(tmp_path / "known"), 5).parent
    for name in ("global_step_10.bak", "global_step_010", "global_step_", "global_step_\uff11\uff10", "Global_step_10"):
        (known / name).mkdir()
    (known / "global_step_3").write_text("a file")
    assert sorted(state.step_folders(known)) == [5]
    for content in (b"", b"-4", b"1.5", b"\xff", b"9" * 10_000):
        (known / state.TRACKER).write_bytes(content)
        assert state.latest(known) == 0, content
    folder = save(config_of(tmp_path), 2, noted=False)
    (folder / "data.pt").unlink()
    folder.with_name("global_step_3").symlink_to(tmp_path)
    assert ["set aside" in line for line in state.go_back(folder.parent)] == [True, False, False]
    folder.mkdir()
    assert "set aside" in state.go_back(folder.parent, alone=False)[0] and len([*folder.parent.iterdir()]) == 2


@pytest.mark.parametrize("handover", ["last", "best"])
def test_a_damaged_export_is_made_again_from_its_checkpoint(tmp_path, handover):
    config = config_of(tmp_path, stage__handover=handover)
    trained(config, 0.9, 0.1)
    stage, first = tmp_path / "stage", ends.finish(config)
    weights = (stage / "hf" / "model.safetensors").read_bytes()
    cut(stage / "hf" / "model.safetensors")
    if handover == "best":
        cut(stage / "best" / "global_step_1" / "hf" / "model.safetensors")
    assert ends.read_done(stage) is None and ends.at_target(config)
    assert ends.finish(config).model_step == first.model_step
    assert (stage / "hf" / "model.safetensors").read_bytes() == weights and ends.read_done(stage)
