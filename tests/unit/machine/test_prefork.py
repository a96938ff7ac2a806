"""Ray's workers are forked from a process that has the large libraries, and are otherwise what Ray asked for."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

PLATFORM = {"VERL_PLATFORM": "cpu"}
STARTER = "from recipe.machine import prefork; print(prefork.start(), flush=True); input()"
WORKER = """
import json, multiprocessing, os, sys
def spawned(pipe):
    import setproctitle
    setproctitle.setproctitle("a::title")
    pipe.send(["torch" in sys.modules, open("/proc/self/comm").read()])
if __name__ == "__main__":
    loaded = [name for name in ("torch", "vllm", "ray") if name in sys.modules]
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    engine = context.Process(target=spawned, args=(theirs,))
    engine.start()
    print(json.dumps({"name": __name__, "argv": sys.argv, "folder": os.getcwd(), "mine": os.environ.get("MINE"),
                      "loaded": loaded, "typed": sys.stdin.read(), "spawned": ours.recv()}))
    engine.join()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the server's end is tied to its parent's by Linux")
def test_a_forked_worker_is_what_python_would_have_started(tmp_path: Path):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    starter = subprocess.Popen([sys.executable, "-c", STARTER], text=True, env=os.environ | PLATFORM, **pipes)
    assert starter.stdout is not None
    command = shlex.split(starter.stdout.readline())
    (server,) = psutil.Process(starter.pid).children()
    try:
        script = tmp_path / "default_worker.py"
        script.write_text(WORKER)
        line, mine = [str(script), "--token", "a b"], {**os.environ, **PLATFORM, "MINE": "yes"}
        given = {"cwd": tmp_path, "env": mine, "input": "typed", "capture_output": True, "text": True}
        stub = subprocess.run([*command, *line], timeout=300, **given)
        expected = {"name": "__main__", "argv": line, "folder": str(tmp_path), "mine": "yes", "typed": "typed"}
        assert json.loads(stub.stdout) == {**expected, "loaded": ["torch", "vllm"], "spawned": [True, "a::title\n"]}
        of_job = json.dumps({"env_vars": {"MINE": "the job's"}, "py_executable": sys.executable})
        set_up = ["setup_worker.py", *line, "--language=PYTHON", f"--serialized-runtime-env-context={of_job}"]
        stub = subprocess.run([*command, *set_up], timeout=60, **given)
        found = json.loads(stub.stdout)
        assert (found["argv"], found["mine"], found["loaded"]) == (line, "the job's", ["torch", "vllm"])
    finally:
        starter.send_signal(signal.SIGKILL)
        starter.wait()
    server.wait(timeout=10)
    alone = subprocess.run([*command, str(script)], capture_output=True, text=True, timeout=60)
    assert json.loads(alone.stdout)["loaded"] == [] and not json.loads(alone.stdout)["spawned"][0]
