"""On one machine nothing listens beyond loopback: what a run starts with, and torch's rendezvous."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from torch.distributed import TCPStore

from recipe import sft
from recipe.machine import loopback

RANK = """
import datetime, os, sys, psutil, torch.distributed as dist
import recipe.machine.loopback.plugin
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60), init_method=os.environ["DIST_INIT_METHOD"])
import torch
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
group = dist.new_group([0, 1])
gathered = [None, None]
dist.all_gather_object(gathered, os.getpid(), group=group)
heard = sorted({c.laddr.ip for c in psutil.Process().net_connections("inet") if c.status == "LISTEN"})
print(total.item(), len(set(gathered)), heard)
dist.destroy_process_group()
"""


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(loopback, "NOTED", tmp_path / "ray_current_cluster")


def test_one_machine_starts_closed_and_several_or_a_cluster_of_the_users_as_they_are(monkeypatch) -> None:
    assert loopback.environment(nodes=1) == loopback.ENVIRONMENT and loopback.notes(nodes=1) == []
    assert loopback.cluster(nodes=2) is None and "2 machines" in loopback.notes(nodes=2)[0]
    loopback.NOTED.write_text("10.0.0.1:6379\n")
    assert (loopback.cluster(nodes=1), loopback.cluster(nodes=2)) == (None, "10.0.0.1:6379")
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.2:6379")
    assert loopback.cluster(nodes=1) == loopback.cluster(nodes=2) == "10.0.0.2:6379"
    assert loopback.environment(nodes=1) == {} and "10.0.0.2:6379" in loopback.notes(nodes=1)[0]
    monkeypatch.setenv("RAY_ADDRESS", "local")  # Ray starts its own all the same
    assert loopback.cluster(nodes=2) is None and loopback.environment(nodes=1) == loopback.ENVIRONMENT


def answers(port: int, **changes: str) -> list[tuple[str, str]]:
    """What two ranks print and what they complain of."""
    env = {**os.environ, **loopback.ENVIRONMENT, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    env |= {"WORLD_SIZE": "2", "PYTHONPATH": str(Path(__file__).parents[3]), **changes}
    command = [sys.executable, "-c", RANK]
    ranks = [subprocess.Popen(command, env=env | {"RANK": rank}, stdout=-1, stderr=-1, text=True) for rank in "01"]
    return [rank.communicate(timeout=120) for rank in ranks]


def test_ranks_listen_on_loopback_alone_also_those_of_a_torchrun_that_listens_elsewhere() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    for said, fault in answers(port):
        assert said.strip() == "3.0 2 ['127.0.0.1']", fault
    store = TCPStore(socket.gethostname(), 0, None, is_master=True, wait_for_workers=False)
    changes = {"MASTER_ADDR": socket.gethostname(), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    for said, fault in answers(store.port, **changes):
        assert said.strip() in ("3.0 2 ['127.0.0.1']", "3.0 2 []"), fault


def test_a_warm_start_meets_on_loopback_where_it_is_on_one_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    sixteen = {"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}
    cases: list[tuple[dict[str, str], int, str]] = [
        ({}, 1, "127.0.0.1"),
        ({"MASTER_ADDR": "node7", **sixteen, "WORLD_SIZE": "8"}, 1, "127.0.0.1"),
        ({"MASTER_ADDR": "node7", **sixteen}, 2, "node7"),
        ({"MASTER_ADDR": "node7", "TORCHELASTIC_USE_AGENT_STORE": "True"}, 1, "node7"),
        ({"MASTER_ADDR": "node7", "DIST_INIT_METHOD": "env://"}, 1, "node7"),
    ]
    for given, count, address in cases:
        environment = {"DIST_INIT_METHOD": "loopback://", "MASTER_PORT": "29556", **given}
        monkeypatch.setattr(os, "environ", environment)
        assert sft.machines() == count
        sft.process_group()
        assert environment["MASTER_ADDR"] == address, given
    del environment["MASTER_PORT"]
    sft.process_group()
    assert int(environment["MASTER_PORT"]) >= 1024, "one that is free"
    script = (Path(__file__).parents[3] / "run_sft.sh").read_text()  # on GPUs it opens no store of torchrun's
    assert "store_type=file" in script and "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1" in script
    assert "--standalone" not in script
