"""Where tau's data come from: the pinned release, or a folder that is named; what is wrong with it is one line."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tau_env import source
from tau_env.tasks import load_tasks

PREPARE = (sys.executable, "-m", "data_prep", "--environment", "tau", "--docs", "signature", "--option", "policy=none")


def checkout(folder: Path) -> Path:
    """The same data as another folder has them: unpacked."""
    for name in source.SHA256:
        path = folder / name.removesuffix(".gz")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(source.read(name))
    return folder


def test_a_checkout_takes_the_place_of_the_release_and_stands_in_the_manifest(tmp_path: Path) -> None:
    given = ["--tau2-data", str(checkout(tmp_path / "tau2")), "--out", str(tmp_path / "out"), "--tiny"]
    done = subprocess.run([*PREPARE, *given], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out" / "manifest.json").read_text())["tau2_data"]
    assert found["from"] == str(tmp_path / "tau2") and len(found["sha256"]) == 64


@pytest.mark.parametrize("damage", ["no folder", "no file", "no tasks"])
def test_a_folder_that_is_none_is_one_line(damage: str, tmp_path: Path) -> None:
    folder = tmp_path / "tau2"
    if damage != "no folder":
        (checkout(folder) / "domains" / "retail" / "tasks.json").unlink()
    if damage == "no tasks":
        (folder / "domains" / "telecom" / "tasks.json").write_text("{")
    given = ["--tau2-data", str(folder), "--out", str(tmp_path / "out"), "--tiny"]
    done = subprocess.run([*PREPARE, *given], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1 and str(folder) in done.stderr, done.stderr


def test_a_changed_file_of_the_release_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "domains/retail/policy.txt"
    monkeypatch.setitem(source.SHA256, name, "0" * 64)
    with pytest.raises(source.SourceError, match=r"policy.txt is not the file of inspect-evals 0.26.0"):
        source.read(name)


def test_a_task_that_a_language_model_has_to_judge_is_refused_by_its_id() -> None:
    task = next(task for task in load_tasks() if task.category == "retail")
    judged = replace(task, task=replace(task.task, basis=("DB", "NL_ASSERTION")))
    with pytest.raises(ValueError, match=f"task {task.id} is judged by a language model"):
        judged.open()
