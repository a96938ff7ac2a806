"""A user's environment that hangs, exits, prints or forks beside healthy episodes: these end as they would alone."""

import asyncio
import os
import signal
import time
from contextlib import suppress

import pytest
from support.own_environment import example

from interaction import boundary, get_protocol
from interaction.environment import load_tasks, register
from interaction.gold import play_gold
from recipe.cpu.tiny_policy import make_tokenizer
from rewards import progress

PROTOCOL = get_protocol("think_xml", docs="signature")
CALL = "    def call(self, call):\n"
SIBLINGS = 3
HOSTILE = {
    "hangs": ("time.sleep(3600)", "call('add'): has not returned within 2 s"),
    "loops": ("while True: pass", "call('add'): has not returned within 2 s"),
    "prints": ("while True: print('x' * 80)", "call('add'): has not returned within 2 s"),
    "exits": ("sys.exit(3)", "call('add'): SystemExit: 3 at FILE:51"),
    "interrupts": ("raise KeyboardInterrupt", "call('add'): KeyboardInterrupt at FILE:51"),
    "raises": ("1 / 0", "ZeroDivisionError: division by zero at FILE:51"),
    "starts a process": ("note(subprocess.Popen(['sleep', '3600'], start_new_session=True).pid)", None),
    "forks": ("note(os.fork())", None),
}
"""What the environment does in a call of one task, and the fault in the record of that episode; None: it passes."""


@pytest.fixture(params=HOSTILE)
def hostile(request, tmp_path, monkeypatch):
    """Name of the environment, its hostile task and healthy ones, and the fault to expect."""
    monkeypatch.setattr(boundary, "_late", [])
    does, fault = HOSTILE[request.param]
    name, pids = f"hostile_{request.node.name.translate(str.maketrans('[]- ', '____'))}", tmp_path / "pids"
    text = example().replace('"inventory"', f'"{name}"').replace('["add", "take"]', '["add"]')
    hostile = f"        if self.task.part == 'test' and self.task.id == 'move_3':\n            {does}\n"
    note = f"def note(pid):\n    if pid: open({str(pids)!r}, 'a').write(f'{{pid}}\\n')\n"
    path = tmp_path / f"{name}.py"
    path.write_text(f"{text.replace(CALL, CALL + hostile)}\nimport os, subprocess, sys, time\n{note}")
    register({name: str(path)})
    tasks = [task for task in load_tasks(name).values() if task.part == "test"][: 1 + SIBLINGS]
    yield name, tasks, fault and fault.replace("FILE", path.name)
    for pid in map(int, pids.read_text().split() if pids.exists() else []):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)


def replies(task):
    """Gold, which only healthy tasks could be made to play."""
    call, answer = task.gold()
    return [PROTOCOL.render_calls("t", call.calls), PROTOCOL.render_answer("t", answer.answer)]


def test_siblings_end_as_they_would_alone(hostile, make_loop, engine, caplog):
    name, tasks, fault = hostile
    tokenizer = make_tokenizer([*map(str, play_gold(tasks[1], PROTOCOL)[0])])

    async def run():
        rows = [{"extra_info": {"split": "train", "environment": name, "task_id": task.id}} for task in tasks]
        loops = [make_loop(tokenizer, engine(tokenizer, replies(task)), policy={"call_timeout": 2}) for task in tasks]
        pairs = zip(loops, rows, strict=True)
        return await asyncio.gather(*[loop.run({}, **row, uid="u", global_steps=1) for loop, row in pairs])

    began = time.monotonic()
    outputs = asyncio.run(run())
    assert time.monotonic() - began < 60
    episodes = {output.record_header["task_id"]: output.extra_fields["episode"] for output in outputs}
    ends = {task.id: (episodes[task.id]["stop_reason"], episodes[task.id]["fault"]) for task in tasks}
    fine = ("completed", None)
    assert ends == {task.id: fine for task in tasks} | ({"move_3": ("environment_error", fault)} if fault else {})
    scores = [progress.compute_score("", "", "", {"episode": episodes[task.id]})["score"] for task in tasks]
    assert scores == [0.0 if fault else 1.0] + [1.0] * SIBLINGS
    said = [record.getMessage() for record in caplog.records if "environment fault" in record.getMessage()]
    assert said == ([f"environment fault in move_3, turn 0: {fault}"] if fault else [])
