"""What a launch in a cluster leaves on other nodes, and its removal there.

Ray ends the workers of a start that has ended, killed or not, and everything else stays: processes that a worker has
started, temporary files, shared memory. So a launch notes the cluster that it has joined, and whoever clears up after
it asks each node first. The code is that of this checkout, which was the same on each node when the launch began.
"""

import os
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from recipe.cluster.each import ClusterError, ask
from recipe.cluster.workers import PROCESSES
from recipe.launch import remains

NOTE = "launch.json"
"""In a run's folder: the launch that is at work there, or was killed."""

PATIENCE = 10.0
"""Seconds for Ray to end its workers itself."""


def note(run: Path, address: str) -> None:
    """Note that the launch which this process is of joins a cluster."""
    launch = remains.read(run / NOTE)
    if launch is not None and launch.token == os.environ.get(remains.TOKEN):
        remains.note(run / NOTE, replace(launch, cluster=address))


def clear(path: Path, keep_logs: bool = True) -> list[str]:
    """`remains.clear`, on every node of the launch's cluster before on this machine."""
    launch = None if remains.foreign(path) else remains.read(path)
    found = _clear_nodes(launch) if launch is not None and launch.cluster is not None else []
    return found + remains.clear(path, keep_logs)


def _clear_nodes(launch: remains.Launch) -> list[str]:
    assert launch.cluster is not None
    asked = {"token": launch.token, "started": launch.started, "temp": launch.temp}
    try:
        answer = ask(launch.cluster, [f"{__name__}:clear_here"], asked, {"TMPDIR": str(Path(launch.temp).parent)})
    except ClusterError as error:
        return [f"nothing on other nodes: {error}"]
    return [
        f"{'nothing' if node.fault else ', '.join(node.answers[0])} on {node}{f': {node.fault}' if node.fault else ''}"
        for node in answer.nodes
        if node.fault or node.answers[0]
    ]


def clear_here(asked: dict[str, Any], node: str, nodes: list[str]) -> list[str]:
    """End what is left of a launch on this node, and remove its files. Returns what was found."""
    launch = remains.Launch(asked["token"], asked["started"], asked["temp"], log="")
    end = time.monotonic() + PATIENCE
    while (left := _left(launch)) and time.monotonic() < end:
        time.sleep(0.5)
    found = [f"{len(names)} processes ({', '.join(sorted(set(names)))})"] if (names := remains.end(left)) else []
    return found + remains.clear_files(launch)


def _left(launch: remains.Launch) -> list[psutil.Process]:
    """Processes of the launch: Ray's workers, which have written down their numbers, and what has its token."""
    found = {process.pid: process for process in remains.marked(launch)}
    temp = remains.own_temp(launch)
    for path in (temp / PROCESSES).glob("*") if temp is not None else ():
        with suppress(OSError, ValueError, IndexError, psutil.Error):
            started = Path(f"/proc/{path.name}/stat").read_text().rpartition(")")[2].split()
            process = psutil.Process(int(path.name))
            if started[19] == path.read_text() and started[0] != "Z" and process.uids().real == os.getuid():
                found[process.pid] = process
    found.pop(os.getpid(), None)
    return list(found.values())
