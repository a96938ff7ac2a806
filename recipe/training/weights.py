"""How weights get from processes that train to engines on other devices, for `trainer=separate`: a broadcast by gloo.

verl loads this through `rollout.checkpoint_engine.custom_backend_module` in every process that sends or receives. Its
own engines for that need packages for GPUs (cupy, NIXL, Mooncake). This one needs torch alone, and goes through the
memory of the host. Names and shapes travel as JSON; nothing that arrives is unpickled.

A weight is given on where the engine is, on its card: verl hands those larger than a bucket over as they lie, and can
do so with what is on a card alone.
"""

import json
import math
import socket
from collections.abc import AsyncIterator, Iterable
from datetime import timedelta
from typing import Any

import ray
import torch
from torch.distributed import BroadcastOptions, ProcessGroup, ProcessGroupGloo, TCPStore
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry
from verl.utils.device import get_device_id, get_device_name

TIMEOUT = timedelta(minutes=10)
"""For everybody to meet, and for one tensor."""


@CheckpointEngineRegistry.register("gloo")
class GlooCheckpointEngine(CheckpointEngine):
    """The first process that trains sends each tensor to all engines. The others only help it to gather them.

    Args:
        bucket_size: bytes; not used, as a tensor is sent as a whole.
        is_master: whether this is the process that sends.
    """

    store: TCPStore
    """The sender's; what it says of tensor `n` is under the name `n`."""
    group: ProcessGroup | None = None

    def __init__(self, bucket_size: int, is_master: bool = False) -> None:
        self.is_master = is_master

    def prepare(self) -> tuple[str, int] | None:  # type: ignore[override]
        """Address and port of the sender's store, on the address that Ray knows this node by; None of the others."""
        if not self.is_master:
            return None
        address = ray.util.get_node_ip_address().strip("[]")
        listener = socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
        port = listener.getsockname()[1]
        self.store = TCPStore(
            address, port, is_master=True, wait_for_workers=False, timeout=TIMEOUT, master_listen_fd=listener.detach()
        )
        return address, port

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[Any]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """The sender is rank 0, engines are the ranks from 1; -1 for who has no part in it."""
        size = rollout_world_size + 1

        def given(ranks: list[int]) -> dict[str, list[Any]]:
            return {"rank": ranks, "size": [size] * len(ranks), "place": [metadata[0]] * len(ranks)}

        return given([0] + [-1] * (actor_wg_world_size - 1)), given([*range(1, size)])

    def init_process_group(self, rank: int, size: int, place: tuple[str, int]) -> None:
        """Meet at the sender's store.

        Args:
            rank: -1 for a process that only helps to gather.
            size: of the group: the sender and all engines.
            place: where the sender listens.
        """
        if rank > 0:
            self.store = TCPStore(place[0], place[1], is_master=False, timeout=TIMEOUT)
        if rank >= 0:
            self.group = ProcessGroupGloo(self.store, rank, size, TIMEOUT)

    def finalize(self) -> None:
        """Leave the group; the next weights are sent in another one."""
        if self.group is not None:
            del self.store, self.group

    def _broadcast(self, tensor: torch.Tensor) -> torch.Tensor:
        options = BroadcastOptions()
        options.rootRank = options.rootTensor = 0
        assert self.group is not None
        self.group.broadcast([tensor], options).wait()
        return tensor

    async def send_weights(  # type: ignore[override]
        self, weights: Iterable[tuple[str, torch.Tensor]], global_steps: int | None = None
    ) -> None:
        """Every process that trains walks through the weights, since they are gathered from all; one sends."""
        number = 0
        for name, weight in weights:
            if self.group is not None:
                self.store.set(str(number), json.dumps([name, str(weight.dtype), list(weight.shape)]))
                self._broadcast(weight.detach().cpu().contiguous().view(-1).view(torch.uint8))
                number += 1
        if self.group is not None:
            self.store.set(str(number), "null")
            self.group.barrier().wait()  # the store stays until all have read that it was the last one

    async def receive_weights(  # type: ignore[override]
        self, global_steps: int | None = None
    ) -> AsyncIterator[tuple[str, torch.Tensor]]:
        """Name and weight, on the engine's device, in the order in which they are sent."""
        device, number = get_device_name(), 0
        while header := json.loads(self.store.get(str(number))):
            name, kind, shape = header
            dtype = getattr(torch, kind.removeprefix("torch."))
            data = self._broadcast(torch.empty(math.prod(shape) * dtype.itemsize, dtype=torch.uint8))
            weight = data.view(dtype).view(shape)
            yield name, weight if device == "cpu" else weight.to(f"{device}:{get_device_id()}")
            number += 1
        assert self.group is not None
        self.group.barrier().wait()
