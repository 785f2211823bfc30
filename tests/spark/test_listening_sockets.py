"""The processes of `postroom up` are reachable from this machine only, and answer nobody who has no secret."""

from __future__ import annotations

import socket
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

import psutil
import pytest

from tests.support.installation import Installation
from tests.support.orders import APPLICATION, FOLDERS, Orders
from tests.support.waiting import PATIENCE, wait_until

#: A call of a Java method, without the token of the gateway.
_CALL = b"c\nz:java.lang.System\nnanoTime\ne\n"
_GET = b"GET / HTTP/1.0\r\n\r\n"


@pytest.mark.sample("Spark of its own")
# The pages are those of a master and a worker. The session has no pages.
@pytest.mark.parametrize(("master", "pages"), [("local[1]", 0), ("local-cluster[1,1,1024]", 2)])
def test_every_socket_of_up_is_local_and_needs_a_secret(home: Path, master: str, pages: int) -> None:
    with Installation(home) as installation:
        up = installation.start("up", str(installation.write(APPLICATION)), "--master", master)
        for name, content in Orders(20).files(per_file=20):
            installation.drop_file(name, content)
        folders = [home / folder for folder in FOLDERS.values()]
        wait_until(
            lambda: not up.is_running or any([*folder.glob("[!.]*")] for folder in folders), what="a delivered order"
        )
        assert up.is_running, up.output()
        processes = [psutil.Process(up.pid), *psutil.Process(up.pid).children(recursive=True)]
        ports = dict(find_ports(processes))
        assert set(ports.values()) == {"java"}
        kinds = Counter(find_kind(port) for port in ports)
        assert (kinds["gateway"], kinds["pages"]) == (1, pages)
        assert kinds["rpc"] >= 2, "the driver and its block manager"
        for path in find_unix_sockets(processes):
            assert path.parent.stat().st_mode & 0o077 == 0, f"others can open {path}"


def find_ports(processes: list[psutil.Process]) -> Iterator[tuple[int, str]]:
    """Yield the TCP ports that processes listen on, with the names of the processes. Each has a loopback address."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # also a zombie
            for connection in process.net_connections("inet"):
                assert connection.type == socket.SOCK_STREAM
                if connection.status == psutil.CONN_LISTEN:
                    address = ip_address(connection.laddr.ip.removeprefix("::ffff:"))
                    assert address.is_loopback, f"{process.name()} listens on {connection.laddr}"
                    yield connection.laddr.port, process.name()


def find_unix_sockets(processes: list[psutil.Process]) -> Iterator[Path]:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            for connection in process.net_connections("unix"):
                # A name of the abstract namespace has no permissions.
                assert not connection.laddr.startswith("@")
                if connection.laddr:
                    yield Path(connection.laddr)


def find_kind(port: int) -> str:
    """Return what listens on a port. It has to refuse a request without a secret."""
    answer = ask(port, _CALL)
    if answer.startswith(b"!"):
        assert b"Authentication error" in answer
        return "gateway"
    if answer.startswith(b"HTTP/"):
        status = ask(port, _GET).split()[1]
        assert status == b"403"
        return "pages"
    assert b"Expected SaslMessage" in ask(port, make_rpc_request(b"hello"))
    return "rpc"


def make_rpc_request(body: bytes) -> bytes:
    """Return a frame of Spark's network protocol: its length, the type 3 (RpcRequest), an id, and the body."""
    message = struct.pack(">bqi", 3, 1, len(body)) + body
    return struct.pack(">q", 8 + len(message)) + message


def ask(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        connection.sendall(request)
        return connection.recv(4096)
