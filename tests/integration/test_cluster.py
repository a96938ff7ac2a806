"""Trains on two nodes: two raylets on this machine, the second with a folder of its own where the first has another.

    pytest -m slow -s tests/integration/test_cluster.py

Started by `run_cluster.sh`, as on two machines. The tests belong together and go in this order: what is refused, a
training whose second node is killed in the middle, the same command again on a cluster that is whole. About eight
minutes on two cores.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from support.agreement import engine_agrees

from data_prep.__main__ import main as prepare_data
from interaction.episode_file import parts_of, path_of, steps_in
from recipe.cluster import TOKEN
from recipe.cpu.tiny_policy import make_tiny_policy
from recipe.report.episodes import read_records
from recipe.stage import end, state
from recipe.stage.metrics_log import read_steps

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux" or shutil.which("unshare") is None, reason="needs namespaces of mounts"),
]

ROOT = Path(__file__).parents[2]
STEPS, ROWS, ROLLOUTS = 4, 2, 4
AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
"""Every raylet has these from its start."""
RAY = ["--object-store-memory=200000000", "--num-cpus=8", "--num-gpus=1"]


@dataclass
class Cluster:
    """Two nodes, and what was on this machine before them."""

    folder: Path
    port: int
    before: set[str]
    nodes: dict[str, subprocess.Popen] = field(default_factory=dict)

    @property
    def private(self) -> Path:
        """A folder that is another one on the second node."""
        return self.folder / "private"

    @property
    def stage(self) -> Path:
        return self.folder / "outputs" / "run" / "stage1_format"

    @property
    def environment(self) -> dict[str, str]:
        """What somebody has who sources the file that the head has written."""
        lines = (self.folder / "cluster" / "environment").read_text().splitlines()
        return dict(line.removeprefix("export ").split("=", 1) for line in lines)

    def add(self, name: str, address: str, *options: str) -> None:
        """Start a node as somebody does on it, and wait until it is there."""
        command = ["bash", "run_cluster.sh", f"--node-ip-address={address}", *RAY, *options]
        if name == "second":
            script = f"mount -t tmpfs tmpfs {self.private} && exec {' '.join(command)}"
            command = ["unshare", "--mount", "bash", "-c", script]
        given = {**os.environ, "CLUSTER": f"{self.folder}/cluster", "HARDWARE": "tiny", "PYTHONPATH": str(ROOT)}
        for variable in ("RAY_ADDRESS", TOKEN, "MODEL"):
            given.pop(variable, None)
        log = self.folder / f"{name}.log"
        with log.open("w") as output:
            child = subprocess.Popen(command, cwd=ROOT, env=given, stdout=output, stderr=output, start_new_session=True)
        self.nodes[name] = child
        end = time.time() + 120
        while "Ray runtime started" not in log.read_text():
            assert child.poll() is None and time.time() < end, log.read_text()
            time.sleep(0.2)

    def processes(self, name: str) -> list[psutil.Process]:
        """Those of a node, Ray's workers among them."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if os.getsid(process.pid) == self.nodes[name].pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def raylet(self, name: str) -> psutil.Process:
        return next(process for process in self.processes(name) if process.name() == "raylet")

    def workers(self) -> list[str]:
        """Titles of Ray's workers on both nodes that do something."""
        found = []
        for process in (process for name in self.nodes for process in self.processes(name)):
            with suppress(psutil.Error):
                title = " ".join(process.cmdline()).strip()
                if title.startswith("ray::") and "IDLE" not in title and title not in AGENTS:
                    found.append(title)
        return found

    def start(self, *given: str, **environment: str) -> subprocess.Popen:
        """The curriculum's first stage; with `preflight_only=true` the stage's own command, which alone knows that."""
        curriculum = ("recipe.curriculum", "--stages=stage1")
        command = [
            *(sys.executable, "-m"),
            *(("recipe.train", "--config-name=stage1") if "preflight_only=true" in given else curriculum),
            "trainer.nnodes=2",
            f"paths.data={self.folder}/data",
            *(f"trainer.total_training_steps={STEPS}", "trainer.save_freq=1", "trainer.test_freq=-1"),
            *("data.max_response_length=300", f"actor_rollout_ref.rollout.n={ROLLOUTS}"),
            "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2",
            *(f"actor_rollout_ref.{part}.log_prob_micro_batch_size_per_gpu=2" for part in ("rollout", "ref")),
            "actor_rollout_ref.rollout.agent.num_workers=2",
            *("launcher.needs.disk_gb=0", "launcher.needs.memory_gb=1"),
            *given,
        ]
        rows = {"TRAIN_BATCH_SIZE": str(ROWS), "MINI_BATCH_SIZE": str(ROWS)}
        named = {"RUN": "run", "MODEL": str(self.folder / "model"), "HARDWARE": "tiny", **rows}
        variables = {**os.environ, **self.environment, **named, "PYTHONPATH": str(ROOT), **environment}
        return subprocess.Popen(
            command, cwd=self.folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def left(self) -> list[str]:
        """What a training has left on the two nodes, which share memory and temporary files here."""
        return sorted([*self.workers(), *(_files() - self.before)])

    def close(self) -> None:
        for name in self.nodes:
            for process in self.processes(name):
                with suppress(psutil.Error):
                    process.kill()
            self.nodes[name].wait()


def _files() -> set[str]:
    strewn = {str(path) for name in ("bfcl-", "prefork-", "rl-colocate") for path in Path("/tmp").glob(f"{name}*")}
    return strewn | {
        str(path) for path in Path("/dev/shm").iterdir() if path.name.startswith(("psm_", "verl_weights_"))
    }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("may not make a namespace of mounts")
    folder = tmp_path_factory.mktemp("cluster")
    assert prepare_data(["--out", str(folder / "data"), "--tiny"]) == 0
    make_tiny_policy(folder / "model")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    cluster = Cluster(folder, port, _files())
    cluster.private.mkdir()
    try:
        cluster.add("first", "127.0.0.1", f"--port={port}", "--include-dashboard=false", f"--temp-dir={folder}/ray")
        cluster.add("second", "127.0.0.2")
        yield cluster
    finally:
        cluster.close()


def show(said: str) -> None:
    print("".join(f"  | {line}\n" for line in said.splitlines()), end="")


REFUSED: dict[str, tuple[list[str], dict[str, str], list[str]]] = {
    "a folder that is not shared": (["paths.run={private}/run"], {}, ["does not see what", "paths.run"]),
    "more nodes than there are": (["trainer.nnodes=4"], {}, ["4 nodes with 1 GPUs", "are asked for"]),
    "data on one node": (["data.val_files={private}/rows.parquet"], {}, ["paths {private}/rows.parquet"]),
    "a key that the nodes lack": ([], {"WANDB_API_KEY": "secret-of-mine"}, ["secrets WANDB_API_KEY"]),
    "another token": (
        [],
        {"RAY_AUTH_TOKEN_PATH": "", "RAY_AUTH_TOKEN": "0" * 64},
        ["wants a token", "RAY_AUTH_TOKEN_PATH"],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_cluster_lacks_is_refused_before_the_run_s_folder_is_touched(cluster: Cluster, name: str) -> None:
    overrides, environment, texts = REFUSED[name]
    shutil.copy(cluster.folder / "data" / "tiny_val.parquet", cluster.private / "rows.parquet")
    places = {"private": cluster.private}
    given = [text.format(**places) for text in overrides]
    child = cluster.start(*given, "preflight_only=true", **environment)
    said = child.communicate(timeout=200)[0]
    show(said)
    assert child.returncode == 1 and "secret-of-mine" not in said
    for text in texts:
        assert text.format(**places) in " ".join(said.split())
    assert not cluster.stage.exists()
    assert not [path for path in cluster.folder.iterdir() if path.name.startswith(".nodes")]


def generating_the_next(cluster: Cluster) -> bool:
    """A checkpoint is there, and an episode of the step after it."""
    saved = state.latest(cluster.stage / "checkpoints")
    return saved >= 2 and bool(parts_of(path_of(cluster.stage / "rollouts", "train", saved + 1)))


def wait_for(child: subprocess.Popen, cluster: Cluster, place: Callable[[Cluster], bool]) -> None:
    began = time.time()
    while not place(cluster):
        assert child.poll() is None, f"ended before it was {place.__name__}:\n{child.communicate()[0]}"
        assert time.time() - began < 400, f"not {place.__name__} within 400 s"
        time.sleep(0.05)


def test_a_node_that_is_killed_ends_the_run_with_its_name(cluster: Cluster) -> None:
    child = cluster.start()
    wait_for(child, cluster, generating_the_next)
    saved, began = state.latest(cluster.stage / "checkpoints"), time.time()
    cluster.raylet("second").send_signal(signal.SIGKILL)
    said = child.communicate(timeout=200)[0]
    print(f"\nthe second node killed with step {saved} saved: the command ended after {time.time() - began:.0f} s")
    show(said)
    assert child.returncode == 1
    assert "the cluster has lost the node" in said and "127.0.0.2" in said
    assert "the same command goes on from there" in said
    assert state.latest(cluster.stage / "checkpoints") >= saved
    assert cluster.left() == []
    assert cluster.raylet("first").is_running()


def test_the_same_command_goes_on_when_the_node_is_back_and_leaves_the_cluster_as_it_was(cluster: Cluster) -> None:
    cluster.nodes["second"].wait(timeout=60)
    cluster.add("second", "127.0.0.2")
    child = cluster.start()
    said = child.communicate(timeout=470)[0]
    show(said)
    assert child.returncode == 0
    assert "from the checkpoint of step" in said
    assert set(read_steps(cluster.stage)) == set(range(1, STEPS + 1))
    for numbers in read_steps(cluster.stage).values():
        assert engine_agrees(numbers)
    for path in steps_in(cluster.stage / "rollouts" / "train"):
        assert len(parts_of(path)) > 1, "one node alone has written episodes"
        assert len(read_records(path)) == ROWS * ROLLOUTS
    assert (done := end.read_done(cluster.stage)) and done.global_step == STEPS
    sizes = {path.name for path in cluster.stage.glob(f"checkpoints/global_step_{STEPS}/actor/model_world_size_2_*")}
    assert sizes == {f"model_world_size_2_rank_{rank}.pt" for rank in range(2)}
    assert cluster.left() == []
    assert cluster.raylet("first").is_running() and cluster.raylet("second").is_running()
