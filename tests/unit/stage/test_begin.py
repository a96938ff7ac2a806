"""What a start sets for the programs under it."""

import json
import os
import time
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from recipe.stage.begin import set_environment, tracker_folders
from recipe.stage.metrics_log import read_steps


@pytest.fixture
def surroundings(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    found: dict[str, str] = {}
    monkeypatch.setattr(os, "environ", found)
    return found


def started(folder: Path) -> None:
    set_environment(OmegaConf.create({"paths": {"stage": str(folder)}, "launcher": {"env": {"A": "1"}}}), nodes=1)


def test_what_trackers_write_stays_in_the_stages_folder(tmp_path: Path, surroundings: dict[str, str]) -> None:
    started(tmp_path / "run" / "stage1")
    assert set(tracker_folders(tmp_path)) == {"TENSORBOARD_DIR", "WANDB_DIR", "TRACKIO_DIR", "MLFLOW_TRACKING_URI"}
    for name in tracker_folders(tmp_path):
        assert Path(surroundings[name].removeprefix("sqlite:///")).is_relative_to(tmp_path / "run" / "stage1"), name


@pytest.mark.parametrize("name", tracker_folders(Path("/x")))
def test_a_place_that_a_person_has_set_is_kept(tmp_path: Path, surroundings: dict[str, str], name: str) -> None:
    surroundings[name] = "http://mine"
    started(tmp_path)
    assert surroundings[name] == "http://mine"


def test_the_last_launch_wins_also_when_the_clock_has_gone_back(tmp_path: Path, surroundings, monkeypatch) -> None:
    for number, now in enumerate(("20261025-025900", "20261025-020100", "20261025-020100", "20261025-030000")):
        monkeypatch.setattr(time, "strftime", lambda _, now=now: now)
        started(tmp_path)
        log = Path(surroundings["VERL_FILE_LOGGER_PATH"])
        log.parent.mkdir(exist_ok=True)
        log.write_text(json.dumps({"step": 1, "data": {"launch": number}}) + "\n")
        assert read_steps(tmp_path) == {1: {"launch": number}}
