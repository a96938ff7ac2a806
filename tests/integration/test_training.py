"""Trains for real: verl's trainer, vLLM, Ray, FSDP2 and BFCL scenarios with an untrained tiny policy.

One test, because the start of all processes is what takes the time: about four minutes on two cores.
"""

import json
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from uuid import uuid4

import psutil
import pyarrow.parquet as parquet
import pytest
from safetensors.torch import load_file
from support import short_training
from support.short_training import ROOT, SHORT, command, engine_agrees, environment, episodes, of_processes, prepared

from bfcl_env.synthesis import Shape, generate
from data_prep.__main__ import main as prepare_data
from recipe.report.episodes import read_records
from recipe.report.tables import CORRELATION
from recipe.stage.end import read_done
from recipe.stage.metrics_log import read_steps
from recipe.training.resampling import Resampler

SCALED = '''
import sys
assert __name__ in sys.modules, "verl has loaded it, without the time limit and what is checked of a reward"
def compute_score(data_source, solution_str, ground_truth, extra_info, scale=1.0):
    """Not ours: rewards length, so that an untrained policy gets a gradient."""
    steps = sum(len(turn["steps"]) for turn in extra_info["episode"]["turns"])
    return {"score": scale * (len(solution_str) % 11), "steps_seen": steps}
'''


def curriculum(folder: Path, steps: int) -> list[str]:
    return [
        *(sys.executable, "-m", "recipe.curriculum", "--stages=stage1"),
        *(f"paths.run={folder}/run", f"paths.data={folder}/data", f"actor_rollout_ref.model.path={folder}/model"),
        f"reward.custom_reward_function.path={folder}/my_reward.py",
        *("+reward.custom_reward_function.reward_kwargs.scale=100", "+custom.secrets=[hunter2]"),
        *(f"trainer.total_training_steps={steps}", *SHORT),
    ]


def titles(process: psutil.Process) -> list[str]:
    return [" ".join([process.name(), *process.cmdline()])[:120]]


def test_a_stage_trains_is_interrupted_leaves_nothing_behind_and_goes_on_from_its_checkpoint(tmp_path: Path):
    folder, mark = prepared(tmp_path, SCALED), uuid4().hex
    given = environment(**{short_training.MARK: mark})
    stage = folder / "run" / "stage1_format"
    child, limit = subprocess.Popen(curriculum(folder, steps=1000), cwd=ROOT, env=given), time.time() + 900
    try:
        with short_training.listeners(mark) as found:
            while 2 not in read_steps(stage):
                assert child.poll() is None and time.time() < limit
                time.sleep(0.5)
        names = " ".join(of_processes(mark, titles))
        assert "ray::" in names and "VLLM::" in names, "what it looks for afterwards is found while it is there"
        heard = " ".join(sorted(found))
        assert "TransferQueue" in heard and "vLLMHttpServer" in heard and "raylet" in heard and "WorkerDict" in heard
        assert short_training.beyond_loopback(found) == [], "another machine can reach it"
        child.send_signal(signal.SIGINT)  # Ctrl-C
        child.wait(timeout=60)
    finally:
        child.kill()
    assert child.returncode != 0 and not of_processes(mark, titles) and read_done(stage) is None
    interrupted = read_steps(stage)
    checkpoint = int((stage / "checkpoints" / "latest_checkpointed_iteration.txt").read_text())
    assert checkpoint >= 2
    last = checkpoint + 1
    subprocess.run(curriculum(folder, steps=last), cwd=ROOT, env=given, timeout=900, check=True)
    assert not of_processes(mark, titles)
    assert (done := read_done(stage)) and done.global_step == last
    assert not [log for log in (folder / "run" / "logs").glob("*.log") if "hunter2" in log.read_text(errors="replace")]
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
    assert len(records) == 2 * 4
    assert all(record["score"] % 100 == 0 and record["engine_tokens"] > 0 for record in records)
    start, end = (load_file(path / "model.safetensors") for path in (folder / "model", stage / "hf"))
    assert any(not start[name].equal(end[name]) for name in start), "no weight has changed"
    assert (stage / "hf" / "tokenizer.json").exists()
    assert (folder / "run" / "report.html").exists()


REWARD = '''
def compute_score(data_source, solution_str, ground_truth, extra_info):
    """Not ours: progress depends on the task alone, so that it is known which tasks come next."""
    digits = "".join(filter(str.isdigit, extra_info["episode"]["task_id"]))
    return {"score": len(solution_str) % 7, "progress": int("0" + digits) % 4 / 3}
'''
ONE_TURN = Shape(classes=("GorillaFileSystem",), turns=(1, 1), operations=1, forms=("multi_turn_base",))
IN_PLAY, BATCH, STEPS, KILLED = 8, 2, 12, 5


@pytest.mark.slow
def test_a_killed_stage_goes_on_with_the_same_tasks(tmp_path: Path) -> None:
    prepared(tmp_path, REWARD)
    tasks = tmp_path / "made.json"
    tasks.write_text("".join(json.dumps(entry) + "\n" for entry in generate("train", 24, seed=1, shape=ONE_TURN)))
    assert prepare_data(["--json", str(tasks), "--out", str(tmp_path / "made"), "--docs", "signature"]) == 0
    pool = tmp_path / "made" / "made_train.parquet"
    parquet.write_table(parquet.read_table(pool).slice(0, IN_PLAY), tmp_path / "play.parquet")
    overrides = (
        f"+interaction.environments.made={tasks}",
        *(f"data.train_files={tmp_path}/play.parquet", "data.val_files=[]", "trainer.test_freq=-1"),
        *(f"stage.resample.pool={pool}", "stage.resample.replace=0.5", "data.shuffle=true"),
        f"reward.custom_reward_function.path={tmp_path}/my_reward.py",
        *(f"trainer.total_training_steps={STEPS}", f"trainer.total_epochs={STEPS}", "trainer.save_freq=1"),
    )
    short_training.kill_after(KILLED, tmp_path / "run/stage2_base", *command(tmp_path, *overrides, rows=BATCH))
    stage = short_training.train(tmp_path, *overrides, rows=BATCH)
    tables = [parquet.read_table(path) for path in (tmp_path / "play.parquet", pool)]
    names = [info["task_id"] for table in tables for info in table["extra_info"].to_pylist()]
    settings = {"keep": [0.2, 0.85], "retire": 0.95, "replace": 0.5}
    sampler = Resampler(names, ["made"] * len(names), IN_PLAY, settings, 1, True)
    batches = (list(rows) for _ in range(STEPS) for rows in zip(*[iter(sampler)] * BATCH, strict=True))
    for step, rows in zip(range(1, STEPS + 1), batches, strict=False):
        expected = [names[row] for row in rows]
        played = defaultdict(list)  # by launch: the killed one may have begun the step that is made again
        for episode in episodes(stage):
            if episode["step"] == step:
                played[episode["launch"]].append(episode["task_id"])
        *killed, whole = played.values()
        assert sorted(whole) == sorted(2 * expected), step
        assert all(set(ids) <= set(expected) for ids in killed), step
        sampler.observe({name: [int(name.rpartition("_")[2]) % 4 / 3] for name in expected})
    replaced = [numbers["resample/replaced"] for numbers in read_steps(stage).values() if "resample/edge" in numbers]
    assert replaced[0] == 0 < replaced[1] and len(replaced) == STEPS * BATCH // IN_PLAY
