"""Slow clients: every phase of a connection has a time limit, and a slow client occupies neither threads nor the
connections of other addresses."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress

import pytest

from postroom.http.connection import ConnectionLimits
from postroom.http.event_loop import WorkerPool
from postroom.http.messages import Request, Response
from postroom.temporary_bodies import Spool
from tests.support.http_server import connect_by_tls, connect_from, receive_all, run_server, run_tls_server
from tests.support.waiting import wait_until

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
WHOLE = HEAD + b"Content-Length: 2\r\n\r\nab"
#: What a client sends at once, and what it sends again and again.
PHASES = {
    "before the first request": (b"", b""),
    "request line": (b"POST /", b"x"),
    "name of a header": (HEAD, b"x"),
    "value of a header": (HEAD + b"X: ", b"x"),
    "headers": (HEAD, b"X: y\r\n"),
    "body": (HEAD + b"Content-Length: 1000000\r\n\r\n", b"x"),
    "size of a chunk": (CHUNKED, b"1"),
    "extension of a chunk": (CHUNKED + b"5;", b"x"),
    "data of a chunk": (CHUNKED + b"ffffff\r\n", b"x"),
    "chunks": (CHUNKED, b"1\r\nx\r\n"),
    "end of a chunk": (CHUNKED + b"1\r\nx\r", b""),
    "trailers": (CHUNKED + b"0\r\n", b"X: y\r\n"),
    "between requests": (WHOLE, b""),
    "second request": (WHOLE + b"POST", b"x"),
}
LIMITS = ConnectionLimits(timeout=0.4, idle_seconds=0.4)


@contextmanager
def trickle(client: socket.socket, piece: bytes) -> Iterator[None]:
    """Send a piece again and again, until the end of the block."""
    ended = threading.Event()

    def send() -> None:
        with suppress(OSError):
            while piece and not ended.wait(0.02):
                client.sendall(piece)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def read_to_the_end(client: socket.socket) -> bytes:
    try:
        return receive_all(client)
    except ConnectionResetError:
        return b""


@pytest.mark.parametrize("phase", PHASES)
def test_a_slow_client_is_disconnected(phase: str) -> None:
    start, piece = PHASES[phase]
    with run_server(limits=LIMITS) as server, closing(connect_from(server, "127.0.0.1")) as client:
        client.sendall(start)
        with trickle(client, piece):
            received = read_to_the_end(client)
        wait_until(lambda: not server.connections, what="the end of the connection")
    assert received.count(b"HTTP/1.1 200 ") == start.startswith(WHOLE)
    if start not in (b"", WHOLE):
        assert b"HTTP/1.1 408 " in received


@pytest.mark.parametrize("phase", ["before the first request", "value of a header", "body", "trailers"])
def test_a_slow_client_is_disconnected_from_tls(phase: str) -> None:
    start, piece = PHASES[phase]
    with run_tls_server(limits=LIMITS) as server:
        # On a slow machine the handshake may take longer than the timeout.
        with suppress(OSError), closing(connect_by_tls(server)) as client:
            client.sendall(start)
            with trickle(client, piece):
                read_to_the_end(client)
        wait_until(lambda: not server.connections, what="the end of the connection")


def test_a_slow_handshake_is_ended() -> None:
    with run_tls_server(limits=LIMITS) as server, closing(connect_from(server, "127.0.0.1")) as client:
        client.sendall(b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03")  # the start of a long ClientHello
        with trickle(client, b"x"):
            assert read_to_the_end(client) == b""
        wait_until(lambda: not server.connections, what="the end of the connection")


def test_a_client_that_reads_its_response_slowly_is_disconnected() -> None:
    content = Spool(max_in_memory=10)
    content.write(bytes(100_000_000))

    async def answer(request: Request) -> Response:
        return Response(status=200, body=content.body)

    limits = ConnectionLimits(max_body_seconds=0.5)
    with run_server(answer, limits) as server, closing(connect_from(server, "127.0.0.1")) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        pause = threading.Event()
        size = 0
        with suppress(ConnectionResetError):
            while piece := client.recv(65536):
                size += len(piece)
                pause.wait(0.01)
        wait_until(lambda: not server.connections, what="the end of the connection")
    assert size < 100_000_000


def test_a_client_that_sends_requests_and_reads_nothing_is_disconnected() -> None:
    content = Spool(max_in_memory=10)
    content.write(bytes(1_000_000))

    async def answer(request: Request) -> Response:
        return Response(status=200, body=content.body)

    with run_server(answer, LIMITS) as server, closing(connect_from(server, "127.0.0.1")) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 1_000)
        wait_until(lambda: not server.connections, what="the end of the connection")


def test_slow_clients_of_one_address_in_every_phase_do_not_delay_another() -> None:
    workers = WorkerPool(threads=1, max_waiting=0)

    async def work(request: Request) -> Response:
        async for _ in request.body:
            pass
        workers.check_capacity()
        await workers.run(int)
        return Response(status=200)

    limits = ConnectionLimits(client_connections=len(PHASES) * 2, max_connections=len(PHASES) * 2 + 1)
    with run_server(work, limits, workers) as server, ExitStack() as stack:
        for start, _ in PHASES.values():
            for _ in range(2):
                client = stack.enter_context(closing(connect_from(server, "127.0.0.1")))
                client.sendall(start)
                if start.startswith(WHOLE):  # the only worker must be free for the others
                    assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
        wait_until(lambda: server.connections == limits.client_connections, what="the slow clients")
        rejected = stack.enter_context(closing(connect_from(server, "127.0.0.1")))
        assert rejected.recv(65536).startswith(b"HTTP/1.1 503 ")
        honest = stack.enter_context(closing(connect_from(server, "127.0.0.2")))
        for _ in range(20):
            honest.sendall(WHOLE)
            assert honest.recv(65536).startswith(b"HTTP/1.1 200 ")
