"""A user's environment that hangs, exits, prints or forks beside healthy episodes: these end as they would alone."""

import asyncio
import os
import signal
from contextlib import suppress

import pytest
from support.evaluation import PROTOCOL, played
from support.own_environment import example

from interaction import boundary
from interaction.agent_loop import _waiting
from interaction.call import Call
from interaction.environment import load_tasks, named
from interaction.gold import play_gold
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
    logged = [record for record in caplog.records if "environment fault" in record.getMessage()]
    faults = {f"environment fault in {name}, turn 0: {fault}": fault for name, (_, fault, _) in ends.items() if fault}
    traced = {record.getMessage(): bool(record.exc_info) for record in logged}
    assert traced == {line: "ZeroDivisionError" in fault for line, fault in faults.items()}


WAITING = """
from interaction.tool_environment import ToolTask, ToolUnavailable
INSIDE, TRIES = [], []
class Down(ToolUnavailable):
    def __init__(self, service, why): super().__init__(service)
class Coroutine:
    at, PARALLEL = 0, True
    def state(self): return self.at
    async def add(self, n: int):
        self.at += n; INSIDE.append(n)
        while len(INSIDE) < 16: await asyncio.sleep(0.01)
        await asyncio.sleep(n / 20); return n
class Fails(Coroutine):
    PARALLEL = False
    async def add(self, n: int):
        if len(TRIES.append(n) or TRIES) < 4: raise Down("shop", "no answer")
        self.at += n
class Computes(Coroutine):
    def __init__(self): raise Down("shop", "no answer")
    def add(self, n: int): ...
def load_tasks():
    made, right = [*[Coroutine] * 8, Fails, Computes], lambda made, turn, calls, words: made.at == 2
    return [ToolTask("NAME", f"{k.__name__}_{n}", k, ["Add."], part="test", check=right) for n, k in enumerate(made)]
"""
SAID = [PROTOCOL.render_calls("t", [Call("add", {"n": n}) for n in (2, 0)]), PROTOCOL.render_answer("t", "done")]


@pytest.fixture
def waiting(tmp_path, monkeypatch):
    """A file in which 16 calls of 8 episodes return together, or never, and a service fails in one's first attempt."""
    monkeypatch.setattr(boundary, "PAUSES", (0,))
    path = tmp_path / f"waiting_{tmp_path.name}.py"
    path.write_text("import asyncio" + WAITING.replace("NAME", path.stem))
    return path


async def test_conversations_and_calls_wait_beside_each_other_and_a_service_is_never_scored(waiting, make_loop, engine):
    tasks, tokenizer = load_tasks(named(str(waiting))), make_tokenizer([WAITING, *SAID])

    def play(name):
        talker = engine(tokenizer, SAID[: name == "Fails_8"] + SAID)
        row = {"extra_info": {"split": "train", "environment": waiting.stem, "task_id": name}}
        loop = make_loop(tokenizer, talker, policy={"call_timeout": 5}, waiting=65)
        return loop.run({}, **row, uid="u", global_steps=1)

    found = dict(zip(tasks, await asyncio.gather(*map(play, tasks)), strict=True))
    assert found.pop("Computes_9") == []
    assert {name for name, one in found.items() if one.extra_fields["tool_faults"]} == {"Fails_8"}
    ends = ends_of(episodes := [output.extra_fields["episode"] for output in found.values()])
    results = [[call["result"] for call in episode["turns"][0]["steps"][0]["calls"]] for episode in episodes]
    assert results == [["2", "0"]] * 8 + [["null"] * 2], "in the order of the calls"
    assert len(ends) == 9 and set(ends.values()) == {("completed", None, 1.0)} and _waiting(65)._threads


def test_an_evaluation_plays_an_episode_again_whose_service_fails_and_then_loses_it(waiting, tmp_path):
    more = ("--environment", str(waiting), "--split", "test", "--concurrency", "40")
    done = played(lambda said: SAID[len(said) > 2], tmp_path / "out", *more, category=None, limit=99)
    assert {line["task_id"]: line["reason"] for line in done.found["lost"]} == {"Computes_9": "the tools: open(): shop"}
    assert {line["task_id"] for line in done.lines if line["attempts"] == 2} == {"Fails_8"}
    assert done.found["overall"]["acc"]["mean"] == 1.0 and done.found["overall"]["episodes"] == 9
