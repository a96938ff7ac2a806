"""On one machine, nothing of a run can be reached from another one.

By default Ray, TransferQueue, verl's vLLM server and torch listen in the network without asking who connects, and some
of them unpickle what arrives: whoever reaches the machine could run code as the training user. `ENVIRONMENT` tells each
of them otherwise. torch's own rendezvous reads none of it, so DIST_INIT_METHOD names ours (`plugin.py` beside this).

    listens                                     closed by
    Ray: GCS, raylet, a port for each worker    RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0, Ray's switch for a cluster of
                                                this machine alone: every address of it is 127.0.0.1
    TransferQueue, verl's vLLM server           the same: they ask Ray for the node's address
    gloo, NCCL, vLLM                            GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME, VLLM_HOST_IP
    torch's TCPStore, on all interfaces         DIST_INIT_METHOD
"""

import os
from contextlib import suppress
from pathlib import Path

SCHEME = "loopback"
HOST = "127.0.0.1"

ENVIRONMENT = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
    "VLLM_HOST_IP": HOST,
    "DIST_INIT_METHOD": f"{SCHEME}://",
}
"""What a run on one machine starts with."""

NOTED = Path("/tmp/ray/ray_current_cluster")
"""Where `ray start` notes the address of the cluster that a machine is in."""


def cluster(nodes: int) -> str | None:
    """Address of the Ray cluster that a run joins, which somebody else has started; None where it starts its own.

    That is RAY_ADDRESS. A run on several machines also takes the one that `ray start` has noted on this one.
    """
    if address := os.environ.get("RAY_ADDRESS"):
        return None if address == "local" else address  # Ray's word for one of its own
    with suppress(OSError, UnicodeDecodeError):
        if nodes > 1 and NOTED.stat().st_uid == os.getuid():
            return NOTED.read_text().strip() or None
    return None


def environment(nodes: int) -> dict[str, str]:
    """What to start a run on `nodes` machines with; nothing where it has to talk to others."""
    return dict(ENVIRONMENT) if nodes == 1 and cluster(nodes) is None else {}


def joins_torchrun() -> bool:
    """Whether torchrun listens itself, where MASTER_ADDR says, and its processes only connect."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def notes(nodes: int) -> list[str]:
    """A line on what stays open, for the log; none on one machine."""
    if environment(nodes):
        return []
    why = f"{nodes} machines" if nodes > 1 else f"the Ray cluster of {cluster(nodes)}"
    return [f"{why}: Ray, TransferQueue and vLLM listen in the network, without a password; see docs/security.md"]
