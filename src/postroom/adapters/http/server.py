"""A small HTTP/1.1 server: one thread per connection, streamed bodies, limits on everything.

    server = HttpServer("127.0.0.1", 8080, handle)
    server.start()

h11 implements the protocol. The handler processes requests and is called from many threads.
"""

from __future__ import annotations

import json
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import format_datetime
from http import HTTPStatus
from urllib.parse import urlsplit

import h11

from postroom.clock import system_clock

_log = logging.getLogger(__name__)

_PIECE = 1 << 16
_ACCEPT_SECONDS = 0.2
_LINGER_SECONDS, _LINGER_BYTES = 2.0, 8 << 20


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits for clients.

    The head of a request has at most ``head`` bytes and takes at most ``timeout`` seconds, which is also the maximum of
    each wait for more of a body. A body takes at most ``whole`` seconds and is sent with at least ``slowest`` bytes a
    second. A connection without a request is closed after ``idle`` seconds. Above ``connections`` connections, new
    ones wait until another one ends.
    """

    head: int = 16_384
    timeout: float = 30.0
    whole: float = 600.0
    slowest: int = 1_000
    idle: float = 15.0
    connections: int = 200


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


Handler = Callable[[Request], Response]


class HttpServer:
    """Listens between ``start`` and ``stop``."""

    def __init__(
        self,
        listen: str,
        port: int,
        handle: Handler,
        *,
        tls: ssl.SSLContext | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._handle = handle
        self._tls = tls
        self._limits = limits or Limits()
        self._stopping = threading.Event()
        self._free = threading.Semaphore(self._limits.connections)
        self._lock = threading.Lock()
        self._idle: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        family = socket.AF_INET6 if ":" in listen else socket.AF_INET
        self._listener = socket.create_server((listen, port), family=family, backlog=128)
        self._listener.settimeout(_ACCEPT_SECONDS)
        self._acceptor = threading.Thread(target=self._accept, name=f"http {listen}:{port}", daemon=True)

    @property
    def port(self) -> int:
        """The port that the server listens on, also if it was started with port 0."""
        return int(self._listener.getsockname()[1])

    def start(self) -> None:
        self._acceptor.start()

    def stop(self, within: float = 10.0) -> None:
        """Accept no more requests. Wait up to ``within`` seconds for requests in progress."""
        deadline = time.monotonic() + within
        self._stopping.set()
        self._acceptor.join()
        with self._lock:
            for idle in self._idle:
                with suppress(OSError):
                    idle.shutdown(socket.SHUT_RDWR)
            threads = list(self._threads)
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _accept(self) -> None:
        with self._listener:
            while not self._stopping.is_set():
                if not self._free.acquire(timeout=_ACCEPT_SECONDS):
                    continue
                try:
                    connected, address = self._listener.accept()
                except OSError as error:
                    self._free.release()
                    if not isinstance(error, TimeoutError):
                        # For example, no free file descriptors until another connection ends.
                        _log.warning("a connection could not be accepted: %s", error)
                        self._stopping.wait(_ACCEPT_SECONDS)
                    continue
                thread = threading.Thread(target=self._serve, args=(connected, str(address[0])), daemon=True)
                with self._lock:
                    self._threads.add(thread)
                thread.start()

    def _serve(self, connected: socket.socket, remote: str) -> None:
        try:
            with connected:
                connected.settimeout(self._limits.timeout)
                if self._tls is None:
                    self._serve_requests(connected, remote)
                else:
                    with self._tls.wrap_socket(connected, server_side=True) as secured:
                        self._serve_requests(secured, remote)
        except OSError as error:
            _log.debug("%s disconnected: %s", remote, error)
        except Exception:
            _log.exception("a connection from %s failed", remote)
        finally:
            self._free.release()
            with self._lock:
                self._threads.discard(threading.current_thread())

    def _serve_requests(self, connected: socket.socket, remote: str) -> None:
        connection = _HttpConnection(connected, remote, self._limits)
        while not self._stopping.is_set():
            with self._lock:
                self._idle.add(connected)
            try:
                if self._stopping.is_set() or not connection.wait_for_request():
                    return
            finally:
                with self._lock:
                    self._idle.discard(connected)
            try:
                response = self._handle(connection.read_head())
            except RequestFailed as failed:
                response = failed.response
            except Exception:
                _log.exception("a request from %s could not be handled", remote)
                response = build_error_response(500, "An internal error occurred.")
            if not connection.send(response, close=self._stopping.is_set()):
                return


class _HttpConnection:
    """One connection: requests and responses in turn."""

    def __init__(self, connected: socket.socket, remote: str, limits: Limits) -> None:
        self._socket = connected
        self._remote = remote
        self._limits = limits
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head)

    def wait_for_request(self) -> bool:
        """Wait for the start of another request. Return False if the client has closed the connection or is idle."""
        if self._protocol.trailing_data[0]:
            return True
        self._socket.settimeout(self._limits.idle)
        try:
            received = self._socket.recv(_PIECE)
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
        if len(event.target) + sum(len(name) + len(value) for name, value in event.headers) > self._limits.head:
            raise RequestFailed(431, f"The head of the request has more than {self._limits.head} bytes.")
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
        began = time.monotonic()
        whole, in_time = began + self._limits.whole, began + self._limits.timeout
        if self._protocol.they_are_waiting_for_100_continue:
            self._send(h11.InformationalResponse(status_code=100, headers=[], reason="Continue"))
        while True:
            event = self._next_event(min(whole, in_time, time.monotonic() + self._limits.timeout))
            match event:
                case h11.Data():
                    # Each byte extends the deadline, so a client below the minimum rate runs out of time.
                    in_time += len(event.data) / self._limits.slowest
                    yield bytes(event.data)
                case h11.EndOfMessage():
                    return
                case _:
                    raise RequestFailed(400, "The request ended early.")

    def _next_event(self, deadline: float) -> object:
        while True:
            try:
                event = self._protocol.next_event()
                if event is not h11.NEED_DATA:
                    return event
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                self._socket.settimeout(left)
                self._protocol.receive_data(self._socket.recv(_PIECE))
            except TimeoutError:
                raise RequestFailed(408, "The request took too long.") from None
            except h11.RemoteProtocolError as error:
                raise RequestFailed(error.error_status_hint, f"{str(error).rstrip('.')}.") from None

    def _linger(self) -> None:
        """Read a little more from the client. A client that is cut off while it sends would lose the response."""
        deadline, rest = time.monotonic() + _LINGER_SECONDS, _LINGER_BYTES
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            while rest > 0 and (left := deadline - time.monotonic()) > 0:
                self._socket.settimeout(left)
                received = self._socket.recv(_PIECE)
                if not received:
                    break
                rest -= len(received)
