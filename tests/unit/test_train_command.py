"""The command of a stage, up to where it would start to train: what a look leaves, and what a refusal leaves."""

import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from data_prep.__main__ import main as prepare_data
from recipe import train
from recipe.cpu.tiny_policy import make_tiny_policy
from recipe.machine.cluster import TOKEN
from recipe.stage import state

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


def tree(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything in a folder: when it was changed, its mode, what it holds."""
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in [folder, *folder.rglob("*")]
    }


def test_a_look_writes_nothing_at_all(folder: Path):
    command = [sys.executable, "-m", "recipe.train", "--config-name", "stage1", *NEEDS]
    env = {name: value for name, value in os.environ.items() if name not in ("MODEL", "RUN")}
    env |= {"HARDWARE": "tiny", "PYTHONPATH": str(Path(__file__).parents[2]), "MODEL": str(folder / "model")}
    before = tree(folder)
    for given, status, words in (
        (["++preflight_only=True", "trainer.resume_mode=disable"], 0, "all checks passed; nothing was"),
        (["preflight_only=true"], 1, "holds checkpoints of"),
    ):
        looked = subprocess.run([*command, *given], cwd=folder, env=env, capture_output=True, text=True, timeout=200)
        assert looked.returncode == status and words in looked.stdout + looked.stderr, looked.stdout + looked.stderr
        assert "Traceback" not in looked.stderr and tree(folder) == before


@patch.dict(os.environ)
def test_what_a_start_over_replaces_is_aside_before_training_begins(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folder)
    os.environ.update({TOKEN: "ours", "HARDWARE": "tiny", "MODEL": str(folder / "model")})
    os.environ.pop("RUN", None)
    seen, stage = [], folder / "outputs" / "default" / "stage1_format"
    given = ["trainer.resume_mode=disable", "trainer.save_freq=-1", "launcher.prefork=false", *NEEDS]
    monkeypatch.setattr(sys, "argv", ["train", "--config-name", "stage1", *given])
    monkeypatch.setattr(train, "launch", lambda *_: seen.append((state.look(stage).began, [*stage.glob("check*/*")])))
    train.main()
    ((began, checkpoints),) = seen
    monkeypatch.setattr(sys, "argv", [*sys.argv[:3], *given[1:]])
    monkeypatch.setattr(train.end, "at_target", lambda _: True)
    for owes in (True, False):  # killed before the last validation was logged, and after
        monkeypatch.setattr(train.end, "owes_validation", lambda _, owes=owes: owes)
        train.main()
        assert len(seen) == 2
    assert began and began.model == str(folder / "model") and not checkpoints
    assert state.latest(folder / "outputs" / "default" / "aside" / "stage1_format" / "checkpoints") == 3
