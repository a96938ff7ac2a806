"""Two steps of the real trainer on the CPU profile, in a process of their own: for the tests of other things."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from data_prep.__main__ import main as prepare_data
from recipe.cpu.tiny_policy import make_tiny_policy
from recipe.report.tables import CORRELATION
from recipe.stage import state

ROOT = Path(__file__).parents[2]
STAGE = "stage2_base"
MARK = "BFCL_TRAINING_TEST"
"""Environment variable by which a test knows the processes that it has started."""
SHORT = (
    *("trainer.save_freq=1", "trainer.test_freq=-1", "trainer.val_before_train=false", "data.train_batch_size=2"),
    *("data.max_response_length=300", "actor_rollout_ref.actor.ppo_mini_batch_size=2", "actor_rollout_ref.rollout.n=4"),
    "launcher.needs.disk_gb=0",
)
"""Settings with which a step takes seconds: two rows, four episodes each, a checkpoint."""
LENGTH = '''
def compute_score(data_source, solution_str, ground_truth, extra_info):
    """Not ours: rewards length, so that an untrained policy gets a gradient."""
    return {"score": 1.0 + len(solution_str) % 11}
'''


def environment(**variables: str) -> dict[str, str]:
    """That of a start with the tiny policy's profile, without what a shell has set for a run."""
    kept = {name: value for name, value in os.environ.items() if name not in ("MODEL", "RUN", "SEED")}
    return {**kept, "HARDWARE": "tiny", **variables}


def start(
    module: str, *arguments: str, timeout: float = 900, folder: Path = ROOT, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run `python -m module` in this checkout, or this folder, with these variables."""
    command, given = [sys.executable, "-m", module, *arguments], environment(**variables)
    return subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, timeout=timeout)


def succeed(*arguments: str, **more: Any) -> str:
    """The same to its end with status 0; returns what it said."""
    done = start(*arguments, **more)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


def kill_after(step: int, stage: Path, *arguments: str) -> None:
    """Run `python -m arguments` in this checkout, and kill it when this stage has a checkpoint of this step."""
    with subprocess.Popen([sys.executable, "-m", *arguments], cwd=ROOT, env=environment()) as child:
        end = time.monotonic() + 3600
        try:
            while state.latest(stage / "checkpoints") < step:
                assert child.poll() is None and time.monotonic() < end
                time.sleep(0.1)
        finally:
            child.kill()


def prepared(folder: Path, reward: str = LENGTH) -> Path:
    """The same folder, with the tiny data in `data`, an untrained policy in `model`, and `my_reward.py`."""
    assert prepare_data(["--out", str(folder / "data"), "--tiny"]) == 0
    make_tiny_policy(folder / "model")
    (folder / "my_reward.py").write_text(reward)
    return folder


def command(folder: Path, *overrides: str, config: str = "stage2", run: str = "run", rows: int = 4) -> tuple[str, ...]:
    """Two steps of so many rows, two episodes each, that train the model in `folder/model`: module and arguments."""
    return (
        *("recipe.train", "--config-name", config, f"paths.run={folder}/{run}", f"paths.data={folder}/data"),
        f"actor_rollout_ref.model.path={folder}/model",
        *("trainer.total_training_steps=2", "trainer.save_freq=2", "trainer.test_freq=2"),
        *(f"data.train_batch_size={rows}", f"actor_rollout_ref.actor.ppo_mini_batch_size={rows}"),
        *("actor_rollout_ref.rollout.n=2", "data.max_response_length=300"),
        *overrides,
    )


def train(folder: Path, *overrides: str, config: str = "stage2", run: str = "run", rows: int = 4) -> Path:
    """Trains by `command`; returns the folder of the stage."""
    succeed(*command(folder, *overrides, config=config, run=run, rows=rows))
    return folder / run / (STAGE if config == "stage2" else config)


def engine_agrees(numbers: dict[str, float]) -> bool:
    """Whether a step's engine and trainer computed the same probabilities: by verl's correlation or by the update."""
    if CORRELATION in numbers:
        return numbers[CORRELATION] > 0.99
    return abs(numbers["actor/ppo_kl"]) < 1e-4 and numbers["actor/pg_clipfrac"] == 0


def episodes(stage: Path, split: str = "train") -> list[dict[str, Any]]:
    texts = [path.read_text() for path in stage.glob(f"rollouts/{split}/*.jsonl")]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def of_processes(mark: str, words: Callable[[psutil.Process], Iterable[str]]) -> set[str]:
    """Words about the living processes that were started with this MARK, whatever else trains on this machine."""
    found = set[str]()
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK) == mark:
                found.update(words(process))
    return found


def _listening(process: psutil.Process) -> Iterator[str]:
    for connection in process.net_connections("inet"):
        if connection.status == psutil.CONN_LISTEN or not connection.raddr:
            yield f"{process.name()} {connection.laddr.ip}:{connection.laddr.port}"


@contextmanager
def listeners(mark: str) -> Iterator[set[str]]:
    """Collects twice a second what processes with this MARK listen on, as `process address:port`."""
    found, ended = set[str](), threading.Event()

    def look() -> None:
        while not ended.wait(0.5):
            found.update(of_processes(mark, _listening))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def beyond_loopback(found: set[str]) -> list[str]:
    """Of what `listeners` found, what another machine can reach."""
    return sorted(one for one in found if not re.search(r" (::1|(::ffff:)?127\.[\d.]+):\d+$", one))
