"""Kills a run six times with SIGKILL, at six places, then takes workers and disk away from another; both must finish.

The tests of a run belong together and go in this order: each starts the same command, waits for its place and does
harm. The last one lets the command finish and looks at what came of it. About a minute each, on two cores.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from support.short_training import ROOT, SHORT, environment, prepared

from recipe.curriculum.runner import FILE, Curriculum
from recipe.machine import processes
from recipe.machine.processes import Launch
from recipe.report.episodes import read_records
from recipe.stage import end, state
from recipe.stage.metrics_log import read_steps

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and /dev/shm")]


def files() -> set[str]:
    """Shared memory, and what Ray, verl and this recipe leave in /tmp."""
    names = ("bfcl-*", "prefork-*", "rl-colocate*", "ray/session_*")
    return {*map(str, Path("/dev/shm").iterdir()), *(str(path) for name in names for path in Path("/tmp").glob(name))}


@dataclass
class Run:
    """A run, and what was on this machine before it."""

    folder: Path
    before: set[str]
    steps: dict[str, int]
    children: list[subprocess.Popen] = field(default_factory=list)
    killed_at: set[int] = field(default_factory=set)
    """Steps during which it may have been killed."""

    @property
    def stage(self) -> Path:
        return self.folder / "run" / "stage1_format"

    @property
    def saved(self) -> int:
        return state.latest(self.stage / "checkpoints")

    @property
    def validated(self) -> bool:
        return any(name.startswith("val") for name in read_steps(self.stage).get(self.saved, ()))

    def checkpoint(self, step: int) -> Path:
        return self.stage / "checkpoints" / f"global_step_{step}"

    def launch(self) -> Launch | None:
        return Launch.read_or_none(self.folder / "run" / "launch.json")

    def processes(self) -> list[psutil.Process]:
        launch = self.launch()
        return [] if launch is None else processes.living(launch, self.folder / "run")

    def titled(self, words: str) -> list[psutil.Process]:
        """The processes of the launch that call themselves so: Ray puts the method that runs into it."""
        found = []
        for process in self.processes():
            with suppress(psutil.Error):  # ended since
                found += [process] if words in " ".join(process.cmdline()) else []
        return found

    def start(self) -> subprocess.Popen:
        names = {name.split("_")[0]: steps for name, steps in self.steps.items()}
        command = [
            *(sys.executable, "-m", "recipe.curriculum", f"--stages={','.join(names)}"),
            *(f"paths.run={self.folder}/run", f"paths.data={self.folder}/data"),
            f"actor_rollout_ref.model.path={self.folder / 'model'}",
            *("stage.warm_start=null", "trainer.val_before_train=false"),
            *(f"{name}:trainer.total_training_steps={steps}" for name, steps in names.items()),
            *SHORT,
            "trainer.test_freq=1000",  # at the last step, after its checkpoint
        ]
        piped = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        self.children.append(subprocess.Popen(command, cwd=ROOT, env=environment(HARDWARE="tiny"), **piped))
        return self.children[-1]

    def close(self) -> None:
        """End what a failed test has left running."""
        for child in self.children:
            child.kill()
        if (launch := self.launch()) is not None:
            processes.clear(launch, self.folder / "run")

    def left(self) -> set[str]:
        """What it has left on the machine: files, and living processes that its folder was given to."""
        found = files() - self.before
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                given = " ".join([*process.cmdline(), *process.environ().values()])
                ours = str(self.folder) in given and process.pid != os.getpid()
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.add(f"process {process.pid} {given[:60]}")
        return found

    def start_until(self, place: Callable[["Run"], object]) -> subprocess.Popen:
        """Returns when the run is at this place.

        What is left of a launch before, killed a moment ago, may still be at work and does not count.
        """
        before, child, began = self.launch(), self.start(), time.time()
        while (before is not None and self.launch() == before) or not place(self):
            assert child.poll() is None, f"ended before it was there:\n{child.communicate()[0]}"
            assert time.time() - began < 300, "not there within 300 s"
            time.sleep(0.002)
        return child

    def kill(self, place: Callable[["Run"], object], whole_session: bool) -> None:
        """Kills the curriculum at this place, alone or with every process of the stage."""
        child = self.start_until(place)
        victims = self.processes() if whole_session else []
        os.kill(child.pid, signal.SIGKILL)
        for process in victims:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        child.communicate()

    def finishes(self, unlogged: Collection[int] = ()) -> None:
        """Start once more; all is written, nothing is left on the machine; verl may not have logged those steps."""
        child = self.start()
        said = child.communicate(timeout=400)[0]
        assert child.returncode == 0, said
        assert self.left() == set()
        entries = {entry.folder: entry for entry in Curriculum.read(self.folder / "run" / FILE).stages}
        for name, steps in self.steps.items():
            stage = self.folder / "run" / name
            assert (entries[name].status, entries[name].global_step) == ("done", steps)
            assert {*read_steps(stage), *unlogged} >= {*range(1, steps + 1)}
            assert (done := end.read_done(stage)) and done.global_step == steps
            assert "val/acc" in read_steps(stage)[steps]
            for step in range(1, steps + 1):
                assert len(read_records(stage / "rollouts" / "train" / f"{step:06d}.jsonl")) == 2 * 4


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    run = Run(prepared(tmp_path_factory.mktemp("kill")), files(), {"stage1_format": 8, "stage2_base": 2})
    yield run
    run.close()


PLACES: dict[str, tuple[Callable[[Run], object], bool]] = {
    # where the run is, and whether every process of the stage is killed at once, as a machine does that goes down
    "starting up": (lambda run: run.titled("raylet"), False),
    "generating": (lambda run: 0 < len(read_records(run.stage / "rollouts/train/000002.jsonl")) < 8, True),
    "updating": (lambda run: run.saved >= 2 and run.titled("update_actor"), False),
    "saving, not counted": (lambda run: run.saved >= 2 and (run.checkpoint(run.saved + 1) / "actor").is_dir(), True),
    "saved and not validated": (lambda run: run.saved == run.steps["stage1_format"] and not run.validated, True),
    "between stages": (lambda run: state.look(run.stage).done, False),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_run_that_is_killed(run: Run, place: str):
    run.kill(*PLACES[place])
    run.killed_at |= {run.saved, run.saved + 1}  # what it has left may have made one more


def test_a_killed_run_finishes_with_the_same_number_of_steps_and_leaves_nothing_behind(run: Run):
    run.finishes(unlogged=run.killed_at)  # after the checkpoint and before its metrics


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A run on a disk of its own, of 150 MB."""
    folder = tmp_path_factory.mktemp("harm")
    mount = ["mount", "-t", "tmpfs", "-o", "size=150m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("may not mount a small disk")
    try:
        run = Run(prepared(folder), files(), {"stage1_format": 5})
        yield run
        run.close()
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def generating_the_next(run: Run) -> bool:
    """An episode of a step that is not the first has ended in this launch."""
    path, launch = run.stage / "rollouts" / "train" / f"{run.saved + 1:06d}.jsonl", run.launch()
    return run.saved >= 1 and path.exists() and launch is not None and launch.token in path.read_text()


@pytest.mark.parametrize("harm", ["ray::AgentLoopWorker", "ray::vLLMHttpServer", "ray::WorkerDict", "the disk is full"])
def test_a_lost_worker_or_a_full_disk_ends_the_stage_with_its_cause_and_keeps_the_checkpoint(small: Run, harm: str):
    child, filler = small.start_until(generating_the_next), small.folder / "filler"
    saved, words = small.saved, [harm]
    if harm.startswith("ray::"):
        words = ["RAY worker", "Most likely worker", "the same command goes on from there"]
        killed = small.titled(harm)
        assert killed
        for process in killed:
            process.kill()
    else:
        with pytest.raises(OSError, match="No space"), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
    said = child.communicate(timeout=120)[0]
    assert child.returncode == 1 and all(word in said for word in words), said
    assert small.saved >= saved and small.left() == set()
    filler.unlink(missing_ok=True)


def test_a_run_that_lost_workers_and_disk_finishes(small: Run):
    small.finishes()
