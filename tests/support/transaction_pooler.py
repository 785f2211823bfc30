"""A minimal connection pooler in transaction mode: a client has a server session only during a transaction.

It behaves like PgBouncer: the session of an idle client goes to the next client.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo

_NAME = ".s.PGSQL.5432"


@contextmanager
def transaction_pooler(url: str, folder: Path) -> Iterator[str]:
    """Yield the URL of a pooler for the server at ``url``. Its socket is in ``folder``, whose path must be short."""
    parts = conninfo_to_dict(url)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / _NAME))
        listener.listen()
        pooler = _Pooler(f"{parts['host']}/{_NAME}")
        threading.Thread(target=pooler.accept, args=(listener,), daemon=True).start()
        try:
            yield make_conninfo(url, host=str(folder))
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            pooler.close()


class _Pooler:
    def __init__(self, server: str) -> None:
        self._server = server
        self._idle: list[socket.socket] = []
        self._open: list[socket.socket] = []

    def accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                self._open.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def close(self) -> None:
        for one in self._open:
            one.close()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError, EOFError):
            startup = _read_exactly(client, 4)
            startup += _read_exactly(client, struct.unpack(">I", startup)[0] - 4)
            server, greeting = self._connect(startup)
            self._idle.append(server)
            client.sendall(greeting)
            mine: socket.socket | None = None
            while request := client.recv(65536):
                mine = mine or (self._idle.pop() if self._idle else self._connect(startup)[0])
                mine.sendall(request)
                if self._relay(mine, client) == b"I":
                    self._idle.append(mine)
                    mine = None

    def _connect(self, startup: bytes) -> tuple[socket.socket, bytes]:
        server = socket.socket(socket.AF_UNIX)
        self._open.append(server)
        server.connect(self._server)
        server.sendall(startup)
        greeting = b""
        while greeting[-6:-1] != b"Z\0\0\0\5":
            greeting += _read_message(server)
        return server, greeting

    @staticmethod
    def _relay(server: socket.socket, client: socket.socket) -> bytes:
        """Send the answer to the client. Return the state of the transaction after it."""
        while True:
            message = _read_message(server)
            client.sendall(message)
            if message[:1] == b"Z":
                return message[-1:]


def _read_message(server: socket.socket) -> bytes:
    head = _read_exactly(server, 5)
    return head + _read_exactly(server, struct.unpack(">I", head[1:])[0] - 4)


def _read_exactly(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = source.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data
