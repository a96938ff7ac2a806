"""The runner: which stages are run from what, what the state file says, and what stops a curriculum."""

import copy
import json
import os
import time
from pathlib import Path

import pytest
from safetensors.numpy import save
from support.runs import write_metrics

from recipe.curriculum import __main__ as command
from recipe.curriculum import ablations, compose_stage, runner, stages, state
from recipe.stage import choosing, end
from recipe.stage import state as stage_state

ADAPTER = "actor_rollout_ref.model.lora_adapter_path"


def finished(folder: Path, step: int = 12, **note) -> None:
    (folder / "hf").mkdir(parents=True, exist_ok=True)
    (folder / "hf" / "config.json").write_text("{}")
    (folder / "hf" / "model.safetensors").write_bytes(save({}))
    stage_state.update(folder, done=stage_state.Done(step, step, step, time.time(), **note))


COMPOSED: dict = {}


def compose_once(name: str, overrides: list[str]):
    """What compose_stage gives, but each configuration is read from its thirty files once."""
    where = [override for override in overrides if override.startswith("paths.")]
    others = [override for override in overrides if override not in where]
    key = name, *others
    if key not in COMPOSED:
        COMPOSED[key] = compose_stage(name, others)
    composed = copy.deepcopy(COMPOSED[key])
    composed.merge_with_dotlist(where)
    return composed


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HARDWARE", "tiny")
    monkeypatch.setenv("MODEL", "/m")
    monkeypatch.setattr(stages, "compose_stage", compose_once)
    monkeypatch.setattr(command.page, "write", lambda run: run / "report.html")
    monkeypatch.setattr(command.tables, "table", lambda runs: "table")


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list:
    """What would be run; each stage then looks finished."""
    calls = []

    def launch(module, arguments, watch, note):
        calls.append((module, list(arguments), os.environ.get("MODEL")))
        watch.log.parent.mkdir(parents=True, exist_ok=True)
        watch.log.write_text("said\n")
        if module == "recipe.train":
            finished(watch.stage)
        return 0

    monkeypatch.setattr(runner, "launch", launch)
    return calls


def statuses(run: Path) -> list[tuple[str, str]]:
    return [(entry.folder, entry.status) for entry in state.read(run).stages]


def test_a_stage_is_done_only_with_its_note_and_its_model(tmp_path):
    assert end.read_done(tmp_path) is None
    finished(tmp_path)
    assert end.read_done(tmp_path).global_step == 12
    (tmp_path / "hf" / "config.json").unlink()
    assert end.read_done(tmp_path) is None


def test_only_unfinished_stages_are_run_in_order_each_from_the_one_before(tmp_path, launched, capsys):
    finished(tmp_path / "stage1_format")
    command.main([f"paths.run={tmp_path}"])
    assert [arguments for _, arguments, _ in launched] == [
        ["--config-name", "stage2", "stage.previous=stage1_format", f"paths.run={tmp_path}"],
        ["--config-name", "stage3", "stage.previous=stage2_base", f"paths.run={tmp_path}"],
    ]
    assert "stage1_format: already done, 12 steps" in capsys.readouterr().out
    assert statuses(tmp_path) == [("stage1_format", "done"), ("stage2_base", "done"), ("stage3_full", "done")]


def test_a_stage_ends_with_a_line_of_where_its_time_went(tmp_path, launched, capsys):
    write_metrics(tmp_path, "stage1_format", "1.jsonl", [(1, {"timing_s/step": 4.0, "timing_s/gen": 3.0})])
    command.main([f"paths.run={tmp_path}"])
    said = capsys.readouterr().out
    assert "stage1_format: time: generation 75 %, rest 25 %\nstage2_base: started" in said
    assert said.count("time: ") == 1, "the others have logged none"


@pytest.mark.parametrize("given", ["actor_rollout_ref.model.path=/given", f"{ADAPTER}=/given"])
def test_a_start_model_or_adapter_is_for_the_first_stage_only(given, tmp_path, launched):
    command.main([given, "actor_rollout_ref.model.lora_rank=8", f"paths.run={tmp_path}"])
    models = [(given in arguments, model) for _, arguments, model in launched]
    assert models == [(True, "/m"), (False, None), (False, None)]


def test_an_adapter_that_is_named_needs_no_tiny_policy(tmp_path, launched, monkeypatch):
    monkeypatch.delenv("MODEL")
    command.main([f"{ADAPTER}=/given", "actor_rollout_ref.model.lora_rank=8", f"paths.run={tmp_path}"])
    assert [module for module, _, _ in launched] == ["recipe.train"] * 3


def test_the_model_of_the_warm_start_is_validated_before_it_until_that_is_done(tmp_path, launched, monkeypatch):
    monkeypatch.setenv("HARDWARE", "cpu")
    monkeypatch.setattr(stages, "compose_stage", lambda name, overrides: compose_stage(name, overrides))
    given = ["--stages=stage1", "stage.handover=best", "trainer.save_freq=1000", f"paths.run={tmp_path}"]

    def run() -> list[str]:
        monkeypatch.setenv("MODEL", "/m")
        launched.clear()
        command.main(given)
        return [f"{module} {'stage.name=before' in arguments} {model}" for module, arguments, model in launched]

    began = ["recipe.train True /m", "recipe.sft False /m", "recipe.train False None"]
    assert run() == began
    before = compose_stage("stage1", launched[0][1][2:])
    assert (before.paths.stage, before.actor_rollout_ref.model.path) == (f"{tmp_path}/before", "/m")
    assert (before.trainer.val_only, before.trainer.val_before_train, before.trainer.save_freq) == (True, True, -1)
    assert before.data.train_files == ["data/cpu/stage1_format.parquet"]
    assert choosing.deciding(before) == []
    assert compose_stage("stage1", launched[2][1][2:]).trainer.val_before_train
    assert statuses(tmp_path) == [("stage1_format", "done")]
    (tmp_path / "stage1_format" / "state.json").unlink()
    assert run() == began  # as after an interruption: nothing was logged
    write_metrics(tmp_path, "before", "1.jsonl", [(0, {"val/acc": 0.5})])
    (tmp_path / "stage1_format" / "state.json").unlink()
    assert run() == began[1:]


def test_a_stage_that_is_done_from_another_model_is_not_taken_for_that_of_the_model_named_now(tmp_path, launched):
    finished(tmp_path / "stage1_format")
    for model, refused in (("/a", True), ("/m", False)):
        stage_state.update(tmp_path / "stage1_format", began=stage_state.Start(model))
        given = ["--stages=stage1", "actor_rollout_ref.model.path=/m", f"paths.run={tmp_path}"]
        if refused:
            with pytest.raises(
                SystemExit, match="stage1_format is done and was trained from /a, not from /m. Leave MODEL"
            ):
                command.main(given)
        else:
            command.main(given)
    assert launched == []


def test_all_stages_start_over_where_that_is_asked_for_and_their_old_notes_are_not_taken_for_new_ones(
    tmp_path, launched, monkeypatch
):
    for name in ("stage1_format", "stage2_base"):
        finished(tmp_path / name, step=9)
    given = ["--stages=stage1,stage2", "trainer.resume_mode=disable", f"paths.run={tmp_path}"]
    given += ["actor_rollout_ref.model.path=/m"]
    command.main(given)
    assert [arguments[1] for _, arguments, _ in launched] == ["stage1", "stage2"]
    assert [entry.global_step for entry in state.read(tmp_path).stages] == [12, 12]

    def refuse(module, arguments, watch, note):
        watch.log.parent.mkdir(parents=True, exist_ok=True)
        watch.log.write_text("stage1_format cannot start: no data\n")
        return 1

    monkeypatch.setattr(runner, "launch", refuse)
    with pytest.raises(SystemExit, match="(?s)status 1.*command without trainer.resume_mode=disable goes on"):
        command.main(given)
    assert end.read_done(tmp_path / "stage1_format") is not None, "nothing was set aside yet"
    assert statuses(tmp_path)[0] == ("stage1_format", "failed")


def test_a_preflight_checks_every_stage_and_starts_none(tmp_path, launched, monkeypatch):
    calls, status = [], {"stage1": 0, "stage2": 1, "stage3": 0}

    def call(line, env):
        calls.append((line[4:], env.get("MODEL")))
        return status[line[4]]

    monkeypatch.setattr(runner.subprocess, "call", call)
    given, model, run = "preflight_only=true", "actor_rollout_ref.model.path=/given", f"paths.run={tmp_path}/run"
    with pytest.raises(SystemExit, match="stage1_format: passed\nstage2_base: cannot start.*\nstage3_full: passed"):
        command.main([given, model, run])
    assert [line[0] for line, _ in calls] == ["stage1", "stage2", "stage3"] and not (tmp_path / "run").exists()
    assert all("preflight_only=true" in line and model in line for line, _ in calls)
    assert ["stage.previous=null" == line[-2] for line, _ in calls] == [False, True, True]
    status["stage2"] = 0
    finished(tmp_path / "run" / "stage1_format")  # its model is checked, not the start model
    command.main([given, model, run])
    assert [(model in line, "stage.previous=null" in line[3:], named) for line, named in calls[4:]] == [
        (False, False, None),
        (True, True, "/m"),
    ]
    ablations.main("ablations", [given, model, run])
    assert len(calls) == 16 and launched == [] and not (tmp_path / "run" / "ablations.txt").exists()


def test_a_curriculum_for_a_real_model_does_not_start_with_the_tiny_policy(tmp_path, launched, monkeypatch):
    monkeypatch.delenv("MODEL")
    monkeypatch.setattr(stages, "compose_stage", compose_stage)
    with pytest.raises(SystemExit, match="Set MODEL="):
        command.main(["--curriculum=qwen3_4b", f"paths.run={tmp_path}"])
    assert launched == []


def test_a_run_that_cannot_be_written_is_one_line(tmp_path, launched):
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit, match="Not a directory: .*file/run.* Set paths.run or RUN to a folder that can be"):
        command.main([f"paths.run={tmp_path}/file/run"])


def test_an_override_can_be_for_one_stage(tmp_path, launched):
    command.main([f"paths.run={tmp_path}", "stage2:trainer.total_epochs=3"])
    assert ["trainer.total_epochs=3" in arguments for _, arguments, _ in launched] == [False, True, False]


def test_a_stage_that_ends_without_reaching_its_last_step_is_not_counted_as_done(tmp_path, monkeypatch, launched):
    monkeypatch.setattr(end, "read_done", lambda folder: None)
    with pytest.raises(SystemExit, match="ended without reaching its last step"):
        command.main([f"paths.run={tmp_path}"])
    assert statuses(tmp_path)[0] == ("stage1_format", "failed")


def test_a_failed_stage_shows_the_end_of_its_log_and_the_likely_cause(tmp_path, monkeypatch):
    def launch(module, arguments, watch, note):
        watch.log.parent.mkdir(parents=True, exist_ok=True)
        watch.log.write_text("a line\nOSError: [Errno 28] No space left on device\n")
        return 1

    monkeypatch.setattr(runner, "launch", launch)
    with pytest.raises(SystemExit, match="(?s)No space left.*ended with status 1.*the disk is full") as failure:
        command.main([f"paths.run={tmp_path}"])
    assert "What was done before is kept" in str(failure.value)
    assert statuses(tmp_path) == [("stage1_format", "failed"), ("stage2_base", "waiting"), ("stage3_full", "waiting")]


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("trainer.resume_mode=auto", "The same command goes on"),
        ("stage2:trainer.resume_mode=disable", "The same command without trainer.resume_mode=disable goes on"),
    ],
)
def test_an_interrupted_curriculum_says_which_command_goes_on(tmp_path, monkeypatch, override, said):
    def interrupted(module, arguments, watch, note):
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "launch", interrupted)
    with pytest.raises(SystemExit, match=said):
        command.main([f"paths.run={tmp_path}", override])


def test_a_failed_stage_does_not_advise_a_command_that_starts_an_earlier_one_over(tmp_path, monkeypatch, launched):
    launch = runner.launch
    monkeypatch.setattr(runner, "launch", lambda *given: int(launch(*given) or "stage2" in given[1]))
    finished(tmp_path / "stage2_base")
    fresh = end.read_done
    monkeypatch.setattr(end, "read_done", lambda folder: None if folder.name == "stage2_base" else fresh(folder))
    with pytest.raises(SystemExit, match="stage2_base ended with.*\n.*command without trainer.resume_mode=disable"):
        command.main([f"paths.run={tmp_path}", "stage1:trainer.resume_mode=disable"])


def test_a_failed_gate_stops_with_a_report_and_is_judged_again_at_the_next_start(tmp_path, monkeypatch, launched):
    launch, only = runner.launch, "--stages=stage1,stage2"
    gate = {"passed": False, "stops": True, "text": "reward is 0.4, below the gate's 0.5"}

    def fail_gate(module, arguments, watch, note):
        code = launch(module, arguments, watch, note)
        finished(watch.stage, gate=gate)
        return code

    monkeypatch.setattr(runner, "launch", fail_gate)
    with pytest.raises(SystemExit, match="(?s)gate failed.*below the gate's 0.5.*total_epochs"):
        command.main([f"paths.run={tmp_path}", only])
    assert statuses(tmp_path)[:2] == [("stage1_format", "gate failed"), ("stage2_base", "waiting")]
    monkeypatch.setattr(runner, "launch", launch)
    command.main([f"paths.run={tmp_path}", only])
    assert [arguments[1] for _, arguments, _ in launched] == ["stage1", "stage1", "stage2"]


def test_the_tiny_policy_is_made_first_on_a_cpu_without_a_model(tmp_path, monkeypatch, launched):
    monkeypatch.delenv("MODEL")
    monkeypatch.setattr(stages, "compose_stage", compose_stage)
    command.main([f"paths.run={tmp_path}", f"paths.tiny_policy={tmp_path}/tiny/hf", "--stages=stage1"])
    assert [module for module, _, _ in launched] == ["recipe.sft", "recipe.train"]


def test_it_is_not_made_for_a_run_that_was_warm_started_with_a_model(tmp_path, monkeypatch, launched):
    monkeypatch.delenv("MODEL")
    monkeypatch.setattr(stages, "compose_stage", compose_stage)
    (tmp_path / "stage0_sft" / "hf").mkdir(parents=True)
    (tmp_path / "stage0_sft" / "hf" / "config.json").touch()
    command.main([f"paths.run={tmp_path}", f"paths.tiny_policy={tmp_path}/tiny/hf", "--stages=stage1"])
    assert [module for module, _, _ in launched] == ["recipe.train"]


def test_a_second_start_into_the_same_run_is_refused(tmp_path, launched, monkeypatch):
    def launch(module, arguments, watch, note):
        with pytest.raises(SystemExit, match=f"process {os.getpid()} trains into it"):
            command.main([f"paths.run={tmp_path}"])
        finished(watch.stage)
        return 0

    monkeypatch.setattr(runner, "launch", launch)
    command.main([f"paths.run={tmp_path}"])


def test_another_curriculum_has_its_own_stages_gates_and_names(tmp_path, launched):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "overrides: [data.seed=5]\n"
        "stages:\n"
        "  - {name: stage1, gate: null}\n"
        "  - {name: polish, config: stage3, gate: {kind: plateau, window: 2}, handover: best,\n"
        "     overrides: [data.seed=6, trainer.test_freq=5]}\n"
    )
    command.main([f"--curriculum={path}", f"paths.run={tmp_path}/run"])
    assert launched[0][1][2:4] == ["data.seed=5", "stage.gate=null"]
    assert launched[1][1][:2] == ["--config-name", "stage3"]
    assert launched[1][1][2:-1] == [
        "data.seed=5",
        "stage.name=polish",
        "stage.gate=null",
        'stage.gate={kind:"plateau",window:2}',
        "stage.handover=best",
        "data.seed=6",
        "trainer.test_freq=5",
        "stage.previous=stage1_format",
    ]
    assert statuses(tmp_path / "run") == [("stage1_format", "done"), ("polish", "done")]


def test_a_gate_of_a_curriculum_replaces_that_of_the_configuration(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("stages: [{name: stage1, gate: {kind: plateau, window: 2}}]")
    stage = stages.read_stages(stages.read_yaml(path, command.CURRICULUM_KEYS), path)[0]
    assert stage.composed.stage.gate == {"kind": "plateau", "window": 2}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--stages=stage9"], "stage9.*stage1, stage2, stage3"),
        (["--curriculum=nowhere"], "neither a file nor one of"),
        (["stage9:data.seed=1"], "no stage stage9"),
        (["stage1:data.sed=1"], "(?s)stage stage1.*data.sed"),
    ],
)
def test_a_mistake_on_the_command_line_is_answered_with_what_there_is(arguments, message):
    with pytest.raises(SystemExit, match=message):
        command.main(arguments)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("trainer.v1.trainer_mode=separate_async", "Set trainer=separate"),
        ("algorithm.adv_estimator=grpoo", "adv_estimator=grpoo is not known"),
        ("actor_rollout_ref.model.lora_alpha=half", "lora_alpha='half'"),
        ("interaction.overlong.window=0", "overlong.window=0"),
        ("stage.over_budget=leaveout", "over_budget='leaveout'; expected one of keep, leave_out"),
        ("interaction.train.at_step_limit=stop", "interaction.train.at_step_limit"),
    ],
)
def test_a_setting_of_a_later_stage_that_cannot_work_stops_before_the_first(tmp_path, launched, override, message):
    with pytest.raises(SystemExit, match=f"(?s)stage stage3: .*{message}"):
        command.main([f"paths.run={tmp_path}", f"stage3:{override}"])
    assert launched == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stages: []", "a list `stages`"),
        ("stages: [stage1, stage1]", "different names"),
        ("stages: [{name: stage7}]", "recipe/config/stage7.yaml, which does not exist"),
        ("stages: [{name: stage1, gates: null}]", "name, config, gate, handover, overrides"),
        ("stages: [stage1, {name: stage1_format, config: stage3}]", "the same folder"),
        ("stages: [{name: stage1, overrides: [stage.name=other]}]", "the folders are named by its file"),
        ("steps: 3", "expected the keys stages, overrides"),
        ("stages: [", "is not YAML"),
    ],
)
def test_a_curriculum_file_that_cannot_work_says_why(tmp_path, text, message):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(SystemExit, match=message):
        command.main([f"--curriculum={path}", f"paths.run={tmp_path}"])


def test_all_curricula_that_come_with_the_recipe_can_be_read():
    for name, count in (("curriculum", 3), ("with_stage4", 4)):
        path = stages.find(name)
        listed = stages.read_stages(stages.read_yaml(path, command.CURRICULUM_KEYS), path)
        assert len(listed) == count
    last = listed[-1].composed
    assert (last.stage.previous, last.interaction.train.environments.bfcl.augment) == ("stage3_full", False)
    assert last.reward.custom_reward_function.path == "pkg://rewards.progress"


def test_a_set_of_ablations_runs_each_in_its_own_folder_and_ends_with_one_table(
    tmp_path, launched, monkeypatch, capsys
):
    launch = runner.launch

    def train(module, arguments, watch, note):
        (watch.stage / "metrics").mkdir(parents=True)
        numbers = {
            "critic/score/mean": 0.5,
            "train/acc": 0.25,
            "val/progress": 0.75,
            "val-core/bfcl/base/acc/mean@1": 1,
            "val-aux/bfcl/base/progress/mean@1": 0.5,
        }
        (watch.stage / "metrics" / "1.jsonl").write_text(json.dumps({"step": 12, "data": numbers}) + "\n")
        return launch(module, arguments, watch, note)

    monkeypatch.setattr(runner, "launch", train)
    command.main(["--ablations=ablations", f"paths.run={tmp_path}"])
    folders = ["curriculum", "single_stage", "no_augmentation", "all_or_nothing"]
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == sorted(folders)
    assert [model for _, arguments, model in launched if "stage.previous=null" in arguments] == ["/m"] * 4
    assert sum("reward.custom_reward_function.path=pkg://rewards.all_or_nothing" in a for _, a, _ in launched) == 2
    assert sum("interaction.train.environments.bfcl.augment=false" in a for _, a, _ in launched) == 3
    text = (tmp_path / "ablations.txt").read_text()
    assert text in capsys.readouterr().out
    above, below = text.split("\n\nvalidation by category, progress / acc\n")
    head, *rows = above.splitlines()
    assert head.split() == (
        "run steps train reward train progress train acc val progress val acc val acc_official".split()
    )
    assert rows[1].split() == ["single_stage", "12", "0.500", "-", "0.250", "0.750", "-", "-"]
    head, *rows = below.splitlines()
    assert (head.split(), rows[1].split()) == (["run", "base"], ["single_stage", "0.500", "/", "1.000"])


def test_ablations_of_which_one_chose_are_all_compared_on_the_tasks_for_reporting(tmp_path):
    for run in ("a", "b"):
        (tmp_path / run / "stage1_format" / "metrics").mkdir(parents=True)
        numbers = {"val/progress": 0.9, "val_test/progress": 0.5, "val_test/acc": 0.25}
        numbers |= {"val_test/bfcl/base/acc": 0.25, "val_test/bfcl/base/progress": 0.125}
        numbers |= {"val-core/bfcl/base/acc/mean@1": 0.9, "val_dev/bfcl/base/acc": 0.8}
        line = json.dumps({"step": 12, "data": numbers})
        (tmp_path / run / "stage1_format" / "metrics" / "1.jsonl").write_text(line + "\n")
    listed = stages.read_stages({"stages": ["stage1"]}, tmp_path)
    runs = {run: (tmp_path / run, listed) for run in ("a", "b")}
    assert "0.900" in ablations.table(runs)
    chose = [{"stage": "stage1_format", "setting": "stage.handover_metric", "metric": "val_dev/score"}]
    stage_state.update(tmp_path / "b" / "stage1_format", chose=tuple(chose))
    text = ablations.table(runs)
    assert text.count("0.500") == 2 and text.count("0.125 / 0.250") == 2
    assert "0.900" not in text and "0.800" not in text
    assert "val_dev/score" in text and "test tasks" in text


def test_an_ablation_that_fails_does_not_stop_the_others(tmp_path, launched, monkeypatch):
    launch = runner.launch
    path = tmp_path / "set.yaml"
    path.write_text("runs: {a: {stages: [stage1]}, b: {stages: [stage1]}}")

    def fail_first(module, arguments, watch, note):
        code = launch(module, arguments, watch, note)
        if "/a/" in str(watch.stage):
            (watch.stage / "state.json").unlink()
            return 1
        return code

    monkeypatch.setattr(runner, "launch", fail_first)
    with pytest.raises(SystemExit, match="1 of 2 runs failed: a"):
        ablations.main(str(path), [f"paths.run={tmp_path}/out"])
    assert statuses(tmp_path / "out" / "b") == [("stage1_format", "done")]
