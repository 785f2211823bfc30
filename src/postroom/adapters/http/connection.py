"""One connection of the HTTP/1.1 server: requests with streamed bodies and responses, with limits on everything.

h11 implements the protocol.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import format_datetime
from http import HTTPStatus
from urllib.parse import urlsplit

import h11

from postroom.clock import system_clock

_RECEIVE_BYTES = 1 << 16
_LINGER_SECONDS, _LINGER_BYTES = 2.0, 8 << 20


@dataclass(frozen=True, kw_only=True)
class ConnectionLimits:
    """The limits for clients.

    ``timeout`` is the time for the head of a request, and for each wait for more of a body. The first ``small_chunks``
    chunks of a body may have any size. After them the average size must be ``min_chunk_bytes``. A connection without a
    request is closed after ``idle_seconds``. Above ``max_connections``, new connections wait until another one ends.
    Above ``client_connections`` of one client, its new connections are rejected.
    """

    max_head_bytes: int = 16_384
    timeout: float = 30.0
    max_body_seconds: float = 600.0
    min_bytes_per_second: int = 1_000
    small_chunks: int = 5_000
    min_chunk_bytes: int = 16
    idle_seconds: float = 15.0
    max_connections: int = 200
    client_connections: int = 50


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request whose head has been read.

    ``body`` can be read once, entirely or in part. Reading it raises RequestFailed if the client exceeds a limit or
    disconnects.
    """

    method: str
    path: str
    query: str
    headers: tuple[tuple[str, str], ...]
    """Names in lower case."""
    remote: str
    body: Iterator[bytes]

    def header(self, name: str) -> str | None:
        """Return a header by its name in lower case. Several values are joined by commas."""
        values = [value for one, value in self.headers if one == name]
        return ", ".join(values) if values else None


@dataclass(frozen=True, kw_only=True)
class Response:
    """A response: a status and a JSON object."""

    status: int
    content: Mapping[str, object] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


class RequestFailed(Exception):
    """The request is invalid, too large or incomplete. ``response`` describes the problem."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.response = build_error_response(status, error)


def build_error_response(status: int, error: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with an error message."""
    return Response(status=status, content={"error": error}, headers=headers or {})


class HttpConnection:
    """One connection: requests and responses in turn."""

    def __init__(self, connected: socket.socket, remote: str, limits: ConnectionLimits) -> None:
        self._socket = connected
        self._remote = remote
        self._limits = limits
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.max_head_bytes)

    def wait_for_request(self) -> bool:
        """Wait for the start of another request. Return False if the client has closed the connection or is idle."""
        if self._protocol.trailing_data[0]:
            return True
        self._socket.settimeout(self._limits.idle_seconds)
        try:
            received = self._socket.recv(_RECEIVE_BYTES)
        except TimeoutError:
            return False
        if not received:
            return False
        self._protocol.receive_data(received)
        return True

    def read_head(self) -> Request:
        deadline = time.monotonic() + self._limits.timeout
        event = self._next_event(deadline)
        if not isinstance(event, h11.Request):
            raise RequestFailed(400, "The request ended early.")
        # The protocol limits only what is still incomplete.
        if (
            len(event.target) + sum(len(name) + len(value) for name, value in event.headers)
            > self._limits.max_head_bytes
        ):
            raise RequestFailed(431, f"The head of the request has more than {self._limits.max_head_bytes} bytes.")
        try:
            target = urlsplit(event.target.decode("ascii"))
        except ValueError:
            raise RequestFailed(400, "The target of the request cannot be read.") from None
        return Request(
            method=event.method.decode("ascii"),
            path=target.path,
            query=target.query,
            headers=tuple((name.decode("ascii"), value.decode("latin-1")) for name, value in event.headers),
            remote=self._remote,
            body=self._body(),
        )

    def send(self, response: Response, *, close: bool) -> bool:
        """Send a response. Return False if the connection ends with it."""
        # The unread rest of a body would be parsed as the next request.
        unread = not self._is_all_read()
        body = json.dumps(response.content).encode() + b"\n"
        headers = {
            "Date": format_datetime(system_clock(), usegmt=True),
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            **response.headers,
        }
        if unread or close:
            headers["Connection"] = "close"
        self._socket.settimeout(self._limits.timeout)
        try:
            reason = HTTPStatus(response.status).phrase
            self._send(
                h11.Response(status_code=response.status, headers=list(headers.items()), reason=reason),
                h11.Data(data=body),
                h11.EndOfMessage(),
            )
        except h11.LocalProtocolError:
            return False  # the client broke the protocol, so no response is possible
        if unread:
            self._linger()
        if self._protocol.our_state is h11.DONE and self._protocol.their_state is h11.DONE and not close:
            self._protocol.start_next_cycle()
            return True
        return False

    def _is_all_read(self) -> bool:
        with suppress(h11.RemoteProtocolError):
            while self._protocol.their_state is h11.SEND_BODY and self._protocol.next_event() is not h11.NEED_DATA:
                pass
        return self._protocol.their_state is h11.DONE

    def _send(self, *events: h11.Event) -> None:
        self._socket.sendall(b"".join(self._protocol.send(event) or b"" for event in events))

    def _body(self) -> Iterator[bytes]:
        started = time.monotonic()
        body_deadline, rate_deadline = started + self._limits.max_body_seconds, started + self._limits.timeout
        if self._protocol.they_are_waiting_for_100_continue:
            self._send(h11.InformationalResponse(status_code=100, headers=[], reason="Continue"))
        min_chunk_bytes = self._limits.min_chunk_bytes
        chunks = size = 0
        while True:
            event = self._next_event(min(body_deadline, rate_deadline, time.monotonic() + self._limits.timeout))
            pieces: list[bytes] = []
            while isinstance(event, h11.Data):
                pieces.append(event.data)
                size += len(event.data)
                # The work for a chunk does not depend on its size, so small chunks would cost much time.
                chunks += event.chunk_start
                if chunks > self._limits.small_chunks + size // min_chunk_bytes:
                    raise RequestFailed(400, f"The chunks of the body have less than {min_chunk_bytes} bytes.")
                event = self._read_buffered()
            if pieces:
                piece = b"".join(pieces)
                # Each byte extends the deadline, so a client below the minimum rate runs out of time.
                rate_deadline += len(piece) / self._limits.min_bytes_per_second
                yield piece
            if isinstance(event, h11.EndOfMessage):
                return
            if event is not h11.NEED_DATA:
                raise RequestFailed(400, "The request ended early.")

    def _read_buffered(self) -> object:
        """Return the next event of what was received, or NEED_DATA."""
        try:
            return self._protocol.next_event()
        except h11.RemoteProtocolError as error:
            raise RequestFailed(error.error_status_hint, f"{str(error).rstrip('.')}.") from None

    def _next_event(self, deadline: float) -> object:
        while True:
            event = self._read_buffered()
            if event is not h11.NEED_DATA:
                return event
            try:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                self._socket.settimeout(left)
                self._protocol.receive_data(self._socket.recv(_RECEIVE_BYTES))
            except TimeoutError:
                raise RequestFailed(408, "The request took too long.") from None

    def _linger(self) -> None:
        """Read a little more from the client. A client that is cut off while it sends would lose the response."""
        deadline, rest = time.monotonic() + _LINGER_SECONDS, _LINGER_BYTES
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            while rest > 0 and (left := deadline - time.monotonic()) > 0:
                self._socket.settimeout(left)
                received = self._socket.recv(_RECEIVE_BYTES)
                if not received:
                    break
                rest -= len(received)
