"""A small HTTP/1.1 server on an event loop, with limits for all clients and for each client.

    server = HttpServer("127.0.0.1", 8080, handle, loop=EventLoopThread(), workers=workers)
    server.start()

The handler is a coroutine function that runs on the event loop:

    async def handle(request: Request) -> Response | Awaitable[Response]:
        stored = await workers.run(store, request)          # synchronous work
        return Response(status=202)                         # or: return asyncio.wrap_future(future)

A handler that returns an awaitable lets the client wait for the response. A waiting client holds no thread. The
awaitable is cancelled when the client disconnects, and some time after the server was stopped; the client gets a 503
then. Another thread resolves it with ``set_result`` of a ``concurrent.futures.Future``, or with
``call_soon_threadsafe`` of the loop. ``asgi.py`` has a handler that runs ASGI applications.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from postroom.http.connection import CLOSE_SECONDS, ClientProtocol, ConnectionLimits, HttpConnection
from postroom.http.event_loop import EventLoopThread, WorkerPool
from postroom.http.messages import Request, RequestFailed, Response, StreamedResponse, build_error_response

_log = logging.getLogger(__name__)

_ACCEPT_RETRY_SECONDS = 0.2
_RETRY_SECONDS = 5
_BUFFER_BYTES = 1 << 15
_REJECTION = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: %d\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\nConnection: close\r\n\r\n"
)

AnyResponse = Response | StreamedResponse
RequestHandler = Callable[[Request], Awaitable[AnyResponse | Awaitable[AnyResponse]]]


class HttpServer:
    """Listens between ``start`` and ``stop``."""

    def __init__(
        self,
        listen: str,
        port: int,
        handle: RequestHandler,
        *,
        loop: EventLoopThread,
        workers: WorkerPool,
        tls: ssl.SSLContext | None = None,
        limits: ConnectionLimits | None = None,
    ) -> None:
        self._handle = handle
        self._loop = loop
        self._workers = workers
        self._tls = tls
        self._limits = limits or ConnectionLimits()
        self._is_stopping = False
        self._per_client: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections: set[HttpConnection] = set()
        family = socket.AF_INET6 if ":" in listen else socket.AF_INET
        self._listener = socket.create_server((listen, port), family=family, backlog=128)
        self._listener.setblocking(False)
        self._port = int(self._listener.getsockname()[1])

    @property
    def port(self) -> int:
        """The port that the server listens on, even if it was started with port 0."""
        return self._port

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._tasks)

    def replace_tls(self, tls: ssl.SSLContext) -> None:
        """Use other certificates for new connections. If clients are asked for theirs, end the connections that were
        verified before, after their requests in progress."""
        self._loop.run(self._replace_tls(tls))

    def start(self) -> None:
        self._loop.run(self._start())

    def stop(self, within: float = 10.0, *, answer_within: float = 2.0) -> None:
        """Accept no more requests, and wait up to ``within`` seconds for requests in progress. Clients that still wait
        for their response after ``answer_within`` seconds get a 503."""
        self._loop.run(self._stop(within, min(within, answer_within)))

    async def _start(self) -> None:
        self._listen()

    async def _replace_tls(self, tls: ssl.SSLContext) -> None:
        self._tls = tls
        if tls.verify_mode != ssl.CERT_NONE:
            for connection in self._connections:
                connection.stop()

    async def _stop(self, within: float, answer_within: float) -> None:
        if not self._is_stopping:
            self._is_stopping = True
            self._pause_listening()
            self._listener.close()
        for connection in self._connections:
            connection.stop()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=answer_within)
        for connection in self._connections:
            connection.cancel_response()
        if self._tasks:
            _, unfinished = await asyncio.wait(self._tasks, timeout=within - answer_within)
            for task in unfinished:
                task.cancel()
            if unfinished:
                await asyncio.wait(unfinished)

    def _listen(self) -> None:
        """Accept connections if there are not too many."""
        if not self._is_stopping and len(self._tasks) < self._limits.max_connections:
            asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _pause_listening(self) -> None:
        asyncio.get_running_loop().remove_reader(self._listener)

    def _accept(self) -> None:
        """Accept one connection. The event loop calls this while clients wait to be accepted."""
        try:
            accepted, address = self._listener.accept()
        except BlockingIOError:
            return  # the client has given up
        except OSError as error:
            # For example, no free file descriptors until another connection ends.
            _log.warning("a connection could not be accepted: %s", error)
            self._pause_listening()
            asyncio.get_running_loop().call_later(_ACCEPT_RETRY_SECONDS, self._listen)
            return
        accepted.setblocking(False)
        remote = str(address[0])
        client = identify_client(remote)
        if self._per_client[client] >= self._limits.client_connections:
            self._reject(accepted, "There are too many connections from this address.")
            return
        self._per_client[client] += 1
        task = asyncio.get_running_loop().create_task(self._serve(accepted, remote))
        self._tasks.add(task)
        task.add_done_callback(partial(self._release, client))
        if len(self._tasks) >= self._limits.max_connections:
            self._pause_listening()

    def _release(self, client: str, task: asyncio.Task[None]) -> None:
        """Count a connection that has ended."""
        self._tasks.discard(task)
        self._per_client[client] -= 1
        if not self._per_client[client]:
            del self._per_client[client]
        self._listen()

    def _reject(self, accepted: socket.socket, why: str) -> None:
        """Respond with 503 if that is possible at once, and close the connection."""
        with accepted, suppress(OSError):
            if self._tls is None:
                body = json.dumps({"error": why}).encode() + b"\n"
                accepted.sendall(_REJECTION % (_RETRY_SECONDS, len(body)) + body)
                accepted.shutdown(socket.SHUT_WR)
                accepted.recv(1 << 16)  # a close before the request is read would discard the response

    async def _serve(self, accepted: socket.socket, remote: str) -> None:
        try:
            with accepted:
                connection = await self._open_connection(accepted, remote)
                self._connections.add(connection)
                try:
                    if not self._is_stopping:
                        await self._serve_requests(connection, remote)
                    await connection.close()
                finally:
                    self._connections.discard(connection)
                    connection.abort()
        except OSError as error:
            _log.debug("%s disconnected: %s", remote, error)
        except Exception:
            _log.exception("a connection from %s failed", remote)

    async def _open_connection(self, accepted: socket.socket, remote: str) -> HttpConnection:
        reader = asyncio.StreamReader(limit=_BUFFER_BYTES)
        callbacks = ClientProtocol(reader)
        tls = {"ssl_handshake_timeout": self._limits.timeout, "ssl_shutdown_timeout": CLOSE_SECONDS}
        transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
            lambda: callbacks, accepted, ssl=self._tls, **({} if self._tls is None else tls)
        )
        return HttpConnection(reader, transport, callbacks, remote=remote, limits=self._limits, workers=self._workers)

    async def _serve_requests(self, connection: HttpConnection, remote: str) -> None:
        while await connection.wait_for_request():
            status: int | None = None
            try:
                response = await self._respond(connection, remote)
                if response is None:
                    return
                has_next = await connection.send(response)
                status = response.status
            finally:
                connection.end_request(status)
            if not has_next:
                return

    async def _respond(self, connection: HttpConnection, remote: str) -> AnyResponse | None:
        """Return the response to the next request, or None if the client has disconnected."""
        try:
            response = await self._handle(await connection.read_head())
            return response if isinstance(response, AnyResponse) else await connection.wait_for_response(response)
        except RequestFailed as failed:
            return failed.response
        except Exception:
            _log.exception("a request from %s could not be handled", remote)
            return build_error_response(500, "An internal error occurred.")


def identify_client(remote: str) -> str:
    """Return the address of a client. For IPv6 it is the network, because a client has all addresses of a /64."""
    address = ipaddress.ip_address(remote.partition("%")[0])
    if address.version == 4:
        return remote
    return str(address.ipv4_mapped or ipaddress.IPv6Network((address, 64), strict=False))
