"""A user's environment that hangs, exits, prints or forks beside healthy episodes: these end as they would alone."""

import asyncio
import json
import os
import signal
from contextlib import suppress

import pytest
from support.evaluation import PROTOCOL, played, serving
from support.own_environment import example

import interaction.conversation
from interaction import boundary
from interaction.call import Call
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


WAITING = """
import asyncio, threading
from collections import Counter
from interaction.tool_environment import Call, ToolTask, ToolUnavailable

TOGETHER, TRIES, INSIDE = 16, Counter(), set()
BARRIER, ALL = threading.Barrier(TOGETHER), None

class Lost(ToolUnavailable):
    def __init__(self, where, why): super().__init__(where)

class Coroutine:
    def __init__(self, name="", fails=0):
        self.name, self.fails, self.at = name, fails, 0
    def state(self):
        return self.at
    async def add(self, n: int) -> int:
        "Returns where as many others are in it."
        global ALL
        if self.name:
            ALL = ALL or asyncio.Event()
            INSIDE.add(self.name)
            if len(INSIDE) == TOGETHER: ALL.set()
            await ALL.wait()
        TRIES[self.fails] += 1
        if TRIES[self.fails] <= self.fails:
            raise Lost("no service", "down")
        self.at += n
        return self.at

class Plain(Coroutine):
    WAITS = True
    def add(self, n: int) -> int:
        if self.name: BARRIER.wait()
        self.at += n
        return self.at

class Computes(Plain):
    WAITS = False
    def add(self, n: int) -> int: raise Lost("no service", "down")

def task(kind, number, check=None, **start):
    turns = ["Add one."] if check else [("Add one.", [Call("add", {"n": 1})])]
    return ToolTask("NAME", f"{kind.__name__}_{number}", kind, turns, start, "test", check=check)

def load_tasks():
    right = lambda made, turn, calls, words: made.at == 1
    beside = [task(kind, n, right, name=str(n)) for kind in (Coroutine, Plain) for n in range(TOGETHER)]
    return [*beside, *[task(Coroutine, f"fails_{n}", fails=n) for n in (3, 999)], task(Computes, 0, right)]
"""


@pytest.fixture
def waiting(tmp_path, monkeypatch):
    """An environment whose calls return when 16 are made beside each other, and whose service fails so many times."""
    monkeypatch.setattr(boundary, "PAUSES", (0,))
    path = tmp_path / f"waiting_{tmp_path.name}.py"
    path.write_text(WAITING.replace("NAME", path.stem))
    return path, load_tasks(named(str(path)))


SAID = [PROTOCOL.render_calls("t", [Call("add", {"n": 1})]), PROTOCOL.render_answer("t", "done")]


async def test_conversations_wait_beside_each_other_and_a_service_that_fails_is_never_scored(
    waiting, make_loop, engine
):
    path, tasks = waiting
    tokenizer = make_tokenizer([path.read_text(), *SAID])
    failed = {"Coroutine_fails_3": 1, "Coroutine_fails_999": 2, "Computes_0": 2}

    async def play(task):
        about = {"split": "train", "environment": path.stem, "task_id": task.id}
        said = [*SAID[:1] * failed.get(task.id, 0), *SAID]
        loop = make_loop(tokenizer, engine(tokenizer, said), policy={"call_timeout": 5})
        return await loop.run({}, extra_info=about, uid="u", global_steps=1)

    found = dict(zip(tasks, await asyncio.gather(*map(play, tasks.values())), strict=True))
    assert [name for name, output in found.items() if output == []] == ["Coroutine_fails_999", "Computes_0"]
    played = {name: output.extra_fields for name, output in found.items() if output != []}
    assert {name for name, extra in played.items() if extra["tool_faults"]} == {"Coroutine_fails_3"}
    assert played["Coroutine_fails_3"]["tool_faults"] == 1 and len(played) == 33
    assert {(one[0], one[2]) for one in ends_of(extra["episode"] for extra in played.values()).values()} == {
        ("completed", 1.0)
    }


def test_an_evaluation_plays_an_episode_again_whose_service_fails_and_then_loses_it(waiting, tmp_path):
    path, _ = waiting
    done = played(
        lambda messages: SAID[len(messages) > 2],
        tmp_path / "out",
        "--environment",
        str(path),
        "--split",
        "test",
        "--concurrency",
        "40",
        category=None,
        limit=99,
    )
    assert {line["task_id"]: line["reason"] for line in done.found["lost"]}.keys() == {
        "Coroutine_fails_999",
        "Computes_0",
    }
    assert all(line["reason"].startswith("the tools: ") for line in done.found["lost"])
    assert {line["task_id"] for line in done.lines if line["attempts"] == 2} == {"Coroutine_fails_3"}
    assert done.found["overall"]["acc"]["mean"] == 1.0 and done.found["overall"]["episodes"] == 33
