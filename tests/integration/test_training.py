"""Trains for real: verl's trainer, vLLM, Ray, FSDP2 and BFCL scenarios with an untrained tiny policy.

One test, because the start of all processes is what takes the time. It takes about four minutes on two cores.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
from safetensors.torch import load_file
from support.agreement import engine_agrees
from support.short_training import ROOT, SHORT, prepared
from support.short_training import environment as start_environment

from recipe.report.episodes import read_records
from recipe.report.tables import CORRELATION
from recipe.stage.end import read_done
from recipe.stage.metrics_log import read_steps

REWARD = '''
def compute_score(data_source, solution_str, ground_truth, extra_info, scale=1.0):
    """Not ours: rewards length, so that an untrained policy gets a gradient."""
    steps = sum(len(turn["steps"]) for turn in extra_info["episode"]["turns"])
    return {"score": scale * (len(solution_str) % 11), "steps_seen": steps}
'''


def command(folder: Path, steps: int) -> list[str]:
    return [
        *(sys.executable, "-m", "recipe.curriculum", "--stages=stage1"),
        *(f"paths.run={folder}/run", f"paths.data={folder}/data"),
        f"actor_rollout_ref.model.path={folder}/model",
        f"reward.custom_reward_function.path={folder}/my_reward.py",
        "+reward.custom_reward_function.reward_kwargs.scale=100",
        f"trainer.total_training_steps={steps}",
        *SHORT,
    ]


MARK = "BFCL_TRAINING_TEST"
"""Environment variable by which this test knows the processes it has started, whatever else trains on this machine."""


def processes_of(environment: dict[str, str]) -> list[str]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK) == environment[MARK]:
                found.append(" ".join([process.name(), *process.cmdline()])[:120])
    return found


def test_a_stage_trains_is_interrupted_leaves_nothing_behind_and_goes_on_from_its_checkpoint(
    tmp_path: Path, listeners: Callable[..., Any], beyond_loopback: Callable[..., list[str]]
):
    folder, environment = prepared(tmp_path, REWARD), start_environment(**{MARK: uuid4().hex})
    stage = folder / "run" / "stage1_format"

    child, limit = subprocess.Popen(command(folder, steps=1000), cwd=ROOT, env=environment), time.time() + 900
    try:
        with listeners(MARK, environment[MARK]) as found:
            while 2 not in read_steps(stage):
                assert child.poll() is None and time.time() < limit
                time.sleep(0.5)
        names = " ".join(processes_of(environment))
        assert "ray::" in names and "VLLM::" in names, "what it looks for afterwards is found while it is there"
        heard = " ".join(sorted(found))
        assert "TransferQueue" in heard and "vLLMHttpServer" in heard and "raylet" in heard and "WorkerDict" in heard
        assert beyond_loopback(found) == [], "another machine can reach it"
        child.send_signal(signal.SIGINT)  # Ctrl-C
        child.wait(timeout=60)
    finally:
        child.kill()
    assert child.returncode != 0 and processes_of(environment) == [] and read_done(stage) is None
    interrupted = read_steps(stage)
    checkpoint = int((stage / "checkpoints" / "latest_checkpointed_iteration.txt").read_text())
    assert checkpoint >= 2

    last = checkpoint + 1
    subprocess.run(command(folder, steps=last), cwd=ROOT, env=environment, timeout=900, check=True)
    assert processes_of(environment) == []
    assert (done := read_done(stage)) and done.global_step == last

    second = sorted((stage / "metrics").glob("*.jsonl"))[-1].read_text().splitlines()
    assert [json.loads(line)["step"] for line in second] == [last], "it did not go on where the first one stopped"
    steps = read_steps(stage)
    assert set(interrupted) < set(steps)
    for numbers in steps.values():
        assert engine_agrees(numbers)
        assert numbers["train/lost_samples"] == 0.0
        assert numbers["train/score"] == numbers["critic/score/mean"] > 0, "the user's own reward was not used"
        assert numbers["train/steps_seen"] >= 1
    measured = {step for step, numbers in steps.items() if CORRELATION in numbers}
    assert {1, last} <= measured < set(steps), "the first of each launch is measured, and not every one"
    assert any(numbers["actor/grad_norm"] > 0 for numbers in steps.values())
    records = read_records(stage / "rollouts" / "train" / f"{last:06d}.jsonl")
    assert len(records) == 2 * 4 and all(
        record["score"] % 100 == 0 and record["engine_tokens"] > 0 for record in records
    )

    start, end = (load_file(path / "model.safetensors") for path in (folder / "model", stage / "hf"))
    assert any(not start[name].equal(end[name]) for name in start), "no weight has changed"
    assert (stage / "hf" / "tokenizer.json").exists()
    assert (folder / "run" / "report.html").exists()
