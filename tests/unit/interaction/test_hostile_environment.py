"""A user's environment that hangs, exits, prints or forks beside healthy episodes: these end as they would alone."""

import asyncio
import json
import os
import signal
from contextlib import suppress

import pytest
from support.evaluation import PROTOCOL, serving
from support.own_environment import example

import interaction.conversation
from interaction import boundary
from interaction.environment import load_tasks, named
from interaction.gold import play_gold
from recipe import evaluate
from recipe.cpu.tiny_policy import make_tokenizer
from rewards import progress

CALL = "    def call(self, call):\n"
HOSTILE = {
    "time.sleep(3600)": "call('add'): has not returned within 1 s",
    "while True: pass": "call('add'): has not returned within 1 s",
    "while True: print('x' * 80)": "call('add'): has not returned within 1 s",
    "sys.exit(3)": "call('add'): SystemExit: 3 at FILE",
    "raise KeyboardInterrupt": "call('add'): KeyboardInterrupt at FILE",
    "1 / 0": "ZeroDivisionError: division by zero at FILE",
    "note(subprocess.Popen(['sleep', '3600'], start_new_session=True).pid)": None,
    "note(os.fork())": None,
}
"""What the environment does in a call of one task, and the fault in the record of that episode; None: it passes."""


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    """File of the environment, its tasks, and how each episode has to end."""
    monkeypatch.setattr(boundary, "_late", {})
    pids, path = tmp_path / "pids", tmp_path / f"hostile_{tmp_path.name}.py"
    text = example().replace('"inventory"', f'"{path.stem}"').replace('["add", "take"]', '["add"]')
    for number, does in enumerate(HOSTILE):
        text = text.replace(CALL, f"{CALL}        if self.task.id == 'move_{4 * number + 3}':\n            {does}\n")
    note = f"def note(pid):\n    if pid: open({str(pids)!r}, 'a').write(f'{{pid}}\\n')\n"
    path.write_text(f"{text}\nimport os, subprocess, sys, time\n{note}")
    tasks = [task for task in load_tasks(named(str(path))).values() if task.part == "test"]
    lines = {does.strip(): number for number, does in enumerate(path.read_text().splitlines(), 1)}
    ends = {task.id: ("completed", None, 1.0) for task in tasks}
    for task, (does, fault) in zip(tasks, HOSTILE.items(), strict=False):
        if fault:
            ends[task.id] = ("environment_error", fault.replace("FILE", f"{path.name}:{lines[does]}"), 0.0)
    yield path, tasks, ends
    for pid in map(int, pids.read_text().split()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)


def gold(task):
    """Gold's messages; only a healthy task could be made to play them."""
    call, answer = task.gold()
    return [PROTOCOL.render_calls("t", call.calls), PROTOCOL.render_answer("t", answer.answer)]


def ends_of(episodes):
    """Of each task: how its episode ended, and what it is worth."""
    scored = [(one, progress.compute_score("", "", "", {"episode": one})["score"]) for one in episodes]
    return {one["task_id"]: (one["stop_reason"], one["fault"], score) for one, score in scored}


async def test_siblings_end_as_they_would_alone_in_training(hostile, make_loop, engine, caplog):
    path, tasks, ends = hostile
    tokenizer = make_tokenizer([*map(str, play_gold(tasks[-1], PROTOCOL)[0])])
    rows = [{"extra_info": {"split": "train", "environment": path.stem, "task_id": task.id}} for task in tasks]
    loops = [make_loop(tokenizer, engine(tokenizer, gold(task)), policy={"call_timeout": 1}) for task in tasks]
    pairs = zip(loops, rows, strict=True)
    outputs = await asyncio.gather(*[loop.run({}, **row, uid="u", global_steps=1) for loop, row in pairs])
    assert ends_of(output.extra_fields["episode"] for output in outputs) == ends
    said = sorted(record.getMessage() for record in caplog.records if "environment fault" in record.getMessage())
    faults = {task_id: fault for task_id, (_, fault, _) in ends.items() if fault}
    assert said == sorted(f"environment fault in {task_id}, turn 0: {fault}" for task_id, fault in faults.items())


def test_siblings_end_as_they_would_alone_in_an_evaluation(hostile, tmp_path, monkeypatch):
    path, tasks, ends = hostile
    opened = interaction.conversation.opened
    monkeypatch.setattr(interaction.conversation, "opened", lambda task, options, _: opened(task, options, 1))
    said = {task.open().begin().user: gold(task) for task in tasks}
    with serving(lambda messages: said[messages[1]["content"]][len(messages) > 2]) as server:
        asked = ["--endpoint", server.url, "--out", str(tmp_path / "out"), "--split", "test", "--docs", "signature"]
        assert evaluate.main([*asked, "--environment", str(path)]) == 0
    lines = (tmp_path / "out" / "episodes.jsonl").read_text().splitlines()
    assert ends_of(json.loads(line)["episode"] for line in lines) == ends
