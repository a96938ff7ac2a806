"""A resampled stage that is killed and resumed plays the tasks that it would have played; about three minutes."""

import json
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from support.short_training import ROOT, command, environment, prepared, train

from bfcl_env.synthesis import Shape, generate
from data_prep.__main__ import main as prepare_data
from recipe.stage import state
from recipe.stage.metrics_log import read_steps
from recipe.training.resampling import Resampler

REWARD = '''
def compute_score(data_source, solution_str, ground_truth, extra_info):
    """Not ours: progress depends on the task alone, so that it is known which tasks come next."""
    digits = "".join(filter(str.isdigit, extra_info["episode"]["task_id"]))
    return {"score": len(solution_str) % 7, "progress": int("0" + digits) % 4 / 3}
'''
SHORT = Shape(classes=("GorillaFileSystem",), turns=(1, 1), operations=1, forms=("multi_turn_base",))
IN_PLAY, BATCH, STEPS, KILLED = 8, 2, 12, 5


@pytest.mark.slow
def test_a_killed_stage_goes_on_with_the_same_tasks(tmp_path: Path) -> None:
    prepared(tmp_path, REWARD)
    tasks = tmp_path / "made.json"
    tasks.write_text("".join(json.dumps(entry) + "\n" for entry in generate("train", 24, seed=1, shape=SHORT)))
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
    stage, began = tmp_path / "run" / "stage2_base", time.time()
    first = [sys.executable, "-m", *command(tmp_path, *overrides, rows=BATCH)]
    child = subprocess.Popen(first, cwd=ROOT, env=environment())
    while state.latest(stage / "checkpoints") < KILLED:
        assert child.poll() is None and time.time() - began < 500
        time.sleep(0.1)
    child.kill()
    train(tmp_path, *overrides, rows=BATCH)

    tables = [parquet.read_table(path) for path in (tmp_path / "play.parquet", pool)]
    names = [info["task_id"] for table in tables for info in table["extra_info"].to_pylist()]
    settings = {"keep": [0.2, 0.85], "retire": 0.95, "replace": 0.5}
    sampler = Resampler(names, ["made"] * len(names), IN_PLAY, settings)
    batches = (list(rows) for _ in range(STEPS) for rows in zip(*[iter(sampler)] * BATCH, strict=True))
    for step, rows in zip(range(1, STEPS + 1), batches, strict=False):
        lines = (stage / "rollouts" / "train" / f"{step:06d}.jsonl").read_text().splitlines()
        expected = [names[row] for row in rows]
        played = defaultdict(list)
        for episode in map(json.loads, lines):  # the killed launch may have begun the step that is made again
            played[episode["launch"]].append(episode["task_id"])
        *killed, whole = played.values()
        assert sorted(whole) == sorted(2 * expected), step
        assert all(set(ids) <= set(expected) for ids in killed), step
        sampler.observe({name: [int(name.rpartition("_")[2]) % 4 / 3] for name in expected})
    replaced = [numbers["resample/replaced"] for numbers in read_steps(stage).values() if "resample/edge" in numbers]
    assert replaced[0] == 0 < replaced[1] and len(replaced) == STEPS * BATCH // IN_PLAY
