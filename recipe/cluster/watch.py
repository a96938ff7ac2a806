"""Name the node that was lost.

When a machine goes down, or somebody kills its raylet, the trainer is told that an actor has died, or of a connection
that was closed, or nothing at all: processes on GPUs wait in a collective for a peer that is gone. Here a thread of the
starting process asks Ray every few seconds which nodes live, says which one does not any more, and ends the process if
the loss itself has not ended it a while later. A node that the run does not train on may leave the cluster.
"""

import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

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
