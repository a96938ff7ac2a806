"""A node that is lost is named, whatever the training says of it, and a training that waits for it is ended."""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection
from pathlib import Path

import psutil
import pytest

from recipe.cluster import watch
from recipe.cluster.watch import NodeWatch, State, watching_ray, watching_workers
from recipe.stage.console import cause

NODES = {"a": "first (10.0.0.1)", "b": "second (10.0.0.2)"}


class Cluster:
    """Nodes that live, from the look `dies` on without the second; the training has places on `training`."""

    def __init__(
        self, dies: int = 10**9, fault: Exception | None = None, training: Collection[str] = ("a", "b")
    ) -> None:
        self.looks, self.dies, self.fault, self.training = 0, dies, fault, training
        self.ended: list[float] = []

    def __call__(self) -> State | None:
        self.looks += 1
        if self.fault:
            raise self.fault
        if self.looks == 1:
            return None  # before it has joined
        dead = self.looks > self.dies + 1
        return State(["a", "c"] if dead else ["a", "b", "c"], [] if dead else self.training)

    def watch(self) -> NodeWatch:
        return NodeWatch(NODES, self, lambda: self.ended.append(time.monotonic()))


def test_a_training_that_ends_well_hears_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster()
    with cluster.watch().watching(every=0.01):
        while cluster.looks < 5:
            time.sleep(0.01)
    seen = cluster.looks
    time.sleep(0.1)
    assert cluster.looks <= seen + 1 and not cluster.ended
    assert capsys.readouterr().out == ""


def test_a_training_that_fails_because_a_node_is_lost_says_which_once(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster(dies=3)  # Ray notices later than the training
    with pytest.raises(RuntimeError, match="an actor died"), cluster.watch().watching(every=0.02, noticed=2.0):
        raise RuntimeError("an actor died")
    assert capsys.readouterr().out == "CLUSTER node second (10.0.0.2) was lost\n"
    assert not cluster.ended


@pytest.mark.parametrize("fault", [None, ConnectionError("the head is gone")])
def test_another_failure_is_not_held_up_for_long(fault: Exception | None, capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    with pytest.raises(ValueError), Cluster(fault=fault).watch().watching(every=0.02, noticed=0.2):
        raise ValueError
    assert time.monotonic() - began < 2.0
    assert capsys.readouterr().out == ""


def test_a_training_that_waits_for_a_lost_node_is_ended(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster(dies=1)
    with cluster.watch().watching(every=0.02, grace=0.2):
        end = time.monotonic() + 5.0
        while not cluster.ended and time.monotonic() < end:
            time.sleep(0.01)
    assert len(cluster.ended) == 1
    assert "second (10.0.0.2) was lost\nCLUSTER the training did not end by itself" in capsys.readouterr().out


def test_a_node_that_nothing_trains_on_may_leave(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster(dies=1, training=["a"])
    with cluster.watch().watching(every=0.02, grace=0.05):
        while cluster.looks < 10:
            time.sleep(0.01)
    assert not cluster.ended and capsys.readouterr().out == ""
    with pytest.raises(RuntimeError), Cluster(dies=1, training=["a"]).watch().watching(every=0.02, noticed=1.0):
        raise RuntimeError("an episode's worker died")  # it may have played on that node
    assert "second (10.0.0.2) was lost" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["gcs_server", "raylet"])
def test_a_process_of_rays_own_that_dies_ends_the_start_with_one_line(
    tmp_path: Path, capsys, monkeypatch, name
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    (logs := tmp_path / "ray" / "session_latest" / "logs").mkdir(parents=True)
    (logs / "raylet.out").write_text(
        "[x E 1] (raylet) agent_manager.cc:87: The raylet exited: its agent failed.\nmore\n"
    )
    shutil.copy("/bin/sleep", tmp_path / name)
    ended = threading.Event()
    with subprocess.Popen([tmp_path / name, "60"]) as process, watching_ray(ended.set, every=0.1):
        assert not ended.wait(0.5)
        process.kill()
        assert ended.wait(20)
    said = capsys.readouterr().out
    assert said.startswith(f"RAY its {name} has died. Load ") and said.count("\n") == 1
    assert ("its agent failed" in said) == (name == "raylet")


RAYS_START = """
import time, ray
from recipe.cluster.watch import watching_ray
with watching_ray():
    ray.init(num_cpus=2, include_dashboard=False)
    ray.get(ray.remote(lambda: time.sleep(600)).remote())
"""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "after"), [("raylet", 0), ("raylet", 8), ("gcs_server", 0.5)])
def test_rays_own_start_ends_within_a_minute_of_a_death(tmp_path: Path, name: str, after: float) -> None:
    with (
        tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as temp,
        (log := tmp_path / "log").open("w") as output,
        subprocess.Popen(
            [sys.executable, "-c", RAYS_START], env={**os.environ, "RAY_TMPDIR": temp}, stdout=output, stderr=output
        ) as start,
    ):
        while not (found := [one for one in psutil.Process(start.pid).children() if one.name() == name]):
            time.sleep(0.05)
        time.sleep(after)
        found[0].kill()
        assert start.wait(60) == 1
    assert f"RAY its {name} has died. Load" in log.read_text() and "Traceback" not in log.read_text()


@pytest.mark.parametrize(
    ("text", "kills", "why"),
    [
        ("Memory was 9.5GB used / 10.0GB limit", 0, "killed by Ray because memory ran out (9.5GB used / 10.0GB). "),
        ("exit type: SYSTEM_ERROR", 1, "killed by the kernel because memory ran out. "),
        ("exit type: SYSTEM_ERROR", 0, "GB of memory were free before. "),
    ],
)
def test_a_training_that_waits_for_a_dead_worker_is_ended_with_its_cause(monkeypatch, capsys, text, kills, why) -> None:
    counts, ended = iter([0, kills]), threading.Event()
    monkeypatch.setattr(watch, "kills_for_memory", lambda: next(counts))
    monkeypatch.setattr(watch, "dead_worker", lambda _: ("WorkerDict (process 7)", text))
    with watching_workers(grace=0.1, end=ended.set, every=0.05):
        assert ended.wait(10)
    said = capsys.readouterr().out
    assert said.startswith("RAY worker WorkerDict (process 7) ") and why in said and said.count("\n") == 1


RAYS_WORKERS = """
import os, sys, time, ray
from subprocess import Popen
from recipe.cluster.watch import watching_workers

@ray.remote
class Work:
    def start(self, engine):
        return os.getpid(), Popen([engine, "600"]).pid
    def leave(self):
        ray.actor.exit_actor()

ray.init(num_cpus=4, include_dashboard=False)
with watching_workers(grace=1.0):
    ray.kill(Work.remote())
    left, work = Work.remote(), Work.remote()
    left.leave.remote()
    found = ray.get(work.start.remote(sys.argv[1]))
    time.sleep(10)
    print("killing", flush=True)
    os.kill(found[int(sys.argv[2])], 9)
    time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("number", "name"), [(0, "Work"), (1, "VLLM")])
def test_a_worker_of_rays_or_vllms_that_is_killed_is_named_and_no_other_that_ends(tmp_path: Path, number, name) -> None:
    shutil.copy("/bin/sleep", engine := tmp_path / "VLLM::EngineCore")
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as temp:
        command = [sys.executable, "-c", RAYS_WORKERS, engine, str(number)]
        environment = {**os.environ, "RAY_TMPDIR": temp}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == 1 and done.stdout.startswith("killing\n")
    assert f"\nRAY worker {name} (process " in done.stdout and done.stdout.count("RAY worker") == 1


def test_the_cause_that_a_log_shows_names_the_node(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("ray.exceptions.ActorDiedError: its node has died\nCLUSTER node second (10.0.0.2) was lost\n")
    said = cause(log) or ""
    assert "the cluster has lost the node second (10.0.0.2)" in said and "run_cluster.sh" in said
