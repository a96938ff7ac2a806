"""Ray's workers begin as the start did, forked or on other nodes, and what dies is named."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from itertools import chain, count, repeat
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

from recipe.machine import cluster, prefork

TRAVEL = ["VERL_PLATFORM", "BFCL_LAUNCH", "VLLM_CPU_KVCACHE_SPACE", "HF_HOME", "PYTHONPATH", "TENSORBOARD_DIR"]
STAY = ["PATH", "LD_LIBRARY_PATH", "NCCL_SOCKET_IFNAME", "VLLM_HOST_IP", "NCCL_IB_HCA", "RAY_ADDRESS", "RAY_AUTH_TOKEN"]
LOST = "CLUSTER node second (10.0.0.2) was lost"
SECRET = ["HF_TOKEN", "WANDB_API_KEY", "VLLM_API_KEY", "MLFLOW_TRACKING_PASSWORD"]


def test_settings_travel_secrets_are_named_and_what_a_node_has_of_its_own_stays() -> None:
    environment = {name: "x" for name in (*TRAVEL, *STAY, *SECRET, "TOKENIZERS_PARALLELISM")}
    assert cluster.travelling(environment).keys() == {*TRAVEL, "TOKENIZERS_PARALLELISM"}
    assert cluster.secrets(environment | {"HF_HUB_TOKEN": ""}) == sorted(SECRET)
    asked = {"py_executable": "python", "env_vars": {"JUDGE": 1, "HF_HOME": "/cache", cluster.FOLDER: "/tmp"}}
    sent = cluster.runtime_env({"HF_HOME": "/home", "PATH": "/bin"}, "20261122-090000", asked)
    assert sent["py_executable"] == "python" and sent["worker_process_setup_hook"] == "recipe.machine.cluster.begin"
    own = {cluster.FOLDER: os.getcwd(), cluster.LAUNCHED: "20261122-090000"}
    assert sent["env_vars"] == {"HF_HOME": "/cache", "JUDGE": "1", **own}


def test_a_worker_begins_in_the_folder_of_the_start_with_its_folder_of_temporary_files(tmp_path: Path) -> None:
    temp = tmp_path / "tmp" / "bfcl-1"
    code = "import json, os, tempfile; from recipe.machine import cluster; cluster.begin(); cluster.begin()\n"
    code += "print(json.dumps([os.getcwd(), tempfile.gettempdir()]))"
    given = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), cluster.FOLDER: str(tmp_path)}
    given |= {"TMPDIR": str(temp), cluster.TOKEN: "token"}
    done = subprocess.run([sys.executable, "-c", code], env=given, cwd="/", capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and json.loads(done.stdout) == [str(tmp_path), str(temp)], done.stderr
    assert (temp / cluster.TOKEN_FILE).read_text() == "token" and temp.stat().st_mode & 0o077 == 0


def looks(monkeypatch: pytest.MonkeyPatch, good: int) -> Mock:
    """So many looks find nothing, and the others that a node was lost."""
    look = Mock(side_effect=chain(repeat(None, good), repeat(LOST)))
    monkeypatch.setattr(cluster, "Losses", lambda _: look)
    return look


def test_a_lost_node_ends_a_training_that_waits_and_is_named_where_one_fails(monkeypatch, capsys) -> None:
    look, ended = looks(monkeypatch, 10**9), threading.Event()
    monkeypatch.setattr(cluster, "EVERY", 0.02)
    monkeypatch.setattr(os, "_exit", lambda status: status == 1 and ended.set())
    with cluster.watching():
        while look.call_count < 5:
            time.sleep(0.01)
    assert capsys.readouterr().out == "" and not ended.is_set()
    looks(monkeypatch, 1)
    with cluster.watching(grace=0.1):
        assert ended.wait(10)
    assert capsys.readouterr().out == f"{LOST}\n"
    looks(monkeypatch, 3)  # until Ray has noticed it
    with pytest.raises(RuntimeError, match="an actor died"), cluster.watching({"b": "second"}):
        raise RuntimeError("an actor died")
    assert capsys.readouterr().out == f"{LOST}\n"
    looks(monkeypatch, 10**9)
    monkeypatch.setattr(cluster, "NOTICED", 0.2)
    began = time.monotonic()
    for nodes in (None, {"b": "second"}):
        with pytest.raises(ValueError), cluster.watching(nodes):
            raise ValueError
    assert time.monotonic() - began < 5.0 and capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["raylet", "VLLM::EngineCore"])
def test_a_process_of_rays_or_vllms_that_dies_ends_the_start_with_one_line(tmp_path, capsys, monkeypatch, name) -> None:
    monkeypatch.setattr(cluster, "kills_for_memory", count().__next__)
    shutil.copy("/bin/sleep", tmp_path / name)
    ended = threading.Event()
    monkeypatch.setattr(cluster, "EVERY", 0.1)
    monkeypatch.setattr(os, "_exit", lambda status: ended.set())
    with subprocess.Popen([tmp_path / name, "60"]) as process, cluster.watching(grace=0.1):
        assert not ended.wait(0.5)
        process.kill()
        assert ended.wait(20)
    said = capsys.readouterr().out
    worker = f"worker VLLM (process {process.pid}) was killed by the kernel because memory ran out"
    assert said.startswith(f"RAY {worker if '::' in name else f'its {name} has died'}") and said.count("\n") == 1


RAY = """
import os, sys
from types import SimpleNamespace as Some
exceptions, cloudpickle = Some(GetTimeoutError=TimeoutError), Some(register_pickle_by_value=print)
sys.modules["ray.util.scheduling_strategies"] = sys.modules[__name__]
NodeAffinitySchedulingStrategy, init = lambda id, **more: (id, more), lambda **_: print("begins")
wait, get_runtime_context = lambda *_, **__: None, lambda: Some(get_node_id=lambda: os.environ["RAY_ADDRESS"])
said = {"NodeManagerHostname": "x", "NodeManagerAddress": "", "Resources": {}}
nodes = lambda: [{**said, "NodeID": id, "Alive": id != "dead"} for id in ("good", "slow", "bad", "dead")]
remote = lambda **task: lambda _: Some(options=lambda scheduling_strategy: Some(remote=lambda *asked: (
    scheduling_strategy, task, asked)))
def get(call, timeout):
    if call[0][0] != "good":
        raise TimeoutError if call[0][0] == "slow" else ValueError("one line\\nand another")
    return call
"""


def test_every_living_node_is_asked_by_itself_and_what_it_says_or_why_not_comes_back(tmp_path, monkeypatch) -> None:
    (ray := tmp_path / "ray.py").write_text(RAY)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parents[3]}")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    question = "auto", "recipe.machine.cluster:look", {"x": 1}
    answer = cluster.ask(*question, {"A": "1"})
    task = {"num_cpus": 0, "max_retries": 0, "runtime_env": {"env_vars": {"A": "1"}}}
    said = [["good", {"soft": False}], task, [{"x": 1}, "good", ["good", "slow", "bad"]]]
    found = [("good", said, None), ("slow", None, "no answer within 60 s"), ("bad", None, "ValueError: and another")]
    assert answer.here == "auto" and [(node.id, node.answer, node.fault) for node in answer.nodes] == found
    for said, word in (
        ("a line\\nand another", ": and another$"),
        ("authentication error", "RAY_AUTH"),
        ("", "nothing"),
    ):
        ray.write_text(f"raise SystemExit('{said}')")
        with pytest.raises(cluster.ClusterError, match=word):
            cluster.ask(*question)
    monkeypatch.setattr(cluster, "PATIENCE", -60.0)
    with pytest.raises(cluster.ClusterError, match="within 0 s"):
        cluster.ask(*question)


def test_an_actor_that_died_is_named_by_why_and_one_that_was_ended_or_is_not_ours_is_not(monkeypatch) -> None:
    import ray
    from ray._private.state import state
    from ray.core.generated.common_pb2 import ActorDeathCause

    monkeypatch.setattr(ray, "nodes", lambda: [{"NodeID": id, "Alive": id == "a"} for id in "abc"])
    for node, why, said in (
        ("b", {}, LOST),
        ("c", {}, None),
        ("a", {"oom_context": {"error_message": "it was 15.2GB used / 16GB"}}, "killed by Ray (15.2GB used / 16GB)"),
        ("a", {"oom_context": {}}, "worker Worker (process 7) has died"),
        ("a", {"actor_died_error_context": {"error_message": "SYSTEM_ERROR"}}, "worker Worker (process 7) has died"),
        ("a", {"actor_died_error_context": {"error_message": "ray.kill"}}, None),
    ):
        actor = {
            "Address": {"NodeID": node},
            "DeathCause": ActorDeathCause(**why),
            "ActorClassName": "a.Worker",
            "Pid": 7,
        }
        monkeypatch.setattr(state, "actor_table", lambda *_, actor=actor, **__: {"id": actor})
        line = cluster.Losses({"a": "first (10.0.0.1)", "b": "second (10.0.0.2)"})()
        assert said in line if said else line is None, (why, line)


PLATFORM = {"VERL_PLATFORM": "cpu"}
STARTER = "from recipe.machine import prefork; print(prefork.start(), flush=True); input()"
LOADED = ["torch", "vllm.v1.worker.cpu_worker"]
WORKER = """
import json, multiprocessing, os, sys
def spawned(pipe):
    import setproctitle
    setproctitle.setproctitle("a::title")
    pipe.send(["torch" in sys.modules, open("/proc/self/comm").read()])
if __name__ == "__main__":
    loaded = [name for name in ("torch", "vllm.v1.worker.cpu_worker", "ray") if name in sys.modules]
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    engine = context.Process(target=spawned, args=(theirs,))
    engine.start()
    print(json.dumps({"name": __name__, "argv": sys.argv, "folder": [os.getcwd(), sys.path[0]], "loaded": loaded,
                      "mine": os.environ.get("MINE"), "typed": sys.stdin.read(), "spawned": ours.recv()}))
    engine.join()
"""


def test_a_job_that_asks_for_more_than_variables_is_set_up_by_ray_itself() -> None:
    more = [{"command_prefix": ["nice"]}, {"override_worker_entrypoint": "mine"}, {"py_executable": "/another/python"}]
    for context, left in (({}, ["a"]), *((context, None) for context in more)):
        given = ["setup_worker.py", "a", f"--serialized-runtime-env-context={json.dumps(context)}"]
        assert prefork.set_up(given) == (left or given), context


@pytest.mark.skipif(sys.platform != "linux", reason="the server's end is tied to its parent's by Linux")
def test_a_forked_worker_is_what_python_would_have_started(tmp_path):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    starter = subprocess.Popen([sys.executable, "-c", STARTER], text=True, env=os.environ | PLATFORM, **pipes)
    command = shlex.split(starter.stdout.readline())
    (server,) = psutil.Process(starter.pid).children()
    try:
        script = tmp_path / "default_worker.py"
        script.write_text(WORKER)
        line, mine = [str(script), "--token", "a b"], {**os.environ, **PLATFORM, "MINE": "yes"}
        given = {"cwd": tmp_path, "env": mine, "input": "typed", "capture_output": True, "text": True}
        stub = subprocess.run([*command, *line], timeout=300, **given)
        expected = {"name": "__main__", "argv": line, "folder": [str(tmp_path)] * 2, "mine": "yes", "typed": "typed"}
        assert json.loads(stub.stdout) == {**expected, "loaded": LOADED, "spawned": [True, "a::title\n"]}
        of_job = json.dumps({"env_vars": {"MINE": "the job's"}, "py_executable": sys.executable})
        set_up = ["setup_worker.py", *line, "--language=PYTHON", f"--serialized-runtime-env-context={of_job}"]
        stub = subprocess.run([*command, *set_up], timeout=60, **given)
        found = json.loads(stub.stdout)
        assert (found["argv"], found["mine"], found["loaded"]) == (line, "the job's", LOADED)
    finally:
        starter.send_signal(signal.SIGKILL)
        starter.wait()
    server.wait(timeout=10)
    alone = subprocess.run([*command, str(script)], capture_output=True, text=True, timeout=60)
    assert json.loads(alone.stdout)["loaded"] == [] and not json.loads(alone.stdout)["spawned"][0]
