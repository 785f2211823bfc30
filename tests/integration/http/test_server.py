"""The HTTP server without a host: it follows the protocol and enforces its limits for every client."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection

import pytest

from postroom.http.connection import ConnectionLimits
from postroom.http.event_loop import EventLoopThread, WorkerPool
from postroom.http.messages import Request, Response
from postroom.http.server import HttpServer
from postroom.temporary_bodies import Spool
from tests.support.http_server import connect_by_tls, connect_from, echo, exchange, run_server, run_tls_server
from tests.support.waiting import PATIENCE, wait_until


@pytest.fixture
def workers() -> Iterator[WorkerPool]:
    workers = WorkerPool(threads=4, max_waiting=2)
    yield workers
    workers.close()


def test_requests_are_answered_on_one_connection_and_on_many() -> None:
    with run_server() as server:
        connection = HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        for size in (0, 5, 300_000):
            connection.request("POST", "/a/b?c=d", body=b"x" * size)
            answer = json.loads(connection.getresponse().read())
            expected = {"method": "POST", "path": "/a/b", "query": "c=d", "size": size, "remote": "127.0.0.1"}
            assert answer == expected
        connection.request("POST", "/", body=iter([b"abc", b"", b"defg"]), encode_chunked=True)
        assert json.loads(connection.getresponse().read())["size"] == 7
        connection.close()


def test_pipelined_requests_are_answered_in_order() -> None:
    one = b"POST /1 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab"
    last = b"GET /2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with run_server() as server:
        received = exchange(server, one + last)
    assert received.count(b"HTTP/1.1 200") == 2
    assert received.index(b'"/1"') < received.index(b'"/2"')


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nab", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: two\r\n\r\nab", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"POST / HTTP/1.1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX: %s\r\n\r\n" % (b"x" * 20_000), 431),
        (b"POST / HTTP/1.1\r\nHost: x\r\nX: %s" % (b"x" * 20_000), 431),
    ],
)
def test_invalid_http_is_rejected(sent: bytes, status: int) -> None:
    with run_server() as server:
        received = exchange(server, sent)
        assert received.startswith(b"HTTP/1.1 %d " % status), received
        assert b'"error"' in received


def test_a_body_that_is_shorter_than_announced_is_rejected() -> None:
    with (
        run_server() as server,
        closing(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)) as client,
    ):
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc")
        client.shutdown(socket.SHUT_WR)
        assert client.recv(65536).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    "sent", [b"POST / HT", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc"], ids=["head", "body"]
)
def test_a_client_that_is_too_slow_gets_408(sent: bytes) -> None:
    with run_server(limits=ConnectionLimits(timeout=0.2)) as server:
        assert exchange(server, sent).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    "limits",
    [ConnectionLimits(timeout=20, max_body_seconds=0.3), ConnectionLimits(timeout=0.3)],
    ids=["max_body_seconds", "min_bytes_per_second"],
)
def test_a_body_below_the_minimum_rate_is_rejected(limits: ConnectionLimits) -> None:
    with run_server(limits=limits) as server, closing(socket.create_connection(("127.0.0.1", server.port))) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
        ended = threading.Event()

        def trickle() -> None:
            with suppress(OSError):
                while not ended.wait(0.02):
                    client.sendall(b"x")

        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            assert client.recv(65536).startswith(b"HTTP/1.1 408 ")
        finally:
            ended.set()
            thread.join()


def test_an_answer_before_the_body_reaches_a_client_that_still_sends() -> None:
    async def refuse(request: Request) -> Response:
        return Response(status=413)

    with run_server(refuse) as server:
        connection = HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        connection.request("POST", "/", body=b"x" * 3_000_000)
        answer = connection.getresponse()
        assert answer.status == 413
        assert answer.headers["Connection"] == "close"
        connection.close()


def test_100_continue_is_sent_only_if_the_body_is_read() -> None:
    head = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"

    async def choose(request: Request) -> Response:
        return await echo(request) if request.path == "/wanted" else Response(status=404)

    with run_server(choose) as server:
        assert exchange(server, head % b"/unwanted").startswith(b"HTTP/1.1 404 ")
        with closing(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)) as client:
            client.sendall(head % b"/wanted")
            assert client.recv(65536).startswith(b"HTTP/1.1 100 ")
            client.sendall(b"abc")
            assert b'"size": 3' in client.recv(65536)


def test_an_exception_of_the_handler_is_a_500_and_the_server_continues() -> None:
    async def fail(request: Request) -> Response:
        if request.path == "/fail":
            raise RuntimeError("no")
        return await echo(request)

    with run_server(fail) as server:
        connection = HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        for path, status in (("/fail", 500), ("/", 200)):
            connection.request("GET", path)
            answer = connection.getresponse()
            assert answer.status == status
            answer.read()
        connection.close()


def test_connections_above_the_limit_wait() -> None:
    with run_server(limits=ConnectionLimits(max_connections=1, idle_seconds=20)) as server:
        first = HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        first.request("GET", "/first")
        first.getresponse().read()
        second = HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        second.request("GET", "/second")
        first.close()
        assert json.loads(second.getresponse().read())["path"] == "/second"
        second.close()


def test_stop_finishes_requests_in_progress_and_closes_idle_connections(workers: WorkerPool) -> None:
    entered, release = threading.Event(), threading.Event()

    def work() -> None:
        entered.set()
        assert release.wait(PATIENCE)

    async def wait(request: Request) -> Response:
        await workers.run(work)
        return await echo(request)

    loop = EventLoopThread()
    server = HttpServer("127.0.0.1", 0, wait, loop=loop, workers=workers)
    server.start()
    idle = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
    busy = HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    busy.request("GET", "/busy")
    assert entered.wait(PATIENCE)
    stopping = threading.Thread(target=server.stop, args=(PATIENCE,))
    stopping.start()
    assert idle.recv(1) == b""
    release.set()
    answer = busy.getresponse()
    assert answer.status == 200
    assert answer.headers["Connection"] == "close"
    stopping.join(PATIENCE)
    assert not stopping.is_alive()

    def refused() -> bool:
        try:
            socket.create_connection(("127.0.0.1", server_port), timeout=1).close()
        except OSError:
            return True
        return False

    server_port = busy.port
    wait_until(refused, what="a closed port")
    idle.close()
    busy.close()
    loop.close()


CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_slow_connections_of_one_client_do_not_lock_out_other_clients() -> None:
    with run_server(limits=ConnectionLimits(max_connections=20, client_connections=15)) as server, ExitStack() as stack:
        slow = [stack.enter_context(connect_from(server, "127.0.0.1")) for _ in range(30)]
        for client in slow:
            with suppress(OSError):  # rejected already
                client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nx")
        honest = stack.enter_context(connect_from(server, "127.0.0.2"))
        honest.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab")
        assert honest.recv(65536).startswith(b"HTTP/1.1 200 ")
        rejected = slow[-1].recv(65536)
        assert rejected.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: " in rejected
        for client in slow:
            client.close()
        # The connections that have ended do not count.
        assert exchange_until(server, b"GET / HTTP/1.0\r\n\r\n", b" 200 ")


def exchange_until(server: HttpServer, sent: bytes, expected: bytes) -> bool:
    """Repeat a request until its response contains the expected bytes."""
    return wait_until(lambda: expected in exchange(server, sent), what="an accepted connection")


def test_a_thread_that_cannot_be_started_costs_one_request(
    monkeypatch: pytest.MonkeyPatch, workers: WorkerPool
) -> None:
    start_thread = threading.Thread.start
    failures = iter([True])

    def start(thread: threading.Thread) -> None:
        if next(failures, False):
            raise RuntimeError("can't start new thread")
        start_thread(thread)

    async def work(request: Request) -> Response:
        await workers.run(int)
        return await echo(request)

    with run_server(work, ConnectionLimits(max_connections=1, client_connections=1)) as server:
        monkeypatch.setattr(threading.Thread, "start", start)
        request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        received = exchange(server, request)
        assert received.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: " in received
        assert exchange_until(server, request, b" 200 ")


def test_one_byte_chunks_are_read_together() -> None:
    pieces: list[int] = []

    async def count(request: Request) -> Response:
        pieces.extend([len(piece) async for piece in request.body])
        return Response(status=200)

    with run_server(count) as server:
        received = exchange(server, CHUNKED + b"1\r\nx\r\n" * 4_000 + b"0\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 200 ")
    assert sum(pieces) == 4_000
    assert len(pieces) < 400


def test_many_small_chunks_are_rejected() -> None:
    with run_server() as server, connect_from(server, "127.0.0.1") as client:
        client.sendall(CHUNKED)
        with suppress(OSError):  # the server closes the connection
            for _ in range(100):
                client.sendall(b"1\r\nx\r\n" * 1_000)
        assert client.recv(65536).startswith(b"HTTP/1.1 400 ")


def test_small_chunks_are_accepted_if_the_average_is_large_enough() -> None:
    body = b"1\r\nx\r\n" * 5_000 + (b"20\r\n" + b"y" * 32 + b"\r\n") * 5_000
    with run_server() as server:
        assert b'"size": 165000' in exchange(server, CHUNKED + body + b"0\r\n\r\n")


def test_a_head_request_gets_the_head_of_its_response() -> None:
    with run_server() as server:
        received = exchange(server, b"HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 200 ")
    assert received.endswith(b"\r\n\r\n")


def test_a_response_with_a_large_body_is_sent_in_pieces() -> None:
    spool = Spool(max_in_memory=10)
    content = bytes(number % 251 for number in range(3_000_000))
    spool.write(content)

    async def answer(request: Request) -> Response:
        return Response(status=200, body=spool.body, headers={"Content-Type": "text/plain"})

    with run_server(answer) as server:
        connection = HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        for _ in range(2):
            connection.request("GET", "/")
            received = connection.getresponse()
            assert received.headers["Content-Type"] == "text/plain"
            assert received.read() == content
        connection.close()


def test_a_client_that_does_not_read_its_response_is_disconnected() -> None:
    sent = Spool(max_in_memory=10)
    sent.write(bytes(50_000_000))

    entered = threading.Event()

    async def answer(request: Request) -> Response:
        entered.set()
        return Response(status=200, body=sent.body)

    with run_server(answer, ConnectionLimits(timeout=0.2)) as server, connect_from(server, "127.0.0.1") as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert entered.wait(PATIENCE)
        wait_until(lambda: not server.connections, what="the end of the connection")


def test_a_full_worker_pool_admits_no_requests() -> None:
    entered, released = threading.Semaphore(0), threading.Event()
    workers = WorkerPool(threads=1, max_waiting=1)

    async def work(request: Request) -> Response:
        workers.check_capacity()
        entered.release()
        await workers.run(released.wait, PATIENCE)
        return Response(status=200)

    request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with run_server(work, workers=workers) as server, ExitStack() as stack:
        admitted = [stack.enter_context(connect_from(server, "127.0.0.1")) for _ in range(2)]
        for client in admitted:
            client.sendall(request)
            assert entered.acquire(timeout=PATIENCE)
        rejected = exchange(server, request)
        assert rejected.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: 1\r\n" in rejected
        released.set()
        for client in admitted:
            assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert exchange(server, request).startswith(b"HTTP/1.1 200 ")


def test_a_slow_tls_handshake_ends_the_connection() -> None:
    with run_tls_server(limits=ConnectionLimits(timeout=0.2)) as server, connect_from(server, "127.0.0.1") as client:
        client.sendall(b"\x16\x03\x01")  # the start of a handshake
        assert client.recv(1) == b""


def test_a_slow_head_over_tls_gets_408() -> None:
    with run_tls_server(limits=ConnectionLimits(timeout=0.5)) as server:

        def is_answered() -> bool:
            """Send the start of a head. On a slow machine the handshake may take longer than the timeout."""
            with suppress(OSError), connect_by_tls(server) as client:
                client.sendall(b"POST / HT")
                return client.recv(65536).startswith(b"HTTP/1.1 408 ")
            return False

        wait_until(is_answered)


def test_large_bodies_over_tls_are_received_and_sent() -> None:
    content = bytes(number % 251 for number in range(3_000_000))

    async def answer(request: Request) -> Response:
        spool = Spool(max_in_memory=10)
        async for piece in request.body:
            spool.write(piece)
        return Response(status=200, body=spool.body)

    with run_tls_server(answer) as server, connect_by_tls(server) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 3000000\r\n\r\n" + content)
        received = b""
        while piece := client.recv(65536):
            received += piece
    assert received.endswith(b"\r\n\r\n" + content)
