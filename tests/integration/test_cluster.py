"""Trains on two nodes: two raylets on this machine, the second with a folder of its own where the first has another.

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
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from support.short_training import ROOT, engine_agrees, prepared

from interaction.episode_file import parts_of, path_of, steps_in
from recipe.machine.cluster import TOKEN
from recipe.report.episodes import read_records
from recipe.stage import end, state
from recipe.stage.metrics_log import read_steps

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux" or shutil.which("unshare") is None, reason="needs namespaces of mounts"),
]

STEPS, ROWS, ROLLOUTS = 4, 2, 4
AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
"""Every raylet has these from its start."""
RAY = ["--object-store-memory=200000000", "--num-cpus=8", "--num-gpus=1"]


@dataclass
class Cluster:
    """Two nodes, and what was on this machine before them."""

    folder: Path
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

    def start(self, *given: str, **environment: str) -> subprocess.Popen:
        """The curriculum's first stage; with `preflight_only=true` the stage's own command, which alone knows that."""
        curriculum = ("recipe.curriculum", "--stages=stage1")
        command = [
            *(sys.executable, "-m"),
            *(("recipe.train", "--config-name=stage1") if "preflight_only=true" in given else curriculum),
            *("trainer.nnodes=2", f"paths.data={self.folder}/data"),
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
        piped = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(command, cwd=self.folder, env=variables, **piped)

    def left(self) -> set[str]:
        """What a training has left on the two nodes: workers that do something, memory and temporary files."""
        found = _files() - self.before
        for process in (process for name in self.nodes for process in self.processes(name)):
            with suppress(psutil.Error):
                title = " ".join(process.cmdline()).strip()
                if title.startswith("ray::") and "IDLE" not in title and title not in AGENTS:
                    found.add(title)
        return found

    def close(self) -> None:
        for name in self.nodes:
            for process in self.processes(name):
                with suppress(psutil.Error):
                    process.kill()
            self.nodes[name].wait()


def _files() -> set[str]:
    places = {"/tmp": ("bfcl-*", "prefork-*", "rl-colocate*"), "/dev/shm": ("psm_*", "verl_weights_*")}
    return {str(path) for folder, names in places.items() for name in names for path in Path(folder).glob(name)}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("may not make a namespace of mounts")
    folder = prepared(tmp_path_factory.mktemp("cluster"))
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    cluster = Cluster(folder, _files())
    cluster.private.mkdir()
    try:
        cluster.add("first", "127.0.0.1", f"--port={port}", "--include-dashboard=false", f"--temp-dir={folder}/ray")
        cluster.add("second", "127.0.0.2")
        yield cluster
    finally:
        cluster.close()


def test_what_the_cluster_lacks_is_refused_before_the_run_s_folder_is_touched(cluster: Cluster) -> None:
    other = {"RAY_AUTH_TOKEN_PATH": "", "RAY_AUTH_TOKEN": "0" * 64}
    private = [f"paths.run={cluster.private}/run"]
    for words, given, environment in (("does not see what", private, {}), ("wants a token", [], other)):
        child = cluster.start(*given, "preflight_only=true", **environment)
        found = child.communicate(timeout=200)[0]
        assert child.returncode == 1 and words in " ".join(found.split()), found
    assert not cluster.stage.exists() and not [*cluster.folder.glob(".nodes*")]


def test_a_node_that_is_killed_ends_the_run_with_its_name(cluster: Cluster) -> None:
    child, saved, limit = cluster.start(), 0, time.time() + 400
    while saved < 2 or not parts_of(path_of(cluster.stage / "rollouts", "train", saved + 1)):
        assert child.poll() is None and time.time() < limit
        time.sleep(0.05)
        saved = state.latest(cluster.stage / "checkpoints")
    cluster.raylet("second").send_signal(signal.SIGKILL)
    said = child.communicate(timeout=200)[0]
    assert child.returncode == 1 and "127.0.0.2" in said
    assert "the cluster has lost the node" in said and "the same command goes on from there" in said
    assert state.latest(cluster.stage / "checkpoints") >= saved
    assert not cluster.left() and cluster.raylet("first").is_running()


def test_the_same_command_goes_on_when_the_node_is_back_and_leaves_the_cluster_as_it_was(cluster: Cluster) -> None:
    cluster.nodes["second"].wait(timeout=60)
    cluster.add("second", "127.0.0.2")
    child = cluster.start()
    said = child.communicate(timeout=470)[0]
    assert child.returncode == 0 and "from the checkpoint of step" in said
    steps = read_steps(cluster.stage)
    assert {*steps} == {*range(1, STEPS + 1)} and all(map(engine_agrees, steps.values()))
    for path in steps_in(cluster.stage / "rollouts" / "train"):
        assert len(parts_of(path)) > 1, "one node alone has written episodes"
        assert len(read_records(path)) == ROWS * ROLLOUTS
    assert (done := end.read_done(cluster.stage)) and done.global_step == STEPS
    sizes = {path.name for path in cluster.stage.glob(f"checkpoints/global_step_{STEPS}/actor/model_world_size_2_*")}
    assert sizes == {f"model_world_size_2_rank_{rank}.pt" for rank in range(2)}
    assert not cluster.left() and all(cluster.raylet(name).is_running() for name in cluster.nodes)
