"""An HTTP server without a host, and clients that send bytes to it."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager

import trustme

from postroom.http.connection import ConnectionLimits
from postroom.http.event_loop import EventLoopThread, WorkerPool
from postroom.http.messages import Request, Response
from postroom.http.server import HttpServer, RequestHandler
from tests.support.waiting import PATIENCE


async def echo(request: Request) -> Response:
    """Return the received request."""
    size = sum([len(piece) async for piece in request.body])
    content = {"method": request.method, "path": request.path, "query": request.query, "size": size}
    return Response(status=200, content={**content, "remote": request.remote})


@contextmanager
def run_server(
    handle: RequestHandler = echo,
    limits: ConnectionLimits | None = None,
    workers: WorkerPool | None = None,
    tls: ssl.SSLContext | None = None,
) -> Iterator[HttpServer]:
    loop = EventLoopThread()
    workers = workers or WorkerPool(threads=1, max_waiting=0)
    server = HttpServer("127.0.0.1", 0, handle, loop=loop, workers=workers, limits=limits, tls=tls)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        loop.close()
        workers.close()


@contextmanager
def run_tls_server(handle: RequestHandler = echo, limits: ConnectionLimits | None = None) -> Iterator[HttpServer]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    with run_server(handle, limits, tls=context) as server:
        yield server


def connect_from(server: HttpServer, address: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE, source_address=(address, 0))


def connect_by_tls(server: HttpServer) -> ssl.SSLSocket:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(connect_from(server, "127.0.0.1"))


def receive_all(client: socket.socket) -> bytes:
    """Return what the server sends up to the close of the connection."""
    received = b""
    while piece := client.recv(65536):
        received += piece
    return received


def exchange(server: HttpServer, sent: bytes) -> bytes:
    """Send bytes and return the response up to the close of the connection."""
    with closing(connect_from(server, "127.0.0.1")) as client:
        client.sendall(sent)
        return receive_all(client)
