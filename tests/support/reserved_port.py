"""Ports that only the processes of one test use."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def reserve_port() -> Iterator[int]:
    """Yield a free port on the loopback interface. A process that names the port can listen on it.

    The port is bound meanwhile, so that the system gives it to no process that asks for any free port. A server that
    names it can bind it too, because both set SO_REUSEADDR and this socket does not listen.
    """
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        yield int(reserved.getsockname()[1])


def is_listening(port: int) -> bool:
    """Return True if a process listens on the port."""
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    return False
