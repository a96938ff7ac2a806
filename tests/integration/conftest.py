"""What the trainings of these tests share: a look at what their processes listen on."""

import ipaddress
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psutil
import pytest


def _listens(name: str, value: str) -> set[str]:
    """`process address:port` of everything that processes with this environment variable listen on."""
    found = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(name) == value:
                for connection in process.net_connections("inet"):
                    if connection.status == psutil.CONN_LISTEN or not connection.raddr:
                        found.add(f"{process.name()} {connection.laddr.ip}:{connection.laddr.port}")
    return found


@contextmanager
def _listeners(name: str, value: str) -> Iterator[set[str]]:
    found: set[str] = set()
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.5):
            found.update(_listens(name, value))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


@pytest.fixture
def listeners() -> Callable[..., object]:
    """`with listeners(NAME, VALUE) as found:` collects twice a second what processes so marked listen on."""
    return _listeners


@pytest.fixture
def beyond_loopback() -> Callable[[set[str]], list[str]]:
    """Of what `listeners` found, what another machine can reach."""

    def select(found: set[str]) -> list[str]:
        addresses = {one: ipaddress.ip_address(one.rpartition(" ")[2].rpartition(":")[0]) for one in found}
        mapped = {one: getattr(address, "ipv4_mapped", None) or address for one, address in addresses.items()}
        return sorted(one for one, address in mapped.items() if not address.is_loopback)

    return select
