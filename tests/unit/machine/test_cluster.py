"""Ray's workers on other nodes begin as the start did, and what dies is named whatever the training says of it."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from itertools import chain, repeat
from pathlib import Path
from unittest.mock import Mock

import pytest

from recipe.machine import cluster
from recipe.machine.cluster import watching

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
    temp = tmp_path / "bfcl-1"
    code = "import json, os, tempfile; from recipe.machine import cluster; cluster.begin()\n"
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


def test_a_training_that_ends_well_hears_nothing_and_one_that_waits_is_ended(monkeypatch, capsys) -> None:
    look = looks(monkeypatch, 10**9)
    with watching(end=pytest.fail, every=0.01):
        while look.call_count < 5:
            time.sleep(0.01)
    assert capsys.readouterr().out == ""
    looks(monkeypatch, 1)
    ended = threading.Event()
    with watching(end=ended.set, every=0.02, grace=0.1):
        assert ended.wait(10)
    assert capsys.readouterr().out == f"{LOST}\n"


def test_a_training_that_fails_waits_until_ray_has_noticed_the_lost_node(monkeypatch, capsys) -> None:
    looks(monkeypatch, 3)
    with pytest.raises(RuntimeError, match="an actor died"), watching({"b": "second"}, every=0.02, noticed=5.0):
        raise RuntimeError("an actor died")
    assert capsys.readouterr().out == f"{LOST}\n"
    looks(monkeypatch, 10**9)
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
