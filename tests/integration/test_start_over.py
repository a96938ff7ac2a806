"""A stage that was trained from one model, and is to start over from another: two small trainings, three minutes.

pytest -m slow -s tests/integration/test_start_over.py
"""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.short_training import ROOT, SHORT, environment, prepared

from recipe import processes
from recipe.stage import state
from recipe.stage.end import read_done
from recipe.stage.metrics_log import read_steps

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]


def command(folder: Path, model: str, *overrides: str) -> list[str]:
    return [
        *(sys.executable, "-m", "recipe.train", "--config-name", "stage1"),
        *(f"paths.run={folder}/run", f"paths.data={folder}/data", f"actor_rollout_ref.model.path={folder}/{model}"),
        *("trainer.total_training_steps=1", *SHORT, *overrides),
    ]


def trained(folder: Path, model: str, *overrides: str) -> str:
    done = subprocess.run(
        command(folder, model, *overrides), cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def distance(left: Path, right: Path) -> float:
    """The largest difference of two numbers of the same place in two models."""
    one, other = (load_file(path / "model.safetensors") for path in (left, right))
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def test_a_stage_that_starts_over_trains_the_new_model_even_if_it_is_killed_before_its_first_save(tmp_path: Path):
    (prepared(tmp_path) / "model").rename(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    weights = load_file(tmp_path / "a" / "model.safetensors")
    torch.manual_seed(1)
    moved = {name: value + 0.5 * torch.randn(value.shape) for name, value in weights.items()}
    save_file(moved, tmp_path / "b" / "model.safetensors", metadata={"format": "pt"})
    stage, aside = tmp_path / "run" / "stage1_format", tmp_path / "run" / "aside" / "stage1_format"

    trained(tmp_path, "a")
    first = (stage / "hf" / "model.safetensors").read_bytes()
    assert distance(stage / "hf", tmp_path / "a") < 0.1

    refused = subprocess.run(command(tmp_path, "b"), cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert refused.returncode == 1 and "trainer.resume_mode=disable to start over" in refused.stdout + refused.stderr
    assert (stage / "hf" / "model.safetensors").read_bytes() == first and not aside.exists()

    child = subprocess.Popen(command(tmp_path, "b", "trainer.resume_mode=disable"), cwd=ROOT, env=environment())
    try:
        end = time.time() + 200
        while not (stage / "config" / "resolved.yaml").exists() or not aside.exists():
            assert child.poll() is None and time.time() < end
            time.sleep(0.05)
    finally:
        child.kill()
        child.wait()
    if (launch := processes.LAUNCH.read_or_none(tmp_path / "run" / "launch.json")) is not None:
        processes.clear(launch, tmp_path / "run")
    assert not state.step_folders(stage / "checkpoints")

    said = trained(tmp_path, "b")  # without `disable`
    assert "from the checkpoint of step" not in said
    assert list(read_steps(stage)) == [1]
    assert distance(stage / "hf", tmp_path / "b") < 0.1 < distance(stage / "hf", tmp_path / "a")
    assert (began := state.look(stage).began) and began.model == str(tmp_path / "b")

    assert (aside / "hf" / "model.safetensors").read_bytes() == first
    assert sorted(state.step_folders(aside / "checkpoints")) == [1]
    old = read_done(aside)
    assert old is not None and old.model_step == 1 and list(read_steps(aside)) == [1]
