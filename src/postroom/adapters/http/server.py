"""A small HTTP/1.1 server: one thread per connection, with limits for all clients and for each client.

    server = HttpServer("127.0.0.1", 8080, handle)
    server.start()

The handler processes requests and is called from many threads.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from postroom.adapters.http.connection import (
    ConnectionLimits,
    HttpConnection,
    Request,
    RequestFailed,
    Response,
    build_error_response,
)

_log = logging.getLogger(__name__)

_ACCEPT_SECONDS = 0.2
_RETRY_SECONDS = 5
_REJECTION = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: %d\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\nConnection: close\r\n\r\n"
)

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
        limits: ConnectionLimits | None = None,
    ) -> None:
        self._handle = handle
        self._tls = tls
        self._limits = limits or ConnectionLimits()
        self._stopping = threading.Event()
        self._free_connections = threading.Semaphore(self._limits.max_connections)
        self._lock = threading.Lock()
        self._per_client: Counter[str] = Counter()
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
                if not self._free_connections.acquire(timeout=_ACCEPT_SECONDS):
                    continue
                try:
                    connected, address = self._listener.accept()
                except OSError as error:
                    self._free_connections.release()
                    if not isinstance(error, TimeoutError):
                        # For example, no free file descriptors until another connection ends.
                        _log.warning("a connection could not be accepted: %s", error)
                        self._stopping.wait(_ACCEPT_SECONDS)
                    continue
                remote = str(address[0])
                if self._admit(remote):
                    self._start_thread(connected, remote)
                else:
                    self._free_connections.release()
                    self._reject(connected, "There are too many connections from this address.")

    def _admit(self, remote: str) -> bool:
        """Count a connection of a client. Return False if the client has too many."""
        client = _identify_client(remote)
        with self._lock:
            if self._per_client[client] >= self._limits.client_connections:
                return False
            self._per_client[client] += 1
            return True

    def _release(self, remote: str, thread: threading.Thread) -> None:
        """Count a connection that has ended."""
        client = _identify_client(remote)
        with self._lock:
            self._threads.discard(thread)
            self._per_client[client] -= 1
            if not self._per_client[client]:
                del self._per_client[client]
        self._free_connections.release()

    def _start_thread(self, connected: socket.socket, remote: str) -> None:
        thread = threading.Thread(target=self._serve, args=(connected, remote), daemon=True)
        with self._lock:
            self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError as error:
            # No more threads or memory, until another connection ends.
            _log.warning("a connection from %s could not be served: %s", remote, error)
            self._release(remote, thread)
            self._reject(connected, "There are not enough resources for this connection.")
            self._stopping.wait(_ACCEPT_SECONDS)

    def _reject(self, connected: socket.socket, why: str) -> None:
        """Respond with 503 if that is possible at once, and close the connection."""
        with connected, suppress(OSError):
            if self._tls is None:
                connected.settimeout(0.0)
                body = json.dumps({"error": why}).encode() + b"\n"
                connected.sendall(_REJECTION % (_RETRY_SECONDS, len(body)) + body)
                connected.shutdown(socket.SHUT_WR)
                connected.recv(1 << 16)  # a close before the request is read would discard the response

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
            self._release(remote, threading.current_thread())

    def _serve_requests(self, connected: socket.socket, remote: str) -> None:
        connection = HttpConnection(connected, remote, self._limits)
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


def _identify_client(remote: str) -> str:
    """Return the address of a client. For IPv6 it is the network, because a client has all addresses of a /64."""
    address = ipaddress.ip_address(remote.partition("%")[0])
    if address.version == 4:
        return remote
    return str(address.ipv4_mapped or ipaddress.IPv6Network((address, 64), strict=False))
