"""The command line of train_fctncalling.py trains with both algorithms, and its results are where they are looked for.

    pytest -m slow tests/integration/test_fctncalling.py

Two trainings of two steps; about four minutes on two cores.
"""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from data_prep.__main__ import main as prepare_data
from recipe.cpu.tiny_policy import make_tiny_policy
from recipe.stage import state
from recipe.stage.metrics_log import read_steps

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "outputs" / "tiny_policy" / "hf"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with data and a tiny policy, if there is one that of the demo, which ends its messages."""
    path = tmp_path_factory.mktemp("fctncalling")
    assert prepare_data(["--out", str(path / "data"), "--tiny"]) == 0
    if DEMO.is_dir():
        (path / "tiny").symlink_to(DEMO)
    else:
        make_tiny_policy(path / "tiny")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["TPPO", "APPO"])
def test_the_command_trains_and_its_curves_are_found(algorithm: str, folder: Path) -> None:
    from tensorboard.backend.event_processing import io_wrapper
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    command = [
        *(sys.executable, "-m", "recipe.tools.train_fctncalling", "--algorithm_name", algorithm),
        *("--dataset_path", "data/tiny_base.parquet", "--model_name_or_path", "tiny"),
        *("--n_rollout_threads", "4", "--gradient_cp_steps", "2", "--save_interval", "1"),
        "trainer.total_training_steps=2",
    ]
    environment = {name: value for name, value in os.environ.items() if name not in ("MODEL", "RUN", "SEED")}
    environment |= {"HARDWARE": "tiny", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]

    names = f"default/tiny/tiny_base/{algorithm}"
    stage = folder / "outputs" / "fctncalling" / names / "fctncalling"
    steps = read_steps(stage)
    assert sorted(steps) == [1, 2]
    for numbers in steps.values():
        assert numbers["actor/lr"] == pytest.approx(1e-7) and numbers["critic/lr"] == pytest.approx(5e-6)
        assert math.isfinite(numbers["critic/vf_loss"]) and numbers["actor/grad_norm"] > 0
    for step in (1, 2):
        episodes = (stage / "rollouts" / "train" / f"{step:06d}.jsonl").read_text().splitlines()
        assert len(episodes) == 4, "one for each thread"
    assert state.latest(stage / "checkpoints") == 2

    results = folder / "results" / names
    assert "<html" in (results / "report.html").read_text()
    found = [path for path in io_wrapper.GetLogdirSubdirectories(str(folder / "results")) if algorithm in path]
    assert [Path(path) for path in found] == [results / "tensorboard"], "tensorboard --logdir results"
    curves = EventAccumulator(found[0]).Reload()
    assert [event.step for event in curves.Scalars("critic/score/mean")] == [1, 2]
