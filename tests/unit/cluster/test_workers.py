"""Ray's workers on other nodes begin with the environment and in the folder of the start."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from recipe.cluster import workers

TRAVEL = ["VERL_PLATFORM", "BFCL_LAUNCH", "VLLM_CPU_KVCACHE_SPACE", "HF_HOME", "PYTHONPATH", "TENSORBOARD_DIR"]
STAY = ["PATH", "HOME", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"]
STAY += ["VLLM_HOST_IP", "RAY_ADDRESS", "RAY_AUTH_TOKEN", "NCCL_IB_HCA", "SLURM_NODEID"]
SECRET = ["HF_TOKEN", "WANDB_API_KEY", "VLLM_API_KEY", "MLFLOW_TRACKING_PASSWORD"]


def test_settings_travel_and_what_each_node_has_of_its_own_does_not() -> None:
    environment = {name: "x" for name in (*TRAVEL, *STAY, *SECRET, "TOKENIZERS_PARALLELISM")}
    environment["VERL_FILE_LOGGER_PATH"] = "/runs/metrics/1.jsonl"
    found = workers.travelling(environment)
    assert found.keys() == {*TRAVEL, "TOKENIZERS_PARALLELISM", "VERL_FILE_LOGGER_PATH"}


def test_secrets_are_named_and_never_sent() -> None:
    environment = {name: "x" for name in (*TRAVEL, *SECRET)} | {"HF_HUB_TOKEN": ""}
    assert workers.secrets(environment) == sorted(SECRET)
    assert not workers.travelling(environment).keys() & set(SECRET)


def test_variables_of_the_configuration_are_sent_beside_them() -> None:
    asked = {"py_executable": "python", "env_vars": {"JUDGE": 1, "HF_HOME": "/cache", workers.FOLDER: "/tmp"}}
    sent = workers.runtime_env({"HF_HOME": "/home", "PATH": "/bin"}, "20261122-090000", asked)
    assert sent["py_executable"] == "python" and sent["worker_process_setup_hook"] == "recipe.cluster.workers.begin"
    assert sent["env_vars"] == {
        **{"HF_HOME": "/cache", "JUDGE": "1"},
        **{workers.FOLDER: os.getcwd(), workers.LAUNCHED: "20261122-090000"},
    }


def begun(folder: Path, **environment: str) -> dict[str, str]:
    """What a process is that begins as a worker does."""
    code = f"import json, os, tempfile, {workers.__name__} as w; w.begin()\n"
    code += "print(json.dumps([os.getcwd(), tempfile.gettempdir(), os.getpid()]))"
    root = str(Path(__file__).parents[3])
    given = {**os.environ, "PYTHONPATH": root, workers.FOLDER: str(folder), **environment}
    done = subprocess.run([sys.executable, "-c", code], env=given, cwd="/", capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return dict(zip(("folder", "temp", "pid"), json.loads(done.stdout), strict=True))


def test_a_worker_begins_in_the_folder_of_the_start_and_writes_down_that_it_is_there(tmp_path: Path) -> None:
    temp = tmp_path / "bfcl-1"
    said = begun(tmp_path, TMPDIR=str(temp), **{workers.TOKEN: "token"})
    assert (said["folder"], said["temp"]) == (str(tmp_path), str(temp))
    assert (temp / "launch").read_text() == "token"
    assert [path.name for path in (temp / workers.PROCESSES).iterdir()] == [str(said["pid"])]
    assert temp.stat().st_mode & 0o077 == 0


def test_a_worker_without_a_launch_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(workers.TOKEN, raising=False)
    assert begun(tmp_path)["folder"] == str(tmp_path)
    assert list(tmp_path.iterdir()) == []
