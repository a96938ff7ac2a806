"""Ray's workers on other nodes begin as the start did, and what dies is named whatever the training says of it."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from recipe import cluster
from recipe.cluster import watching

ROOT = Path(__file__).parents[2]
TRAVEL = ["VERL_PLATFORM", "BFCL_LAUNCH", "VLLM_CPU_KVCACHE_SPACE", "HF_HOME", "PYTHONPATH", "TENSORBOARD_DIR"]
STAY = ["PATH", "HOME", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"]
STAY += ["VLLM_HOST_IP", "RAY_ADDRESS", "RAY_AUTH_TOKEN", "NCCL_IB_HCA", "SLURM_NODEID"]
SECRET = ["HF_TOKEN", "WANDB_API_KEY", "VLLM_API_KEY", "MLFLOW_TRACKING_PASSWORD"]


def test_settings_travel_secrets_are_named_and_what_a_node_has_of_its_own_stays() -> None:
    environment = {name: "x" for name in (*TRAVEL, *STAY, *SECRET, "TOKENIZERS_PARALLELISM")}
    assert cluster.travelling(environment).keys() == {*TRAVEL, "TOKENIZERS_PARALLELISM"}
    assert cluster.secrets(environment | {"HF_HUB_TOKEN": ""}) == sorted(SECRET)
    asked = {"py_executable": "python", "env_vars": {"JUDGE": 1, "HF_HOME": "/cache", cluster.FOLDER: "/tmp"}}
    sent = cluster.runtime_env({"HF_HOME": "/home", "PATH": "/bin"}, "20261122-090000", asked)
    assert sent["py_executable"] == "python" and sent["worker_process_setup_hook"] == "recipe.cluster.begin"
    own = {cluster.FOLDER: os.getcwd(), cluster.LAUNCHED: "20261122-090000"}
    assert sent["env_vars"] == {"HF_HOME": "/cache", "JUDGE": "1", **own}


def test_a_worker_begins_in_the_folder_of_the_start_with_its_folder_of_temporary_files(tmp_path: Path) -> None:
    temp = tmp_path / "bfcl-1"
    code = "import json, os, tempfile; from recipe import cluster; cluster.begin()\n"
    code += "print(json.dumps([os.getcwd(), tempfile.gettempdir()]))"
    given = {**os.environ, "PYTHONPATH": str(ROOT), cluster.FOLDER: str(tmp_path)}
    given |= {"TMPDIR": str(temp), cluster.TOKEN: "token"}
    done = subprocess.run([sys.executable, "-c", code], env=given, cwd="/", capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and json.loads(done.stdout) == [str(tmp_path), str(temp)], done.stderr
    assert (temp / cluster.TOKEN_FILE).read_text() == "token" and temp.stat().st_mode & 0o077 == 0


class Losses:
    """Says nothing before the look number `dies`, and then that something was lost."""

    def __init__(self, dies: int) -> None:
        self.looks, self.dies = 0, dies

    def __call__(self, *_: object) -> Any:
        return lambda: self.look()

    def look(self) -> str | None:
        self.looks += 1
        return "CLUSTER node second (10.0.0.2) was lost" if self.looks > self.dies else None


def test_a_training_that_ends_well_hears_nothing_and_one_that_waits_is_ended(monkeypatch, capsys) -> None:
    monkeypatch.setattr(cluster, "Losses", losses := Losses(10**9))
    with watching(end=pytest.fail, every=0.01):
        while losses.looks < 5:
            time.sleep(0.01)
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(cluster, "Losses", Losses(1))
    ended = threading.Event()
    with watching(end=ended.set, every=0.02, grace=0.1):
        assert ended.wait(10)
    assert capsys.readouterr().out == "CLUSTER node second (10.0.0.2) was lost\n"


def test_a_training_that_fails_waits_until_ray_has_noticed_the_lost_node(monkeypatch, capsys) -> None:
    monkeypatch.setattr(cluster, "Losses", Losses(3))
    with pytest.raises(RuntimeError, match="an actor died"), watching({"b": "second"}, every=0.02, noticed=5.0):
        raise RuntimeError("an actor died")
    assert capsys.readouterr().out == "CLUSTER node second (10.0.0.2) was lost\n"
    monkeypatch.setattr(cluster, "Losses", Losses(10**9))
    began = time.monotonic()
    for nodes in (None, {"b": "second"}):
        with pytest.raises(ValueError), watching(nodes, every=0.02, noticed=0.2):
            raise ValueError
    assert time.monotonic() - began < 2.0 and capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["raylet", "VLLM::EngineCore"])
def test_a_process_of_rays_or_vllms_that_dies_ends_the_start_with_one_line(tmp_path: Path, capsys, name: str) -> None:
    shutil.copy("/bin/sleep", tmp_path / name)
    ended = threading.Event()
    with subprocess.Popen([tmp_path / name, "60"]) as process, watching(grace=0.1, end=ended.set, every=0.1):
        assert not ended.wait(0.5)
        process.kill()
        assert ended.wait(20)
    said = capsys.readouterr().out
    worker = f"worker VLLM (process {process.pid}) has died"
    assert said.startswith(f"RAY {worker if '::' in name else f'its {name} has died'}") and said.count("\n") == 1


def test_the_cause_of_a_death_is_the_memory_where_ray_or_the_kernel_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    losses, ended = cluster.Losses({}), "exit type: SYSTEM_ERROR"
    ran_out = losses._worker("WorkerDict (process 7)", "Memory was 9.5GB used / 10.0GB limit")
    assert "WorkerDict (process 7) was killed by Ray (9.5GB used / 10.0GB) because memory ran out" in ran_out
    assert losses._worker("WorkerDict", ended) == "RAY worker WorkerDict has died (docs/resume.md)"
    monkeypatch.setattr(cluster, "kills_for_memory", lambda: losses.kills + 1)
    assert "was killed by the kernel because memory ran out" in losses._worker("WorkerDict", ended)
