"""HTTP connections with a deadline for a whole exchange: connecting, the request and the response.

An exchange has two halves. The thread that begins it connects and sends the request. The response can be awaited on an
event loop (``SentRequest.receive``), so that a slow server occupies no thread. Any thread reads it then.

The timeouts of urllib3 apply to each operation of a socket. A server that sends one byte before each timeout could
therefore keep a connection busy for hours. Here the timeout of every operation is the time until the deadline. The
resolution of host names is not included: the system's resolver has its own limits.
"""

from __future__ import annotations

import http.client
import io
import select
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from typing import Any

from urllib3 import BaseHTTPResponse, HTTPConnectionPool, HTTPHeaderDict, HTTPResponse, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

from postroom.adapters.http.response_end import ResponseEnd
from postroom.errors import DeliveryFailure
from postroom.message import Part

#: The deadline starts again after this number of bytes of the request body, so that a large body can be sent.
_BYTES_PER_TIMEOUT = 1 << 20
# The size of a TLS record. A TLS socket applies its timeout to each record.
_PIECE = 1 << 14
# Maximum number of bytes of a response that are received before a thread reads it.
_MAX_RECEIVED = 1 << 18
# What a socket raises that would have to wait.
_WOULD_WAIT = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


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


class Received:
    """The bytes of a response that have arrived, and the error that ended the connection, if any."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.error: OSError | None = None

    def read_into(self, buffer: Any) -> int | None:
        """Move bytes into the buffer. Return None if there are none."""
        if not self.data:
            if self.error is not None:
                raise self.error
            return None
        count = min(len(buffer), len(self.data))
        buffer[:count] = self.data[:count]
        del self.data[:count]
        return count


class _ResponseReader(io.RawIOBase):
    """Reads a response until the deadline: first what was received, then from the socket."""

    def __init__(self, sock: socket.socket, deadline: Deadline, received: Received) -> None:
        self._socket = sock
        self._deadline = deadline
        self._received = received
        # The socket stays open until this file is closed, even if the connection is closed first.
        self._file = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if (count := self._received.read_into(buffer)) is not None:
            return count
        self._socket.settimeout(self._deadline.get_remaining())
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


class _ResponseSource:
    """Passes a ``_ResponseReader`` to http.client, which calls ``makefile`` of a socket."""

    def __init__(self, sock: socket.socket, deadline: Deadline, received: Received) -> None:
        self._reader = _ResponseReader(sock, deadline, received)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self._reader)


class SentRequest:
    """A request that was sent, and its response, which has not been read.

    One thread at a time uses it. urllib3 takes it for a response without a redirect or a retry, and sets the attributes
    that a connection is returned with.
    """

    version_string, status, length_remaining = "HTTP/1.1", 200, None
    retries: Any = None
    _pool: Any = None
    _connection: Any = None

    def __init__(self, connection: _DeadlineConnection) -> None:
        self.headers = HTTPHeaderDict()
        #: How long the body of a 2xx response may take, in seconds, if its status is all that matters.
        self.confirmed_seconds: float | None = None
        self._sent_on = connection
        self._socket = connection.sock
        self._deadline = connection.deadline
        self._received = connection.received = Received()
        self._end = ResponseEnd()

    def fileno(self) -> int:
        """Return the number of the socket, which is readable when ``receive`` can go on."""
        return self._socket.fileno()

    def get_remaining(self) -> float:
        """Return the seconds until the deadline. Raise TimeoutError after it."""
        return self._deadline.get_remaining()

    def receive(self) -> bool:
        """Receive what has arrived, without waiting. Return True if ``get_response`` does not have to wait any more,
        or if much has been received: what is left of a large response is received when it is read."""
        self._socket.settimeout(0)
        try:
            while len(self._received.data) < _MAX_RECEIVED and (data := self._socket.recv(1 << 16)):
                self._received.data += data
                if self._is_complete():
                    return True
        except _WOULD_WAIT:
            return False
        except OSError as error:
            self._received.error = error
        return True

    def receive_within(self, seconds: float) -> bool:
        """Receive for up to ``seconds`` seconds. Return what ``receive`` returns."""
        until = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self._socket.fileno(), select.POLLIN)
        while not self.receive():
            rest = until - time.monotonic()
            if rest <= 0 or not poll.poll(1000 * rest):
                return False
        return True

    def _is_complete(self) -> bool:
        had_head = self._end.status
        is_complete = self._end.is_complete(self._received.data)
        if not had_head and 200 <= self._end.status < 300 and self.confirmed_seconds is not None:
            self._deadline.shorten(self.confirmed_seconds)
        return is_complete

    def get_response(self) -> BaseHTTPResponse:
        """Wait for the head of the response, and return the response. Its body is read from the connection."""
        try:
            response = self._sent_on.read_head()
        except BaseException:
            self._sent_on.close()
            self._pool._put_conn(self._sent_on)
            raise
        response.retries = self.retries
        response._connection = self._connection
        response._pool = self._pool
        return response


class _DeadlineConnection(HTTPConnection):
    """A connection whose exchange ends at the deadline of the request body."""

    deadline: Deadline
    #: What was received before it is read: nothing of the answer of a proxy to CONNECT.
    received: Received

    def connect(self) -> None:
        assert self.timeout is not None
        self.deadline = Deadline(self.timeout)
        self.received = Received()
        super().connect()

    def getresponse(self) -> SentRequest:  # type: ignore[override]
        """Return the request that was sent. urllib3 calls this after it has sent it."""
        return SentRequest(self)

    def read_head(self) -> HTTPResponse:
        """Wait for the head of the response, and return the response."""
        return super().getresponse()

    def _new_conn(self) -> socket.socket:
        sock = super()._new_conn()
        sock.settimeout(self.deadline.get_remaining())  # for the TLS handshake
        return sock

    def request(  # type: ignore[override]
        self, method: str, url: str, body: RequestBody, headers: Mapping[str, str], **options: Any
    ) -> None:
        if self.sock is None:
            self.connect()
        self.deadline = body.deadline
        super().request(method, url, body, headers, **options)

    def send(self, data: Any) -> None:
        self.sock.settimeout(self.deadline.get_remaining())
        super().send(data)

    def response_class(  # type: ignore[override]
        self, sock: socket.socket, method: str | None = None
    ) -> http.client.HTTPResponse:
        return http.client.HTTPResponse(_ResponseSource(sock, self.deadline, self.received), method=method)  # type: ignore[arg-type]


class _DeadlineTlsConnection(_DeadlineConnection, HTTPSConnection):
    """The same over TLS."""


class _HttpPool(HTTPConnectionPool):
    ConnectionCls = _DeadlineConnection  # type: ignore[assignment]


class _HttpsPool(HTTPSConnectionPool):
    ConnectionCls = _DeadlineTlsConnection  # type: ignore[assignment]


#: The pools of connections with a deadline, by the scheme of the URL.
POOL_CLASSES = {"http": _HttpPool, "https": _HttpsPool}
