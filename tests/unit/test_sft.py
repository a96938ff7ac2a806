"""The warm start: what it starts beside, what it goes on from, and what is up to date. verl's trainer is played."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from omegaconf import DictConfig

from recipe import sft
from recipe.launch import processes, remains
from recipe.launch.compose import compose
from recipe.stage import starts

Start = Callable[..., list[int]]


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Starts the warm start of a model in `tmp_path` with those overrides; returns the steps that verl went on from."""
    for name in (remains.TOKEN, "MODEL", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("VERL_FILE_LOGGER_PATH", str(tmp_path / "metrics" / "log.jsonl"))
    (tmp_path / "rows.parquet").write_bytes(b"rows")
    (tmp_path / "model").mkdir()
    resumed: list[int] = []

    def run_sft(config: DictConfig) -> None:
        checkpoints = Path(config.trainer.default_local_dir)
        resumed.append(starts.latest(checkpoints))
        (checkpoints / "global_step_7").mkdir(exist_ok=True)
        (checkpoints / "global_step_7" / "data_0.pt").touch()
        (checkpoints / starts.TRACKER).write_text("7")

    played: Any = ModuleType("verl.trainer.sft_trainer")
    played.run_sft = run_sft
    monkeypatch.setitem(sys.modules, played.__name__, played)
    for name in ("restart_with_environment", "set_environment", "check_conversations", "check_weights"):
        monkeypatch.setattr(sft, name, lambda *_: None)
    for name in ("process_group", "tee_output"):
        monkeypatch.setattr(sft, name, lambda *_: None)
    monkeypatch.setattr(sft, "start_model", str)
    monkeypatch.setattr(sft, "go_back", lambda *_: [])
    monkeypatch.setattr(sft, "export", lambda _, target, __: target.mkdir(exist_ok=True))
    monkeypatch.setattr(sft, "broken_export", lambda folder: None if folder.is_dir() else "not there")

    def start(*overrides: str) -> list[int]:
        resumed.clear()
        own = [f"paths.run={tmp_path}/run", f"paths.stage={tmp_path}/run", f"data.train_files={tmp_path}/rows.parquet"]
        given = [*own, f"model.path={tmp_path}/model", *overrides]
        sft.run(compose("sft", ["sft_hardware=cpu", *given], group="sft_hardware"), list(overrides))
        return list(resumed)

    return start


HOLDER = """
import sys
from pathlib import Path
from recipe.launch import processes
with processes.alone(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_warm_start_leaves_the_one_that_is_running_alone(started: Start, tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "run")]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stdin=-1, stdout=-1, env=environment, text=True) as holder:
        assert holder.stdout and holder.stdout.readline() == "held\n"
        with pytest.raises(SystemExit, match=f"is in use: process {holder.pid} trains into it"):
            started()
        assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]
        holder.communicate("")
    assert started() == [0]


def test_a_warm_start_of_a_curriculum_trains_into_the_folder_that_the_curriculum_holds(
    started: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(remains.TOKEN, "ours")
    with processes.alone(tmp_path / "run") as note:
        remains.note(note, remains.Launch("ours", 0.0, "/nowhere", "log"))
        assert started() == [0]
        monkeypatch.setenv(remains.TOKEN, "another")  # of a curriculum that holds another folder
        with pytest.raises(SystemExit, match="is in use"):
            started("optim.lr=1e-4", "trainer.resume_mode=disable")


def test_only_the_first_of_several_processes_holds_the_folder(
    started: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with processes.alone(tmp_path / "run"):
        monkeypatch.setenv("RANK", "1")
        (tmp_path / "run" / "checkpoints").mkdir()
        assert started() == [0]


def test_the_folder_stays_held_when_what_was_in_it_is_set_aside(
    started: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started()
    trained = sys.modules["verl.trainer.sft_trainer"].run_sft

    def look(config: DictConfig) -> None:
        with pytest.raises(SystemExit, match="is in use"), processes.alone(tmp_path / "run"):
            pass
        trained(config)

    monkeypatch.setattr(sys.modules["verl.trainer.sft_trainer"], "run_sft", look)
    assert started("trainer.resume_mode=disable") == [0]
    assert (tmp_path / "aside" / "run" / "checkpoints" / starts.TRACKER).is_file()


def test_a_changed_setting_is_not_taken_for_what_older_checkpoints_were_made_with(
    started: Start, tmp_path: Path
) -> None:
    assert started() == [0]
    assert started("trainer.save_freq=50", "trainer.logger=[console]") == []
    noted = (tmp_path / "run" / "made_with.json").read_bytes()
    with pytest.raises(SystemExit, match=r"with other settings or data; expected .* trainer.resume_mode=disable"):
        started("optim.lr=1e-3")
    assert (tmp_path / "run" / "made_with.json").read_bytes() == noted
    assert started("optim.lr=1e-3", "trainer.resume_mode=disable") == [0]
    assert started("optim.lr=1e-3") == []


def test_a_warm_start_that_was_interrupted_goes_on_with_the_same_settings_only(started: Start, tmp_path: Path) -> None:
    started()
    (tmp_path / "run" / "made_with.json").unlink()
    with pytest.raises(SystemExit, match="with other settings or data"):
        started("optim.lr=1e-3")
    assert started() == [7]
    for note in ("made_with.json", "checkpoints/made_with.json"):
        (tmp_path / "run" / note).unlink()
    with pytest.raises(SystemExit, match="with unknown settings or data"):
        started()


def test_a_warm_start_of_an_earlier_release_is_up_to_date_if_nothing_changed(
    started: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = sft.fingerprint
    with monkeypatch.context() as earlier:
        earlier.setattr(sft, "fingerprint", lambda config, without=(): made(config, ()))
        started()
    (tmp_path / "run" / "checkpoints" / "made_with.json").unlink()
    assert started() == []
    with pytest.raises(SystemExit, match="with other settings or data"):
        started("optim.lr=1e-3")
    (tmp_path / "run" / "hf").rmdir()
    assert started() == [7]


def test_starting_over_twice_sets_the_first_aside_too(started: Start, tmp_path: Path) -> None:
    for _ in range(2):
        assert started("trainer.resume_mode=disable") == [0]
    assert (tmp_path / "aside" / "run" / "hf").is_dir()
    with pytest.raises(SystemExit, match="trainer.resume_mode=never; expected auto"):
        started("trainer.resume_mode=never")


def test_checkpoints_of_an_unknown_model_are_not_resumed(started: Start, tmp_path: Path) -> None:
    started()
    (tmp_path / "run" / "checkpoints" / "started_from.json").unlink()
    (tmp_path / "run" / "hf").rmdir()
    with pytest.raises(SystemExit, match=r"checkpoints of unknown, this start is .* trainer.resume_mode=disable"):
        started()
    assert started("trainer.resume_mode=disable") == [0]
