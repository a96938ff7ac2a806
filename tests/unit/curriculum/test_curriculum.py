"""The runner: which stages are run from what, what the state file says, and what stops a curriculum."""

import copy
import json
import os
import runpy
import shutil
import sys
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from unittest.mock import Mock

import pytest
from safetensors.numpy import save
from support.runs import validated, write_metrics

from recipe.curriculum import __main__ as command
from recipe.curriculum import runner, stages
from recipe.settings import compose as compose_stage
from recipe.stage import choosing, console, end, starts, state
from recipe.stage.weights import note_sums


def finished(folder: Path, step: int = 12, **note) -> None:
    (folder / "hf").mkdir(parents=True, exist_ok=True)
    (folder / "hf" / "config.json").write_text("{}")
    (folder / "hf" / "model.safetensors").write_bytes(save({}))
    state.update(folder, done=state.Done(step, step, step, time.time(), **note))


composed = cache(compose_stage)


def compose_once(name: str, overrides: list[str]):
    """What compose_stage gives, but each configuration is read from its thirty files once."""
    where = [override for override in overrides if override.startswith("paths.")]
    found = copy.deepcopy(composed(name, tuple(override for override in overrides if override not in where)))
    found.merge_with_dotlist(where)
    return found


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MODEL", "/m")
    monkeypatch.setattr(stages, "compose_stage", compose_once)
    monkeypatch.setattr(command.page, "write", lambda run: run / "report.html")
    monkeypatch.setattr(command.tables, "table", lambda runs: "table")


def log(watch, text):
    watch.log.parent.mkdir(parents=True, exist_ok=True)
    watch.log.write_text(text)
    return 1


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list:
    """What would be run; each stage then looks finished."""
    calls = []

    def launch(module, arguments, watch, note):
        calls.append((module, list(arguments), os.environ.get("MODEL")))
        log(watch, "said\n")
        if module == "recipe.train":
            finished(watch.stage)
        return 0

    monkeypatch.setattr(runner, "launch", launch)
    return calls


FOLDERS = ("stage1_format", "stage2_base", "stage3_full")


def statuses(run: Path) -> list[tuple[str, str]]:
    found = runner.Curriculum.read(run / runner.FILE)
    return [(entry.folder, entry.status) for entry in found.stages] if found else []


def test_only_unfinished_stages_are_run_in_order_each_from_the_one_before(tmp_path, launched, capsys, monkeypatch):
    finished(tmp_path / "stage1_format")
    write_metrics(tmp_path, "stage2_base", "1.jsonl", [(1, {"timing_s/step": 4.0, "timing_s/gen": 3.0})])
    given = f"paths.run={tmp_path}"
    (tmp_path / runner.FILE).write_bytes(b"\xff{")  # damaged: written anew
    command.main([given, "stage2:trainer.total_epochs=3"])
    assert [(arguments, model) for _, arguments, model in launched] == [
        (["--config-name", "stage2", "stage.previous=stage1_format", given, "trainer.total_epochs=3"], None),
        (["--config-name", "stage3", "stage.previous=stage2_base", given], None),
    ]
    said = capsys.readouterr().out
    assert "stage1_format: already done, 12 steps" in said
    assert "stage2_base: time: generation 75 %, rest 25 %" in said and said.count("time: ") == 1
    assert f"report        {tmp_path}/report.html" in said
    monkeypatch.setattr(sys, "argv", ["recipe.curriculum", given, "--stages=stage2"])
    runpy.run_path(command.__file__, run_name="__main__")
    assert len(launched) == 2 and statuses(tmp_path) == [(name, "done") for name in FOLDERS], "also those not run now"
    monkeypatch.setenv("MODEL", "/m")
    state.update(tmp_path / "stage2_base", done=None)  # a resume in the middle
    command.main([given])
    assert [model for _, _, model in launched[2:]] == [None]


def test_a_stage_is_not_repeated_for_a_gate_that_stops_nothing_and_its_entry_says_how_it_ended(tmp_path, launched):
    for note, said in (
        ({}, "all 12 steps"),
        ({"reason": "left", "gate": state.Verdict(True, False, "left")}, "left"),
        ({"gate": state.Verdict(True, False, "it is 0.5")}, "all 12 steps; gate passed: it is 0.5"),
        ({"gate": state.Verdict(False, False, "it is 0.4")}, "all 12 steps; gate not reached: it is 0.4"),
        ({"best": state.Best(3, 0.5, "val_dev/acc")}, "all 12 steps; hands on step 3, the best val_dev/acc (0.500)"),
    ):
        finished(tmp_path / "stage1_format", **note)
        command.main(["--stages=stage1", f"paths.run={tmp_path}"])
        (entry,) = runner.Curriculum.read(tmp_path / runner.FILE).stages
        assert (entry.status, entry.global_step, entry.target, entry.reason) == ("done", 12, 12, said)
    assert "recipe.train" not in [module for module, _, _ in launched]


def test_a_start_model_or_adapter_is_for_the_first_stage_only_and_needs_no_tiny_policy(tmp_path, launched, monkeypatch):
    for number, key in enumerate(("++actor_rollout_ref.model.path", "actor_rollout_ref.model.lora_adapter_path")):
        given = f"{key}=/given"
        launched.clear()
        monkeypatch.delenv("MODEL", raising=False)
        (tmp_path / str(number) / runner.FILE).mkdir(parents=True)  # a note that cannot be written stops no stage
        command.main([given, "actor_rollout_ref.model.lora_rank=8", f"paths.run={tmp_path}/{number}"])
        models = [(module, given in arguments) for module, arguments, _ in launched]
        assert models == [("recipe.train", True), ("recipe.train", False), ("recipe.train", False)]


def test_the_tiny_policy_is_made_for_its_own_curriculum_where_no_model_is_there(tmp_path, monkeypatch, launched):
    monkeypatch.delenv("MODEL")
    monkeypatch.setattr(stages, "compose_stage", compose_stage)
    given = [f"paths.tiny_policy={tmp_path}/tiny/hf", "--stages=stage1", "stage.before=true"]
    command.main([f"paths.run={tmp_path}/a", *given])
    (tmp_path / "b" / "stage0_sft" / "hf").mkdir(parents=True)
    (tmp_path / "b" / "stage0_sft" / "hf" / "config.json").touch()
    command.main([f"paths.run={tmp_path}/b", *given])
    assert [module for module, _, _ in launched] == ["recipe.sft", "recipe.train", "recipe.train"]


def test_a_warm_start_is_of_this_model_and_rows_and_no_stage_goes_on_from_another(tmp_path, launched, monkeypatch):
    launch, folder, data = runner.launch, tmp_path / "run", tmp_path / "data"
    monkeypatch.setattr(stages, "compose_stage", lambda name, overrides: compose_stage(name, overrides))
    for path in (tmp_path / "a" / "x.safetensors", tmp_path / "b" / "x.bin", data / "stage0_sft.parquet"):
        path.parent.mkdir()
        path.write_text(str(path))

    def note(module, arguments, watch, note):
        launch(module, arguments, watch, note)
        group = "sft_hardware" if module == "recipe.sft" else "hardware"
        config, digest = compose_stage(arguments[1], arguments[2:], group), None
        assert config.paths.stage == str(watch.stage)
        if module == "recipe.sft":
            finished(watch.stage)
            digest = starts.fingerprint(config)
        else:
            config.actor_rollout_ref.model.path = config.actor_rollout_ref.model.path or f"{folder}/stage0_sft/hf"
            write_metrics(folder, watch.stage.name, "1.jsonl", [(0, {"val/acc": 0.5})])
        state.update(watch.stage, began=replace(starts.start_of(config), digest=digest))
        return 0

    def run(model: str | None, *given: str, fresh: bool = False) -> str:
        monkeypatch.delenv("MODEL", raising=False)
        if model:
            monkeypatch.setenv("MODEL", f"{tmp_path}/{model}")
        if fresh:
            shutil.rmtree(folder / "stage1_format")
        launched.clear()
        where = f"{'++' if model else ''}paths.data={data}"
        given = ("hardware=cpu", f"paths.run={folder}", where, "stage.before=true", *given)
        given = ("stage.handover=best", "trainer.save_freq=1000", "trainer.test_freq=1000", *given)
        command.main(["--stages=stage1", *given])
        return " ".join("before" if "stage.name=before" in line else module[7:] for module, line, _ in launched)

    monkeypatch.setattr(runner, "launch", note)
    assert run("a") == "before sft train" and statuses(folder) == [("stage1_format", "done")]
    assert [model for _, _, model in launched] == [f"{tmp_path}/a", f"{tmp_path}/a", None]
    before = compose_stage("stage1", launched[0][1][2:])
    found = before.trainer.val_only, before.trainer.val_before_train, before.trainer.save_freq
    assert (*found, before.trainer.resume_mode) == (True, True, -1, "disable")
    assert before.data.train_files == [f"{data}/stage1_format.parquet"] and choosing.deciding(before) == []
    assert before.actor_rollout_ref.model.path == f"{tmp_path}/a" and state.look(folder / "before").began.files
    assert run("a") == run(None) == run("a/") == ""
    shutil.rmtree(folder / "before" / "metrics")  # as after an interruption
    assert run("a") == "before"
    rules = ["interaction.val.max_steps=9", "interaction.docs=json", "interaction.max_tokens_per_reply=9"]
    rules += ["interaction.protocol=hermes", "interaction.user={kind:scripted,lines:[Bye]}"]
    rules += ["actor_rollout_ref.rollout.val_kwargs.n=2", "data.max_response_length=900", f"environment.guard={data}/g"]
    assert [run("a", rule) for rule in rules] == ["before"] * len(rules), "by other rules or with other rows"
    (data / "val.parquet").write_text("other rows")
    assert run(None, "stage.before=false") == "" and run(None) == "before" and run("a") == ""
    for model in ("b", "a", None):
        with pytest.raises(SystemExit, match=r"began with another model than this .*/[ab]\. Set .*resume_mode=disable"):
            run(model)
        assert launched == []
        (data / "stage0_sft.parquet").write_text("other rows")
    assert run(None, "stage.warm_start=null") == "" and run("a", fresh=True) == "sft train"
    assert run("b", "--stages=stage1,stage2", fresh=True) == "before sft train train"
    assert launched[0][1][1] == "stage1" and [model for _, _, model in launched[2:]] == [None, None]
    (tmp_path / "b" / "x.bin").write_text("other weights")
    assert run(None, fresh=True) == "before sft train" and launched[1][1][-1] == f"model.path={tmp_path}/b"
    assert run("b", "trainer.resume_mode=disable", "launcher.precision=bfloat16") == "before sft train"
    assert compose_stage("sft", launched[1][1][2:], "sft_hardware").launcher.precision == "bfloat16"
    assert run("b", "--stages=stage1,stage2", "stage1:trainer.resume_mode=disable") == "train"
    stage, checkpoint = folder / "stage1_format", folder / "stage1_format" / "checkpoints" / "global_step_1" / "data.pt"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.touch()
    for model in ("b", None):  # a resume in the middle
        state.update(stage, done=None)
        assert run(model) == "train" and launched[0][2] is None
    with pytest.raises(SystemExit, match="began with another model"):
        run("a")
    shutil.rmtree(stage / "checkpoints")
    state.update(stage, done=None)  # killed before its first save
    assert run("a") == "before sft train"
    checks = list[str | None]()
    with monkeypatch.context() as patch:
        patch.setattr(runner.subprocess, "call", lambda line, env: checks.append(env.get("MODEL")) or 0)
        assert run("a", "preflight_only=true") == run("b", "preflight_only=true") == ""
        state.update(folder / "stage0_sft", done=None)  # killed
        run(None, "preflight_only=true")
    assert checks == [None, f"{tmp_path}/b", f"{tmp_path}/a"], "the warm start of a was there"
    assert run("a", fresh=True) == "sft train"
    shutil.rmtree(tmp_path / "a")
    assert run(None) == "", "nothing needs it any more"
    given = f"actor_rollout_ref.model.path={tmp_path}/b"
    assert run(None, given, fresh=True) == "train" and run(None) == "", "a model that is given is not warm-started"


def test_a_stage_that_is_done_from_another_model_is_not_taken_for_that_of_the_model_named_now(tmp_path, launched):
    given = ["actor_rollout_ref.model.path=/m", f"paths.run={tmp_path}"]
    for name, model in (("stage1", "/a"), ("stage2", f"{tmp_path}/stage1_format/hf")):
        config = compose_stage(name, given)
        finished(Path(config.paths.stage))
        begun = state.Start(model, files=(config.data.train_files,))
        state.update(Path(config.paths.stage), began=begun)
    with pytest.raises(SystemExit, match="stage1_format is done and was trained from /a, not from /m. Leave MODEL"):
        command.main(["--stages=stage1,stage2", *given])
    first = tmp_path / "stage1_format"
    state.update(first, began=replace(state.look(first).began, model="/m"))
    command.main(["--stages=stage1,stage2", *given])
    note_sums(first / "hf")
    state.update(tmp_path / "stage2_base", began=replace(begun, weights="others"))
    for chosen in (["--stages=stage1,stage2", *given], ["--stages=stage2", *given[1:]]):
        with pytest.raises(SystemExit, match="from another model than stage1_format hands on now"):
            command.main(chosen)
    assert launched == []


def test_a_failed_or_interrupted_stage_says_why_and_which_command_goes_on(tmp_path, monkeypatch, launched):
    full = "a line\nOSError: [Errno 28] No space left on device\n"
    launch = runner.launch
    monkeypatch.setattr(runner, "launch", lambda module, arguments, watch, note: log(watch, full))
    with pytest.raises(SystemExit, match="(?s)No space left.*ended with status 1.*the disk is full.*What was done"):
        command.main([f"paths.run={tmp_path}"])
    assert statuses(tmp_path) == [*zip(FOLDERS, ("failed", "waiting", "waiting"), strict=True)]
    assert runner.Curriculum.read(tmp_path / runner.FILE).stages[0].reason == console.FULL
    monkeypatch.setattr(runner, "launch", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(SystemExit, match="command without trainer.resume_mode=disable"):
        command.main([f"paths.run={tmp_path}", "stage2:trainer.resume_mode=disable"])
    monkeypatch.setattr(runner, "launch", launch)
    monkeypatch.setattr(end, "read_done", lambda folder: None)
    with pytest.raises(SystemExit, match="ended without reaching its last step"):
        command.main([f"paths.run={tmp_path}"])


def test_all_stages_start_over_where_that_is_asked_for_and_old_notes_count_no_more(tmp_path, launched, monkeypatch):
    for name in ("stage1_format", "stage2_base"):
        finished(tmp_path / name, step=9)
    given = ["--stages=stage1,stage2", "trainer.resume_mode=disable", f"paths.run={tmp_path}"]
    given += ["actor_rollout_ref.model.path=/m"]
    command.main(given)
    assert [arguments[1] for _, arguments, _ in launched] == ["stage1", "stage2"]
    monkeypatch.setattr(runner, "launch", lambda module, arguments, watch, note: log(watch, "no data\n"))
    with pytest.raises(SystemExit, match="(?s)status 1.*command without trainer.resume_mode=disable goes on"):
        command.main(given)
    assert end.read_done(tmp_path / "stage1_format") is not None, "nothing was set aside yet"
    assert statuses(tmp_path)[0] == ("stage1_format", "failed")


def test_a_preflight_checks_every_stage_and_starts_none(tmp_path, launched, monkeypatch, capsys):
    calls, fails = [], ["stage2"]
    monkeypatch.setattr(runner.subprocess, "call", lambda line, env: calls.append((line[4:], env)) or line[4] in fails)
    given, model, run = "preflight_only=true", "actor_rollout_ref.model.path=/given", f"paths.run={tmp_path}/run"
    with pytest.raises(SystemExit, match="stage1_format: passed\nstage2_base: cannot start.*\nstage3_full: passed"):
        command.main([given, model, run])
    assert [line[0] for line, _ in calls] == ["stage1", "stage2", "stage3"] and not (tmp_path / "run").exists()
    assert all("preflight_only=true" in line and model in line for line, _ in calls)
    assert ["stage.previous=null" == line[-2] for line, _ in calls] == [False, True, True]
    fails.clear()
    finished(tmp_path / "run" / "stage1_format")  # its model is checked, not the start model
    command.main([given, model, run])
    found = [(model in line, "stage.previous=null" in line[3:], env.get("MODEL")) for line, env in calls[4:]]
    assert found == [(False, False, None), (True, True, "/m")]
    command.main(["--ablations=ablations", given, model, run])
    with pytest.raises(SystemExit, match="2"):
        command.main(["--ablations=ablations", "--stages=stage1", given, model, run])
    assert len(calls) == 16 and launched == [] and "report " not in capsys.readouterr().out


def test_a_failed_gate_stops_with_a_report_and_is_judged_again_at_the_next_start(tmp_path, monkeypatch, launched):
    launch, only, gate = runner.launch, "--stages=stage1,stage2", state.Verdict(False, True, "reward is 0.4, not 0.5")
    monkeypatch.setattr(runner, "launch", lambda *given: launch(*given) or finished(given[2].stage, gate=gate) or 0)
    with pytest.raises(SystemExit, match="(?s)reward is 0.4, not 0.5.*total_epochs"):
        command.main([f"paths.run={tmp_path}", only])
    assert statuses(tmp_path)[:2] == [("stage1_format", "gate failed"), ("stage2_base", "waiting")]
    monkeypatch.setattr(runner, "launch", launch)
    command.main([f"paths.run={tmp_path}", only])
    assert [arguments[1] for _, arguments, _ in launched] == ["stage1", "stage1", "stage2"]


def test_another_curriculum_has_its_own_stages_gates_and_names(tmp_path, launched):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "overrides: [data.seed=5, trainer.test_freq=4, actor_rollout_ref.model.path=/own]\n"
        "stages:\n- {name: stage1, config: stage1, gate: null, overrides: [data.seed=6]}\n"
        "- {name: polish, config: stage1, handover: best, gate: {kind: plateau, window: 2},\n"
        "   overrides: [data.seed=6, trainer.test_freq=5]}\n"
    )
    command.main([f"--curriculum={path}", f"paths.run={tmp_path}/run", "polish:data.seed=8", "data.seed=7"])
    first, polish = (compose_stage("stage1", [*call[1][2:], "hardware=gpu8"]) for call in launched)  # it has a gate
    assert (first.data.seed, first.trainer.test_freq, first.stage.gate) == (7, 4, None)
    assert (polish.data.seed, polish.trainer.test_freq) == (8, 5), "one stage's come after those of all"
    assert [one.actor_rollout_ref.model.path for one in (first, polish)] == ["/own", None]
    assert (polish.stage.name, polish.stage.previous) == ("polish", "stage1_format")
    assert (polish.stage.handover, polish.stage.gate) == ("best", {"kind": "plateau", "window": 2})
    assert statuses(tmp_path / "run") == [("stage1_format", "done"), ("polish", "done")]
    for name in ("qwen3_4b", "laptop", "long", "with_stage4"):
        assert stages.read_stages(stages.read_yaml(stages.Plan, stages.find(name)), path, ["hardware=gpu8"]), name
    runs = stages.read_yaml(command.Ablations, stages.find("steptool", "ablations")).runs.values()
    assert [plan.overrides for plan in runs] == [("offline.rewards=final",), ()]


def test_a_mistake_in_a_curriculum_is_answered_in_one_line_before_its_first_stage(tmp_path, launched):
    path = tmp_path / "mine.yaml"
    mistakes = (
        *("--stages=stage9", "--curriculum=nowhere", "stage9:data.seed=1", "stage1:data.sed=1"),
        *("stage3:trainer.v1.trainer_mode=separate_async", "stage3:interaction.train.at_step_limit=stop"),
    )
    for given in (
        *(*mistakes, "stages: []", "stages: [stage1, stage1]", "stages: [{name: stage7}]", "stages: stage1"),
        *("stages: [{name: stage1, gates: null}]", "stages: [stage1, {name: stage1_format, config: stage3}]"),
        *("stages: [../evil]", "stages: [{name: x, config: ../config/stage1}]", "stages: [stage1]\noverrides: [3]"),
        *("stages: [", "\xff", "stages: [stage1, {name: stage1, config: stage3}]"),
        *(f"stages: [{{name: stage1, overrides: [stage.name={name}]}}]" for name in ("other", "z")),
        "stages: [{name: stage1, gate: {kind: leave_at, value: high}}]",
    ):
        path.write_text(given, encoding="latin-1")
        with pytest.raises(SystemExit) as said:
            command.main([given if given in mistakes else f"--curriculum={path}", f"paths.run={tmp_path}/run"])
            pytest.fail(given)
        assert given in mistakes or ("\n" not in str(said.value) and len(str(said.value)) < 600), given
    assert launched == []


def test_each_ablation_runs_in_a_folder_of_its_own_also_after_a_failure(tmp_path, launched, monkeypatch, capsys):
    launch, read_done = runner.launch, end.read_done

    def train(module, arguments, watch, note):
        validated(watch.stage.parent, 12, {"multi_turn_base_1": [1.0]}, stage=watch.stage.name)
        write_metrics(watch.stage.parent, watch.stage.name, "1.jsonl", [(12, {"critic/score/mean": 0.5})])
        return launch(module, arguments, watch, note) or int("no_augmentation" in str(watch.stage))

    monkeypatch.setattr(runner, "launch", train)
    monkeypatch.setattr(end, "read_done", lambda it: None if "no_augmentation" in str(it) else read_done(it))
    with pytest.raises(SystemExit, match="1 of 4 runs failed: no_augmentation"):
        command.main(["--ablations=ablations", f"paths.run={tmp_path}"])
    folders = ["curriculum", "single_stage", "no_augmentation", "all_or_nothing"]
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == sorted(folders)
    assert [model for _, arguments, model in launched if "stage.previous=null" in arguments] == ["/m"] * 4
    assert len(launched) == 8 and "(4 of 4)" in capsys.readouterr().out
    differences = json.loads((tmp_path / "pass_rate.json").read_text())["differences"]
    assert {pair["baseline"] for pair in differences} == {"curriculum/stage1_format"}
    assert sum("reward.custom_reward_function.path=pkg://rewards.all_or_nothing" in a for _, a, _ in launched) == 2
    for once in ("interaction.train.environments.bfcl.augment=false", "trainer.total_epochs=32"):
        assert sum(once in arguments for _, arguments, _ in launched) == 1
    monkeypatch.setattr(runner, "launch", lambda module, arguments, watch, note: log(watch, "no data\n"))
    (tmp_path / "mine.yaml").write_text("runs: {one: {stages: [stage1]}}")
    with pytest.raises(SystemExit, match="1 of 1 runs failed: one"):  # and no table can be made
        command.main([f"--ablations={tmp_path}/mine.yaml", f"paths.run={tmp_path}/other"])
