"""HTTP connections with a deadline for a whole exchange: connecting, the request and the response.

The timeouts of urllib3 apply to each operation of a socket. A server that sends one byte before each timeout could
therefore keep a connection busy for hours. Here the timeout of every operation is the time until the deadline. The
resolution of host names is not included: the system's resolver has its own limits.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

from postroom.errors import DeliveryFailure
from postroom.message import Part

#: The deadline starts again after this number of bytes of the request body, so that a large body can be sent.
_BYTES_PER_TIMEOUT = 1 << 20
# The size of a TLS record. A TLS socket applies its timeout to each record.
_PIECE = 1 << 14


class Deadline:
    """The end of an exchange, ``timeout`` seconds after its start."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._at = 0.0
        self.restart()

    def restart(self) -> None:
        self._at = time.monotonic() + self._timeout

    def shorten(self, seconds: float) -> None:
        """End the exchange in ``seconds`` seconds if it would last longer."""
        self._at = min(self._at, time.monotonic() + seconds)

    def get_remaining(self) -> float:
        """Return the seconds until the deadline. Raise TimeoutError after it."""
        remaining = self._at - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("timed out")
        return remaining


class RequestBody:
    """The body of a request: exactly the announced number of bytes. ``is_sent`` is True after all of them were read."""

    def __init__(self, part: Part, deadline: Deadline) -> None:
        self.part = part
        self.deadline = deadline
        self.is_sent = False

    def __iter__(self) -> Iterator[bytes]:
        rest, sent = self.part.body.size, 0
        for chunk in self.part.body.chunks():
            rest -= len(chunk)
            if rest < 0:
                break
            for start in range(0, len(chunk), _PIECE):
                piece = chunk[start : start + _PIECE]
                yield piece
                sent += len(piece)
                if sent >= _BYTES_PER_TIMEOUT:
                    self.deadline.restart()
                    sent = 0
        if rest:
            # More or fewer bytes than announced would corrupt the next request on the connection.
            raise DeliveryFailure(
                f"Part {self.part.name!r} does not have {self.part.body.size} bytes, which is its size.",
                hint="Its content changed or was truncated while it was read.",
            )
        self.is_sent = True


class _ResponseReader(io.RawIOBase):
    """Reads a response until the deadline."""

    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        self._socket = sock
        self._deadline = deadline
        # The socket stays open until this file is closed, even if the connection is closed first.
        self._file = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._socket.settimeout(self._deadline.get_remaining())
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


class _ResponseSource:
    """Passes a ``_ResponseReader`` to http.client, which calls ``makefile`` of a socket."""

    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        self._reader = _ResponseReader(sock, deadline)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self._reader)


class _DeadlineConnection(HTTPConnection):
    """A connection whose exchange ends at the deadline of the request body."""

    _deadline: Deadline

    def connect(self) -> None:
        assert self.timeout is not None
        self._deadline = Deadline(self.timeout)
        super().connect()

    def _new_conn(self) -> socket.socket:
        sock = super()._new_conn()
        sock.settimeout(self._deadline.get_remaining())  # for the TLS handshake
        return sock

    def request(  # type: ignore[override]
        self, method: str, url: str, body: RequestBody, headers: Mapping[str, str], **options: Any
    ) -> None:
        if self.sock is None:
            self.connect()
        self._deadline = body.deadline
        super().request(method, url, body, headers, **options)

    def send(self, data: Any) -> None:
        self.sock.settimeout(self._deadline.get_remaining())
        super().send(data)

    def response_class(  # type: ignore[override]
        self, sock: socket.socket, method: str | None = None
    ) -> http.client.HTTPResponse:
        return http.client.HTTPResponse(_ResponseSource(sock, self._deadline), method=method)  # type: ignore[arg-type]


class _DeadlineTlsConnection(_DeadlineConnection, HTTPSConnection):
    """The same over TLS."""


class _HttpPool(HTTPConnectionPool):
    ConnectionCls = _DeadlineConnection  # type: ignore[assignment]


class _HttpsPool(HTTPSConnectionPool):
    ConnectionCls = _DeadlineTlsConnection  # type: ignore[assignment]


#: The pools of connections with a deadline, by the scheme of the URL.
POOL_CLASSES = {"http": _HttpPool, "https": _HttpsPool}
