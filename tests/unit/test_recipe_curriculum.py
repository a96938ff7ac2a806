"""The curriculum's bookkeeping: which stages are left, and what a step looks like on the console."""

import json
import os
from pathlib import Path

import pytest

from recipe import curriculum
from recipe.train import export_folder, read_done


def finished(stage: Path, step: int = 12) -> None:
    (stage / "hf").mkdir(parents=True)
    (stage / "hf" / "config.json").write_text("{}")
    (stage / "done.json").write_text(json.dumps({"global_step": step, "model": str(stage / "hf")}))


def test_a_stage_is_done_only_with_its_note_and_its_model(tmp_path):
    assert read_done(tmp_path) is None
    finished(tmp_path)
    assert read_done(tmp_path) == {"global_step": 12, "model": str(tmp_path / "hf")}
    (tmp_path / "hf" / "config.json").unlink()
    assert read_done(tmp_path) is None


def test_an_exported_model_replaces_the_old_one_as_a_whole(tmp_path):
    for number in (1, 2):
        source = tmp_path / f"source{number}"
        source.mkdir()
        (source / f"file{number}").write_text("x")
        export_folder(source, tmp_path / "hf")
    assert [path.name for path in (tmp_path / "hf").iterdir()] == ["file2"]
    assert not (tmp_path / "hf.part").exists()


def test_only_unfinished_stages_are_run_in_order_and_each_gets_the_overrides(tmp_path, monkeypatch, capsys):
    ran = []

    def run_stage(module, arguments, stage, logs):
        ran.append((module, arguments))
        finished(stage)

    monkeypatch.setenv("HARDWARE", "cpu")
    monkeypatch.setenv("MODEL", "/m")
    monkeypatch.setattr(curriculum, "run_stage", run_stage)
    monkeypatch.setattr(curriculum.report, "write", lambda run: run / "report.html")
    monkeypatch.setattr(curriculum.report, "table", lambda runs: "table")
    finished(tmp_path / "stage1_format")
    override = f"paths.run={tmp_path}"
    curriculum.main([override])
    assert ran == [("recipe.train", ["--config-name", f"stage{number}", override]) for number in (2, 3)]
    assert "stage1_format: already done, 12 steps" in capsys.readouterr().out


def test_a_start_model_is_for_the_first_stage_only(tmp_path, monkeypatch):
    seen = []

    def run_stage(module, arguments, stage, logs):
        seen.append((os.environ.get("MODEL"), [item for item in arguments if "model.path" in item]))
        finished(stage)

    monkeypatch.setenv("HARDWARE", "cpu")
    monkeypatch.setenv("MODEL", "/mine")
    monkeypatch.setattr(curriculum, "run_stage", run_stage)
    monkeypatch.setattr(curriculum.report, "write", lambda run: run / "report.html")
    monkeypatch.setattr(curriculum.report, "table", lambda runs: "table")
    override = "actor_rollout_ref.model.path=/given"
    curriculum.main([override, f"paths.run={tmp_path}"])
    assert seen == [("/mine", [override]), (None, []), (None, [])]


def test_a_stage_that_ends_without_reaching_its_last_step_is_not_counted_as_done(tmp_path, monkeypatch):
    monkeypatch.setenv("HARDWARE", "cpu")
    monkeypatch.setenv("MODEL", "/m")
    monkeypatch.setattr(curriculum, "run_stage", lambda *arguments: None)
    with pytest.raises(SystemExit, match="not counted as done"):
        curriculum.main([f"paths.run={tmp_path}"])


def test_the_tiny_policy_is_made_first_on_a_cpu_without_a_model(tmp_path, monkeypatch):
    ran = []
    monkeypatch.setenv("HARDWARE", "cpu")
    monkeypatch.delenv("MODEL", raising=False)
    monkeypatch.setattr(curriculum, "run_stage", lambda module, *rest: ran.append(module))
    with pytest.raises(SystemExit):
        curriculum.main([f"paths.run={tmp_path}"])
    assert ran == ["recipe.sft", "recipe.train"]


def test_an_unknown_stage_is_refused_with_the_known_ones():
    with pytest.raises(SystemExit, match="stage9.*stage1, stage2, stage3"):
        curriculum.main(["--stages=stage9"])


def test_a_step_is_one_line_with_the_numbers_a_person_watches():
    line = curriculum.step_line(
        3, {"critic/score/mean": 1.25, "train/progress": 0.5, "val-core/bfcl/base/acc/mean@1": 0}
    )
    assert line == "reward 1.25  progress 0.5  validation base 0"
    assert curriculum.step_line(49, {"train/loss": 1.0}) == ""
    assert curriculum.step_line(50, {"train/loss": 1.0}) == "loss 1.000"
