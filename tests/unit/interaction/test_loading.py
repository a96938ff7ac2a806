"""Importing the agent loop does no work; the first episode loads the tasks, once, beside the event loop."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

IMPORTED = """
import gc, sys, threading
before = threading.active_count()
import interaction.agent_loop
assert "bfcl_env" not in sys.modules, "tasks are loaded by an episode"
assert gc.get_freeze_count() == 0 and threading.active_count() == before
"""

PLAYED = """
import asyncio, gc, threading
import bfcl_env
from interaction import agent_loop
from benchmarks.bench_agent_loop import GoldEngine, configuration, play
from recipe.cpu.tiny_policy import make_tokenizer

loads, freezes = [], []
load, freeze = bfcl_env.load_tasks, gc.freeze
bfcl_env.load_tasks = lambda: loads.append(threading.current_thread().name) or load()
gc.freeze = lambda: freezes.append(threading.current_thread().name) or freeze()
tokenizer = make_tokenizer(["<think>x</think><answer>done</answer>"])
ids = [*tokenizer.encode("<think>x</think><answer>done</answer>", add_special_tokens=False), tokenizer.eos_token_id]

async def both():
    await asyncio.gather(*(
        play("multi_turn_base_0", GoldEngine([ids] * 9), tokenizer, configuration(FOLDER)) for _ in range(3)
    ))

asyncio.run(both())
assert len(loads) == 1 and len(freezes) == 2, (loads, freezes)  # frozen before and after
assert {name.partition("_")[0] for name in loads + freezes} == {"environment"}
"""


def run(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]


def test_importing_the_agent_loop_loads_and_freezes_nothing_and_starts_no_thread():
    run(IMPORTED)


def test_the_first_episodes_load_once_in_the_thread_of_the_environment(tmp_path):
    run(PLAYED.replace("FOLDER", repr(str(tmp_path))))
