"""Name the node that was lost, the worker that has died, or the process of Ray's own that has died on this machine.

When a machine goes down, or somebody kills its raylet, the trainer is told that an actor has died, or of a connection
that was closed, or nothing at all: processes on GPUs wait in a collective for a peer that is gone. Here a thread of the
starting process asks Ray every few seconds which nodes live, says which one does not any more, and ends the process if
the loss itself has not ended it a while later. A node that the run does not train on may leave the cluster.
"""

import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

EVERY = 3.0
"""Seconds between two looks."""

GRACE = 60.0
"""Seconds for a training to end by itself when one of its nodes is lost."""

NOTICED = 45.0
"""Seconds in which Ray notices that a node is lost: five times three seconds, and what it takes to tell."""


GROUPS = "verl_group_"
"""In the names of the places that verl asks Ray for."""


def _end() -> None:
    os._exit(1)


@dataclass(frozen=True)
class State:
    """What Ray says of its nodes, by their ids."""

    living: Collection[str]
    training: Collection[str]
    """Those that processes of the training have a place on."""


def ray_state() -> State | None:
    """What Ray says now; None before this process has joined it."""
    import ray
    from ray.util import placement_group_table

    if not ray.is_initialized():
        return None
    groups = [group for group in placement_group_table().values() if GROUPS in group["name"]]
    training = {node for group in groups for node in group["bundles_to_node_id"].values() if node}
    return State([node["NodeID"] for node in ray.nodes() if node["Alive"]], training)


class NodeWatch:
    """Watches the nodes of a run.

    Args:
        nodes: id -> name of each node of the cluster.
        state: what Ray says now; raises where the cluster does not answer.
        end: what ends this process.
    """

    def __init__(
        self,
        nodes: Mapping[str, str],
        state: Callable[[], State | None] = ray_state,
        end: Callable[[], Any] = _end,
    ) -> None:
        self.nodes, self.state, self.end = dict(nodes), state, end
        self.lost: list[str] = []
        self._training: set[str] = set()
        self._ended = threading.Event()
        self._looking = threading.Lock()

    def look(self, failed: bool = False) -> list[str]:
        """Names of the nodes that are lost; each is said when it is found.

        Args:
            failed: the training has, and any node may have been why.
        """
        with self._looking:
            try:
                state = self.state()
            except Exception:  # whatever Ray raises when its head is gone, the training hears it too
                return self.lost
            if state is None:
                return self.lost
            self._training |= set(state.training)
            for gone in [node for node in self.nodes if node not in state.living]:
                if failed or gone in self._training:
                    self.lost.append(name := self.nodes.pop(gone))
                    print(f"CLUSTER node {name} was lost", flush=True)
            return self.lost

    @contextmanager
    def watching(self, every: float = EVERY, grace: float = GRACE, noticed: float = NOTICED) -> Iterator[None]:
        """Watch while the training runs; where it fails, wait until it is known whether a node was lost."""
        thread = threading.Thread(target=self._watch, args=(every, grace), daemon=True, name="nodes")
        thread.start()
        try:
            yield
        except Exception:
            self._ended.set()
            waits = threading.Event()
            for _ in range(int(noticed / every)):
                if self.look(failed=True):
                    break
                waits.wait(every)
            raise
        finally:
            self._ended.set()

    def _watch(self, every: float, grace: float) -> None:
        while not self._ended.wait(every):
            if self.look() and not self._ended.wait(grace):
                print(f"CLUSTER the training did not end by itself within {grace:.0f} s and is ended", flush=True)
                self.end()
                return


RAY = ("gcs_server", "raylet")
"""Processes that Ray starts on one machine as children of the trainer's; without one of them it waits for minutes."""


@contextmanager
def watching_ray(end: Callable[[], Any] = _end, every: float = EVERY) -> Iterator[None]:
    """End this process with one line when one of Ray's own processes has died, or when Ray cannot start.

    Raises:
        SystemExit: the block has failed for that.
    """
    found: dict[str, psutil.Process] = {}
    over = threading.Event()

    def watch() -> None:
        while not over.wait(every):
            if name := _dead(found):
                print(_why(f"its {name} has died", f"{name}.out"), flush=True)
                return end()

    _dead(found)
    threading.Thread(target=watch, daemon=True, name="ray").start()
    try:
        yield
    except Exception as error:
        import ray

        if (name := _dead(found)) or (found and not ray.is_initialized()):
            over.set()
            sys.exit(_why(f"its {name} has died" if name else f"it did not start: {error}", f"{name or 'raylet'}.out"))
        raise
    finally:
        over.set()


def _dead(found: dict[str, psutil.Process]) -> str | None:
    """The name of a process that has died. `found` keeps those that have been seen."""
    with suppress(psutil.NoSuchProcess):  # another one that has ended meanwhile
        if len(found) < len(RAY):
            found |= {child.name(): child for child in psutil.Process().children() if child.name() in RAY}
    return next((name for name, process in found.items() if not _lives(process)), None)


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def _why(what: str, log: str) -> str:
    """The line: what happened, load and memory just now, and the last error of Ray's log."""
    memory = psutil.virtual_memory()
    path = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()) / "ray/session_latest/logs" / log
    text = path.read_text(errors="replace") if path.exists() else ""
    said = re.findall(r"\] \(\w+\) \S+: (The raylet .{,150})", text)
    return (
        f"RAY {' '.join(what.split())[:300]}. Load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, "
        f"{memory.available / 1e9:.1f} of {memory.total / 1e9:.1f} GB of memory free. "
        f"{f'{log}: {said[-1]}' if said else 'End what else runs on this machine, and start again.'}"
    )


LESS = "End what else runs here, or lower what the stage takes (docs/resume.md)"


def dead_worker(engines: set[psutil.Process]) -> tuple[str, str] | None:
    """A worker that has died unasked and what Ray says of it. `engines` keeps vLLM's processes here, unknown to Ray."""
    from ray._private.state import state  # the public list of actors needs Ray's dashboard

    with suppress(Exception):  # Ray has not started, or its head is gone
        for actor in state.actor_table(None, actor_state_name="DEAD").values():
            cause, name = actor["DeathCause"], actor["ActorClassName"].rpartition(".")[2]
            text = cause.oom_context.error_message or cause.actor_died_error_context.error_message
            if cause.HasField("oom_context") or "SYSTEM_ERROR" in text:
                return f"{name} (process {actor['Pid']})", text
    with suppress(psutil.NoSuchProcess):  # another one that has ended meanwhile
        engines |= {child for child in psutil.Process().children(recursive=True) if child.name().startswith("VLLM::")}
    gone = [f"VLLM (process {engine.pid})" for engine in engines if not _lives(engine)]
    return (gone[0], "") if gone else None


def kills_for_memory() -> int:
    """Processes that this machine's kernel has killed for memory since it started."""
    found = re.search(r"^oom_kill (\d+)", Path("/proc/vmstat").read_text(), re.MULTILINE)
    return int(found[1]) if found else 0


@contextmanager
def watching_workers(grace: float, end: Callable[[], Any] = _end, every: float = EVERY) -> Iterator[None]:
    """Say in one line which worker has died and why, and end this process where the training waits for it.

    Ray tells of a death in the answer to a call only. Without this the wait for a queue or a socket has no end.
    """
    over, said = threading.Event(), threading.Event()
    engines: set[psutil.Process] = set()
    kills, free = kills_for_memory(), [psutil.virtual_memory().available]

    def look() -> bool:
        found = dead_worker(engines)
        if found and not said.is_set():
            said.set()
            used = re.search(r"was ([\d.]+GB used / [\d.]+GB)", found[1])
            why = (
                f"was killed by Ray because memory ran out ({used[1]})"
                if used
                else "was killed by the kernel because memory ran out"
                if kills_for_memory() > kills
                else f"has died; {min(free) / 1e9:.1f} GB of memory were free before"
            )
            print(f"RAY worker {found[0]} {why}. {LESS}", flush=True)
        free[:] = [free[-1], psutil.virtual_memory().available]
        return said.is_set()

    def watch() -> None:
        while not over.wait(every):
            if dead_worker(engines) and not over.wait(1.0) and look() and not over.wait(grace):  # not as the stage ends
                return end()

    threading.Thread(target=watch, daemon=True, name="workers").start()
    try:
        yield
    except Exception:
        look()
        raise
    finally:
        over.set()
