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

STARTER = "from recipe.cpu import prefork; print(prefork.start(), flush=True); input()"
WORKER = """
import json, os, sys
loaded = [name for name in ("torch", "transformers", "ray") if name in sys.modules]
print(json.dumps({"name": __name__, "argv": sys.argv, "folder": os.getcwd(),
                  "mine": os.environ.get("MINE"), "loaded": loaded, "typed": sys.stdin.read()}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the server's end is tied to its parent's by Linux")
def test_a_forked_worker_is_what_python_would_have_started(tmp_path: Path):
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert starter.stdout is not None
    command = shlex.split(starter.stdout.readline())
    (server,) = psutil.Process(starter.pid).children()
    try:
        script = tmp_path / "worker.py"
        script.write_text(WORKER)
        stub = subprocess.run(
            [*command, str(script), "--token", "a b"],
            cwd=tmp_path,
            env={**os.environ, "MINE": "yes"},
            input="typed",
            capture_output=True,
            text=True,
            timeout=300,
        )
        said = json.loads(stub.stdout)
        assert said == {
            "name": "__main__",
            "argv": [str(script), "--token", "a b"],
            "folder": str(tmp_path),
            "mine": "yes",
            "loaded": ["torch", "transformers"],
            "typed": "typed",
        }
    finally:
        starter.send_signal(signal.SIGKILL)
        starter.wait()
    server.wait(timeout=10)
    alone = subprocess.run([*command, str(script)], capture_output=True, text=True, timeout=60)
    assert json.loads(alone.stdout)["loaded"] == []
