"""The commands of a stage and of the warm start, up to where they would start to train."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import Mock, patch

import pytest
from omegaconf import DictConfig
from support.short_training import ROOT, start

from data_prep.__main__ import main as prepare_data
from recipe import sft, train
from recipe.cpu.tiny_policy import make_tiny_policy
from recipe.machine import prefork, processes
from recipe.machine.cluster import TOKEN, Answer
from recipe.machine.processes import Launch, identity
from recipe.settings import compose
from recipe.stage import console, state
from recipe.stage.export import ExportError

NEEDS = ("launcher.needs.memory_gb=0", "launcher.needs.disk_gb=0")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with data, a model, and a run that has trained from another model."""
    path = tmp_path_factory.mktemp("work")
    assert prepare_data(["--out", str(path / "data" / "tiny"), "--tiny"]) == 0
    make_tiny_policy(path / "model")
    stage = path / "outputs" / "default" / "stage1_format"
    for name in ("checkpoints/global_step_3/data.pt", "metrics/1.jsonl", "config/overrides.yaml", "hf/config.json"):
        (stage / name).parent.mkdir(parents=True, exist_ok=True)
        (stage / name).write_text("{}")
    (stage / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("3")
    state.update(stage, began=state.Start("/other", processes=1), target=state.Target(3, 3))
    return path


def tree(folder: Path) -> dict[Path, tuple[int, int, bytes]]:
    """Everything in a folder: when it was changed, its mode, what it holds."""
    content = {path: path.read_bytes() if path.is_file() else b"" for path in [folder, *folder.rglob("*")]}
    return {path: (path.stat().st_mtime_ns, path.stat().st_mode, held) for path, held in content.items()}


def test_a_look_writes_nothing_at_all(folder: Path):
    before, variables = tree(folder), {"MODEL": str(folder / "model"), "PYTHONPATH": str(ROOT), "RAY_ADDRESS": "local"}
    for given, status, words in (
        (["++preflight_only=True", "trainer.resume_mode=disable"], 0, "all checks passed; nothing was"),
        (["preflight_only=true"], 1, "holds checkpoints of"),
        (["preflight_only=true", "trainer.resume_mode=disable", "trainer.nnodes=2"], 1, "all other checks passed"),
    ):
        looked = start("recipe.train", "--config-name", "stage1", *NEEDS, *given, folder=folder, **variables)
        assert looked.returncode == status and words in looked.stdout + looked.stderr, looked.stdout + looked.stderr
        assert "Traceback" not in looked.stderr and tree(folder) == before


@patch.dict(os.environ)
def test_what_a_start_over_replaces_is_aside_before_training_begins(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folder)
    os.environ.update({TOKEN: "ours", "HARDWARE": "tiny", "MODEL": str(folder / "model")})
    seen, stage = [], folder / "outputs" / "default" / "stage1_format"
    given = ["trainer.resume_mode=disable", "trainer.save_freq=-1", "launcher.prefork=false", *NEEDS]
    monkeypatch.setattr(sys, "argv", ["train", "--config-name", "stage1", *given])
    monkeypatch.setattr(train, "launch", lambda *_: seen.append((state.look(stage).began, [*stage.glob("check*/*")])))
    monkeypatch.setattr(sys, "executable", sys.executable)
    monkeypatch.setattr(prefork, "start", lambda: "forked")
    train.main()
    assert sys.executable != "forked"
    ((began, checkpoints),) = seen
    monkeypatch.setattr(sys, "argv", [*sys.argv[:3], *given[1:], "launcher.prefork=true"])
    monkeypatch.setattr(train.end, "at_target", lambda _: True)
    (half := stage / "checkpoints" / "global_step_5").mkdir()  # as a kill leaves it
    (stage / "checkpoints" / state.TRACKER).write_text("5")
    state.update(stage, done=state.Done(3, 3, 3, 0.0))
    for owes in (True, False):  # killed before the last validation was logged, and after
        monkeypatch.setattr(train.end, "owes_validation", lambda _, owes=owes: owes)
        train.main()
        assert len(seen) == 2 and not half.exists() and state.latest(half.parent) == 0
        assert state.look(stage).done is None, "what this start trains may end otherwise"
    assert sys.executable == "forked"
    assert began and began.model == str(folder / "model") and not checkpoints
    assert state.latest(folder / "outputs" / "default" / "aside" / "stage1_format" / "checkpoints") == 3


def test_workers_of_a_cluster_get_what_the_variables_of_the_start_stood_for(tmp_path: Path):
    given = ["hardware=gpu1", f"paths.run={tmp_path}", "+ray_kwargs.ray_init.runtime_env.env_vars.JUDGE=1"]
    variables = {"MODEL": "/m", "SEED": "7", "TRAIN_BATCH_SIZE": "6", "MINI_BATCH_SIZE": "3", TOKEN: "ours"}
    Launch("ours", "/nowhere", log="log", folder=(0, 0)).write(tmp_path / processes.NOTE)
    with patch.dict(os.environ, variables, VERL_FILE_LOGGER_PATH="1.jsonl"):
        train.join(config := compose("stage1", given), "10.0.0.1:6379")
        assert os.environ["RAY_ADDRESS"] == "10.0.0.1:6379"
    assert Launch.read(tmp_path / processes.NOTE).cluster == "10.0.0.1:6379", "else its nodes are not cleared"
    policy = config.actor_rollout_ref
    sizes = config.data.train_batch_size, policy.actor.ppo_mini_batch_size
    assert (policy.model.path, config.data.seed, policy.rollout.seed, *sizes) == ("/m", 7, 7, 6, 3)
    told = config.ray_kwargs.ray_init
    assert [*told] == ["runtime_env"] and told.runtime_env.env_vars.JUDGE == "1"


@patch.dict(os.environ, HARDWARE="tiny")
def test_a_start_by_hand_is_a_child_of_the_same_command_and_speaks_and_ends_as_it_does(tmp_path, monkeypatch, capsys):
    def run(command: list[str], log: Path, *_: Any) -> int:
        assert command == [sys.executable, "-m", "recipe.train", *sys.argv[1:]]
        log.parent.mkdir(exist_ok=True)
        log.write_text(said)
        if status == 130:
            raise KeyboardInterrupt
        return status

    os.environ.pop(TOKEN, None)
    monkeypatch.setattr(processes, "run", run)
    cases = (("said\n", 0, 1), ("said\n", 3, 1), (training := f"{console.BEGINS}\nsaid\n", 0, 0), (training, 3, 1))
    for number, (said, status, times) in enumerate((*cases, (training, 130, 0))):
        monkeypatch.setattr(sys, "argv", ["train", "--config-name", "stage1", f"paths.run={tmp_path}/{number}"])
        with pytest.raises(SystemExit) as ended:
            train.main()
        assert ended.value.code == status and capsys.readouterr().out.count("\nsaid") == times, (said, status)


@patch.dict(os.environ, VERL_FILE_LOGGER_PATH="1.jsonl")
def test_verl_gets_the_trainer_of_the_mode_on_a_ray_with_room_for_it_or_on_this_node_of_a_cluster(monkeypatch):
    from verl.plugin.platform import PlatformRegistry
    from verl.trainer import main_ppo

    def run_ppo(config: DictConfig, task_runner_class: Any) -> None:
        task_runner_class.__ray_metadata__.modified_class().run(config)
        asked.append((task_runner_class._default_options, config.ray_kwargs.ray_init))

    asked = list[tuple[dict[str, Any], DictConfig]]()
    monkeypatch.setattr(main_ppo, "run_ppo", run_ppo)
    monkeypatch.setattr(main_ppo.TaskRunnerV1.__ray_metadata__.modified_class, "run", lambda *_: None)
    monkeypatch.setattr("verl.trainer.ppo.v1.trainer_base.TRAINER_REGISTRY", known := {})
    monkeypatch.setattr(train.starts, "mask_prints", lambda _: None)
    monkeypatch.setattr(PlatformRegistry, "get", {"cpu": 1}.get)
    for given, trainer, gpus, cpus in (
        ((), "CurriculumTrainer", 1, 8),
        (("trainer=async", "ray_kwargs.ray_init={num_cpus: 50, num_gpus: 50}"), "AsyncTrainer", 50, 50),
        (("trainer=separate",), "SeparateTrainer", 2, 12),
        (("offline.files=x.parquet",), "OfflineTrainer", 1, 8),
    ):
        train.launch(compose("stage1", ["hardware=tiny", *given]))
        (_, found), (options, init) = known.popitem(), asked[-1]
        assert (found.__name__, init.num_gpus, init.num_cpus, options["num_cpus"]) == (trainer, gpus, cpus, 1)
    monkeypatch.setattr(PlatformRegistry, "get", {}.get)
    with pytest.raises(SystemExit, match=r"setup\.sh"):
        train.launch(compose("stage1", ["hardware=tiny"]))
    train.launch(compose("stage1", ["hardware=gpu8"]), ("10.0.0.1:6379", Answer((), "ab" * 28)))
    options, init = asked[-1]
    here = options["scheduling_strategy"]
    assert (here.node_id, here.soft, [*init]) == ("ab" * 28, False, ["runtime_env"]) and options["num_cpus"] == 1


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Starts the warm start of a model in `tmp_path` with those overrides; returns the steps that verl went on from."""
    for name in (TOKEN, "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("ARENA_MAX", "MMAP_THRESHOLD_", "TRIM_THRESHOLD_"):
        monkeypatch.setenv(f"MALLOC_{name}", "1")
    monkeypatch.setattr(os, "execv", lambda program, words: sys.exit(" ".join(words[1:4])))
    monkeypatch.setenv("VERL_FILE_LOGGER_PATH", str(tmp_path / "metrics" / "log.jsonl"))
    (tmp_path / "rows.parquet").write_bytes(b"rows")
    (tmp_path / "model").mkdir()
    resumed: list[int] = []

    def train(config: DictConfig) -> int:
        checkpoints = Path(config.trainer.default_local_dir)
        resumes = {"model", "optimizer", "extra"} if config.trainer.save_freq != -1 else set[str]()
        assert {*config.checkpoint.save_contents} == {"hf_model", *resumes}, "what a resume needs"
        resumed.append(state.latest(checkpoints))
        (checkpoints / "global_step_7").mkdir(parents=True, exist_ok=True)
        (checkpoints / "global_step_7" / "data_0.pt").touch()
        (checkpoints / state.TRACKER).write_text("7")
        return 7

    played: Any = ModuleType("recipe.training.sft_trainer")
    played.train = train
    monkeypatch.setitem(sys.modules, played.__name__, played)
    monkeypatch.setattr(sft.starts, "set_environment", lambda *_: None)
    monkeypatch.setattr(sft, "read_sides", lambda *_: sft.Sides([], []))
    monkeypatch.setattr(sft, "arrange", lambda sides, *_: sides)
    for name in ("process_group", "tee_output", "write_card", "weights"):
        monkeypatch.setattr(sft, name, lambda *_: ())
    monkeypatch.setattr(sft, "start_model", str)
    last = tmp_path / "run" / "checkpoints" / "global_step_7" / "huggingface"
    monkeypatch.setattr(sft, "export", lambda source, target, _: source == last and target.mkdir(exist_ok=True))
    monkeypatch.setattr(sft, "read_done", lambda stage: state.look(stage).done if (stage / "hf").is_dir() else None)

    def started(*overrides: str) -> list[int]:
        resumed.clear()
        own = [f"paths.run={tmp_path}/run", f"paths.stage={tmp_path}/run", f"data.train_files={tmp_path}/rows.parquet"]
        own += [f"data.val_files={tmp_path}/val.parquet", "checkpoint.save_contents=[hf_model]"]
        given = [*own, f"model.path={tmp_path}/model", *overrides]
        monkeypatch.setattr(sys, "argv", ["recipe.sft", "sft_hardware=tiny", *given])
        sft.main()
        return list(resumed)

    return started


def test_a_warm_start_trains_in_the_folder_that_its_curriculum_holds_and_holds_it_too(started, tmp_path, monkeypatch):
    monkeypatch.setenv(TOKEN, "ours")
    with processes.alone(tmp_path / "run") as note:
        Launch("ours", "/nowhere", log="log", folder=identity(tmp_path / "run")).write(note)
        assert started() == [0]
        monkeypatch.setenv(TOKEN, "another")  # of a curriculum that holds another folder
        with pytest.raises(SystemExit, match="is in use"):
            started("trainer.resume_mode=disable")
    played = sys.modules["recipe.training.sft_trainer"]
    trained = played.train

    def look(config: DictConfig) -> int:
        with pytest.raises(SystemExit, match="is in use"), processes.alone(tmp_path / "run"):
            pass
        return trained(config)

    monkeypatch.setattr(played, "train", look)
    assert started("trainer.resume_mode=disable") == [0]
    assert (tmp_path / "aside" / "run" / "checkpoints" / state.TRACKER).is_file()


def test_only_the_same_settings_go_on_and_only_a_finished_training_hands_on(started, tmp_path, monkeypatch):
    run, played = tmp_path / "run", sys.modules["recipe.training.sft_trainer"]
    trained = played.train
    with monkeypatch.context() as ends_early:
        ends_early.setattr(played, "train", lambda config: trained(config) + 7)
        with pytest.raises(SystemExit, match="ended at step 7 of 14. Start it again"):
            started()
    assert not (run / "hf").exists()
    (run / "checkpoints" / "global_step_9").mkdir()  # as a kill leaves it
    (run / "checkpoints" / state.TRACKER).write_text("9")
    assert started() == [7] and started() == []
    with pytest.raises(SystemExit, match="which trainer.resume_mode=disable sets aside"):
        started(f"model.path={run}/hf")
    (run / "state.json").unlink()  # nobody knows what it is of
    assert started() == [0] and (tmp_path / "aside" / "run" / "hf").is_dir()


def test_a_warm_start_is_made_again_for_another_model_rows_or_settings_alone(started, tmp_path, monkeypatch, capsys):
    model, rows = tmp_path / "model", tmp_path / "rows.parquet"
    (model / "model.safetensors").write_bytes(b"one")
    assert started() == [0] and "made again" not in capsys.readouterr().out
    shutil.copytree(model, tmp_path / "moved")
    shutil.copy(rows, tmp_path / "rows")
    monkeypatch.setenv("RUN", "another")  # a tracker's name
    same = ["trainer.save_freq=50", "trainer.test_freq=3", "trainer.logger=[console]", "++launcher.env.OMP_A=1"]
    same.append("engine.mixed_precision.param_dtype=bf16")  # what is faster on another machine
    assert started(*same, f"model.path={tmp_path}/moved", f"data.train_files={tmp_path}/rows") == []
    weights = ("model.safetensors", "pytorch_model.bin", "tokenizer.json", "chat_template.jinja")
    paths = [rows, tmp_path / "val.parquet", *(model / name for name in weights)]
    for number, path in enumerate(paths, 1):
        path.write_bytes(b"other")
        assert started() == [0] and len([*(tmp_path / "aside").iterdir()]) == number, path
        assert "made again\n" in capsys.readouterr().out and started() == [], path
    settings = ("optim.lr=1e-3", "data.val_share=0.1", "trainer.seed=5", "model.lora_rank=4", "trainer.total_epochs=9")
    for setting in (*settings, "trainer.total_training_steps=9", "trainer.resume_mode=disable"):
        assert started(setting) == [0], setting


def test_a_warm_start_that_does_not_train_to_its_end_hands_no_model_on(started, tmp_path, monkeypatch):
    run, played = tmp_path / "run", sys.modules["recipe.training.sft_trainer"]
    for given, words in (
        (["model.path=null", "paths.tiny_policy=null"], "no model to start from"),
        (["model.path=null", "trainer.device=cuda"], "no model to start from"),
        (["model.lora_adapter_path=here"], "a warm start trains a new adapter"),
    ):
        with pytest.raises(SystemExit, match=words):
            started(*given)
    assert not run.exists()
    with monkeypatch.context() as other:
        other.setenv("RANK", "1")  # of torchrun's processes one that trains and writes nothing
        assert started() == [0] and [path.name for path in run.iterdir()] == ["checkpoints"]
        other.delenv("MALLOC_ARENA_MAX")
        with pytest.raises(SystemExit, match="-m recipe.sft sft_hardware=tiny"):
            started()
    for fault in (OSError("full"), ExportError("cut"), KeyboardInterrupt("130")):
        with monkeypatch.context() as other, pytest.raises(SystemExit) as end:
            place = (played, "train") if isinstance(fault, KeyboardInterrupt) else (sft, "export")
            other.setattr(*place, Mock(side_effect=fault))
            started("trainer.save_freq=-1")
        assert str(fault) in str(end.value.code)
        assert state.look(run).done is None, fault
    assert started() == [7] and state.look(run).done.global_step == 7
    assert started("model.path=null") == [0] and (run / "untrained" / "config.json").is_file(), "of the tiny policy"


def test_what_a_warm_start_and_its_children_print_is_in_its_log(tmp_path: Path) -> None:
    code = "import os, pathlib, recipe.sft as s; s.tee_output(pathlib.Path('a/b/c')); os.system('echo 1 >&2; echo 2')"
    environment = {name: value for name, value in os.environ.items() if name != TOKEN}
    environment |= {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert (tmp_path / "a" / "b" / "c").read_text().split() == ["1", "2"]


def test_a_model_is_trained_in_the_folder_of_its_run_and_the_tiny_policy_in_that_of_all(monkeypatch) -> None:
    monkeypatch.setenv("RUN", "mine")
    for overrides, run, stage in (
        ([], "outputs/tiny_policy", "outputs/tiny_policy"),
        (["model.path=/model"], "outputs/mine", "outputs/mine/stage0_sft"),
        (["model.path=/model", "paths.run=here", "paths.stage=there"], "here", "there"),
    ):
        config = compose("sft", ["sft_hardware=tiny", *overrides], group="sft_hardware")
        sft.choose_folder(config)
        assert (config.paths.run, config.paths.stage) == (run, stage)
