"""Forwards TCP connections to the unix socket of the test's PostgreSQL server, for clients that know only TCP."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from psycopg.conninfo import conninfo_to_dict


@contextmanager
def forward_tcp(url: str) -> Iterator[int]:
    """Yield a port on the loopback address that leads to the server of a URL with a unix socket."""
    settings = conninfo_to_dict(url)
    target = f"{settings['host']}/.s.PGSQL.{settings.get('port') or 5432}"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        acceptor = threading.Thread(target=_accept, args=(listener, target))
        acceptor.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            acceptor.join()


def _accept(listener: socket.socket, target: str) -> None:
    threads = []
    with suppress(OSError):  # the listener is shut down
        while True:
            client, _ = listener.accept()
            threads.append(threading.Thread(target=_forward, args=(client, target)))
            threads[-1].start()
    for thread in threads:
        thread.join()


def _forward(client: socket.socket, target: str) -> None:
    with client, socket.socket(socket.AF_UNIX) as server:
        server.connect(target)
        answers = threading.Thread(target=_copy, args=(server, client))
        answers.start()
        _copy(client, server)
        answers.join()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while received := source.recv(1 << 16):
            sink.sendall(received)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
