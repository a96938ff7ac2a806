"""The warm start: what it starts beside, what it goes on from, and what is up to date. verl's trainer is played."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from omegaconf import DictConfig

from recipe import sft
from recipe.files import PreflightError
from recipe.machine import processes
from recipe.machine.cluster import TOKEN
from recipe.machine.processes import LAUNCH, Launch, identity
from recipe.settings import compose
from recipe.stage import state


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Starts the warm start of a model in `tmp_path` with those overrides; returns the steps that verl went on from."""
    for name in (TOKEN, "MODEL", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("VERL_FILE_LOGGER_PATH", str(tmp_path / "metrics" / "log.jsonl"))
    (tmp_path / "rows.parquet").write_bytes(b"rows")
    (tmp_path / "model").mkdir()
    resumed: list[int] = []

    def train(config: DictConfig) -> int:
        checkpoints = Path(config.trainer.default_local_dir)
        resumed.append(state.latest(checkpoints))
        (checkpoints / "global_step_7").mkdir(exist_ok=True)
        (checkpoints / "global_step_7" / "data_0.pt").touch()
        (checkpoints / state.TRACKER).write_text("7")
        return 7

    played: Any = ModuleType("recipe.training.sft_trainer")
    played.train = train
    monkeypatch.setitem(sys.modules, played.__name__, played)
    monkeypatch.setattr(sft.starts, "set_environment", lambda *_: None)
    monkeypatch.setattr(sft, "read_sides", lambda *_: sft.Sides([], []))
    monkeypatch.setattr(sft, "arrange", lambda sides, *_: sides)
    for name in ("process_group", "tee_output", "write_card"):
        monkeypatch.setattr(sft, name, lambda *_: None)
    for name, kept in (("start_model", str), ("weights", lambda _: ())):
        monkeypatch.setattr(sft, name, kept)
    monkeypatch.setattr(sft.state, "go_back", lambda *_: [])
    monkeypatch.setattr(sft, "export", lambda _, target, __: target.mkdir(exist_ok=True))
    monkeypatch.setattr(sft, "read_done", lambda stage: state.look(stage).done if (stage / "hf").is_dir() else None)

    def start(*overrides: str) -> list[int]:
        resumed.clear()
        own = [f"paths.run={tmp_path}/run", f"paths.stage={tmp_path}/run", f"data.train_files={tmp_path}/rows.parquet"]
        given = [*own, f"model.path={tmp_path}/model", *overrides]
        try:
            sft.run(compose("sft", ["sft_hardware=tiny", *given], group="sft_hardware"), list(overrides))
        except PreflightError as error:  # `main` says it so
            sys.exit(str(error))
        return list(resumed)

    return start


def test_a_warm_start_trains_into_the_folder_that_its_curriculum_holds_and_holds_it_while_it_starts_over(
    started: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN, "ours")
    with processes.alone(tmp_path / "run") as note:
        LAUNCH.write(note, Launch("ours", "/nowhere", "log", identity(tmp_path / "run")))
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


def test_only_the_same_settings_go_on_and_only_a_finished_training_hands_on(
    started: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, played = tmp_path / "run", sys.modules["recipe.training.sft_trainer"]
    trained = played.train
    with monkeypatch.context() as ends_early:
        ends_early.setattr(played, "train", lambda config: trained(config) + 7)
        with pytest.raises(SystemExit, match="ended at step 7 of 14. Start it again"):
            started()
    assert not (run / "hf").exists()
    assert started() == [7] and started() == []
    with pytest.raises(SystemExit, match="which trainer.resume_mode=disable sets aside"):
        started(f"model.path={run}/hf")
    (run / "state.json").unlink()  # nobody knows what it is of
    assert started() == [0] and (tmp_path / "aside" / "run" / "hf").is_dir()


def test_a_warm_start_is_made_again_for_another_model_other_rows_or_settings_and_for_nothing_else(
    started: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    model, rows = tmp_path / "model", tmp_path / "rows.parquet"
    (model / "model.safetensors").write_bytes(b"one")
    assert started() == [0] and "made again" not in capsys.readouterr().out
    shutil.copytree(model, tmp_path / "moved")
    shutil.copy(rows, tmp_path / "rows")
    monkeypatch.setenv("RUN", "another")  # a tracker's name
    same = ("trainer.save_freq=50", "trainer.test_freq=3", "trainer.logger=[console]", "++launcher.env.OMP_A=1")
    assert started(*same, f"model.path={tmp_path}/moved", f"data.train_files={tmp_path}/rows") == []
    weights = ("model.safetensors", "pytorch_model.bin", "tokenizer.json", "chat_template.jinja")
    for number, path in enumerate([rows, *(model / name for name in weights)], 1):
        path.write_bytes(b"other")
        assert started() == [0] and len([*(tmp_path / "aside").iterdir()]) == number, path
        assert "made again\n" in capsys.readouterr().out and started() == [], path
    for setting in ("optim.lr=1e-3", "data.val_share=0.1", "trainer.seed=5", "trainer.resume_mode=disable"):
        assert started(setting) == [0], setting


def test_a_model_is_trained_in_the_folder_of_its_run_and_the_tiny_policy_in_that_of_all(monkeypatch) -> None:
    monkeypatch.delenv("MODEL", raising=False)
    monkeypatch.setenv("RUN", "mine")
    for overrides, run, stage in (
        ([], "outputs/tiny_policy", "outputs/tiny_policy"),
        (["model.path=/model"], "outputs/mine", "outputs/mine/stage0_sft"),
        (["model.path=/model", "paths.run=here", "paths.stage=there"], "here", "there"),
    ):
        config = compose("sft", ["sft_hardware=tiny", *overrides], group="sft_hardware")
        sft.choose_folder(config)
        assert (config.paths.run, config.paths.stage) == (run, stage)
