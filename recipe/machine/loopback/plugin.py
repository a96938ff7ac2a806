"""The rendezvous `loopback://`: torch's `env://`, but listening on the loopback interface alone.

verl imports this through the `verl.plugins` entry point, in every process, and calls nothing in it: the work is done at
import, and only where `DIST_INIT_METHOD` asks for it.
"""

import os
import socket
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlparse

from recipe.machine.loopback import ENVIRONMENT, HOST, SCHEME, joins_torchrun


def rendezvous(url: str, timeout: timedelta, **_: Any) -> Iterator[tuple[Any, int, int]]:
    """Store, rank and number of ranks; what torch does not append to the URL stands in the environment.

    Raises:
        ValueError: MASTER_ADDR is another address, and torchrun does not listen there.
    """
    from torch.distributed import TCPStore

    query = parse_qs(urlparse(url).query)
    rank = int(query["rank"][0] if "rank" in query else os.environ["RANK"])
    world_size = int(query["world_size"][0] if "world_size" in query else os.environ["WORLD_SIZE"])
    host, port = os.environ["MASTER_ADDR"].strip("[]"), int(os.environ["MASTER_PORT"])
    joins = joins_torchrun()
    if not joins and host not in (HOST, "localhost"):
        raise ValueError(f"MASTER_ADDR={host} is not {HOST}. Set that, or DIST_INIT_METHOD=env:// (docs/security.md)")
    hosts = rank == 0 and not joins
    settings: dict[str, Any] = {}
    if hosts:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        settings["master_listen_fd"] = listener.detach()  # the store listens on it, and closes it
    yield (
        TCPStore(host if joins else HOST, port, world_size, is_master=hosts, timeout=timeout, **settings),
        rank,
        world_size,
    )
    raise RuntimeError(f"{SCHEME}:// cannot rendezvous again")


if os.environ.get("DIST_INIT_METHOD") == ENVIRONMENT["DIST_INIT_METHOD"]:
    from torch.distributed import register_rendezvous_handler

    register_rendezvous_handler(SCHEME, rendezvous)
