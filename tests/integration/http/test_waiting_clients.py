"""Clients that wait for a response hold no thread. They are answered, or told that there will be no answer."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable
from concurrent.futures import Future
from contextlib import ExitStack

import pytest

from postroom.http.connection import ClientProtocol, ConnectionLimits, HttpConnection
from postroom.http.event_loop import WorkerPool
from postroom.http.messages import Request, Response, StreamedResponse
from tests.support.http_server import connect_by_tls, connect_from, run_server, run_tls_server
from tests.support.waiting import wait_until

LIMITS = ConnectionLimits(client_connections=1_500)


class Waiting:
    """A handler whose clients wait. ``futures`` are the responses by path."""

    def __init__(self) -> None:
        self.futures: dict[str, Future[Response]] = {}

    async def __call__(self, request: Request) -> Awaitable[Response]:
        future: Future[Response] = Future()
        self.futures[request.path] = future
        return asyncio.wrap_future(future)

    def wait_for(self, number: int) -> None:
        wait_until(lambda: len(self.futures) == number, what=f"{number} waiting clients")


def send(client: socket.socket, path: str) -> None:
    client.sendall(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path.encode())


def read_response(client: socket.socket) -> bytes:
    received = b""
    while b"}\n" not in received:
        piece = client.recv(65536)
        assert piece
        received += piece
    return received


def test_a_thousand_waiting_clients_use_as_many_threads_as_ten() -> None:
    handler = Waiting()
    with run_server(handler, LIMITS) as server, ExitStack() as stack:
        clients: list[socket.socket] = []
        threads: list[int] = []
        for total in (10, 1_000):
            while len(clients) < total:
                clients.append(stack.enter_context(connect_from(server, "127.0.0.1")))
                send(clients[-1], f"/{len(clients) - 1}")
            handler.wait_for(total)
            threads.append(threading.active_count())
        assert threads[0] == threads[1]
        for path, future in reversed(handler.futures.items()):
            future.set_result(Response(status=200, content={"path": path}))
        for number, client in enumerate(clients):
            assert b'{"path": "/%d"}' % number in read_response(client)


def test_a_connection_can_be_used_again_after_a_wait() -> None:
    handler = Waiting()
    with run_server(handler) as server, connect_from(server, "127.0.0.1") as client:
        send(client, "/1")
        handler.wait_for(1)
        send(client, "/2")  # before the first response
        handler.futures["/1"].set_result(Response(status=200, content={"first": 1}))
        assert b'"first"' in read_response(client)
        handler.wait_for(2)
        handler.futures["/2"].set_result(Response(status=200, content={"second": 2}))
        assert b'"second"' in read_response(client)


@pytest.mark.parametrize("how", ["close", "shutdown", "reset"])
def test_the_response_is_cancelled_if_the_client_disconnects(how: str) -> None:
    handler = Waiting()
    with run_server(handler) as server, connect_from(server, "127.0.0.1") as client:
        send(client, "/")
        handler.wait_for(1)
        if how == "shutdown":
            client.shutdown(socket.SHUT_WR)
        elif how == "reset":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.close()
        else:
            client.close()
        wait_until(handler.futures["/"].cancelled, what="a cancelled response")
        wait_until(lambda: not server.connections, what="the end of the connection")
        assert not handler.futures["/"].set_running_or_notify_cancel()


def test_a_wait_that_starts_after_the_client_has_disconnected_can_clean_up() -> None:
    started, disconnected, cleaned_up = threading.Event(), threading.Event(), threading.Event()

    async def wait() -> Response:
        response: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        try:
            return await response
        finally:
            cleaned_up.set()

    async def handle(request: Request) -> Awaitable[Response]:
        started.set()
        while not disconnected.is_set():
            await asyncio.sleep(0)
        for _ in range(10):  # the event loop reads the end of the connection
            await asyncio.sleep(0)
        return wait()

    with run_server(handle) as server, connect_from(server, "127.0.0.1") as client:
        send(client, "/")
        wait_until(started.is_set, what="the request")
        client.shutdown(socket.SHUT_WR)
        disconnected.set()
        wait_until(lambda: not server.connections, what="the end of the connection")
        assert cleaned_up.is_set()


def test_a_wait_that_is_cancelled_before_its_first_step_can_clean_up() -> None:
    cleaned_up: list[bool] = []

    async def wait() -> Response:
        response: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        try:
            return await response
        finally:
            cleaned_up.append(True)

    async def cancel(accepted: socket.socket) -> Response | StreamedResponse | None:
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
        transport, callbacks = await loop.create_connection(lambda: ClientProtocol(reader), sock=accepted)
        workers = WorkerPool(threads=1, max_waiting=0)
        connection = HttpConnection(reader, transport, callbacks, remote="", limits=LIMITS, workers=workers)
        loop.call_soon(connection.cancel_response)  # before the first step of the wait
        try:
            return await connection.wait_for_response(wait())
        finally:
            transport.close()
            workers.close()

    accepted, client = socket.socketpair()
    with client:
        response = asyncio.run(cancel(accepted))
    assert response is not None
    assert response.status == 503
    assert cleaned_up


def test_a_response_that_was_claimed_before_the_client_disconnected_is_not_cancelled() -> None:
    """The owner of the response decides with set_running_or_notify_cancel whether it is sent."""
    handler = Waiting()
    with run_server(handler) as server, connect_from(server, "127.0.0.1") as client:
        send(client, "/")
        handler.wait_for(1)
        future = handler.futures["/"]
        assert future.set_running_or_notify_cancel()
        client.close()
        wait_until(lambda: not server.connections, what="the end of the connection")
        future.set_result(Response(status=200))


def test_waiting_clients_get_503_when_the_server_stops() -> None:
    handler = Waiting()
    with run_server(handler) as server, ExitStack() as stack:
        clients = [stack.enter_context(connect_from(server, "127.0.0.1")) for _ in range(5)]
        for number, client in enumerate(clients):
            send(client, f"/{number}")
        handler.wait_for(5)
        server.stop()
        for client in clients:
            received = read_response(client)
            assert received.startswith(b"HTTP/1.1 503 ")
            assert b"Retry-After: 5\r\n" in received
            assert b"Connection: close\r\n" in received
        assert all(future.cancelled() for future in handler.futures.values())


def test_a_response_that_fails_is_a_500() -> None:
    handler = Waiting()
    with run_server(handler) as server, connect_from(server, "127.0.0.1") as client:
        send(client, "/")
        handler.wait_for(1)
        handler.futures["/"].set_exception(RuntimeError("no"))
        assert read_response(client).startswith(b"HTTP/1.1 500 ")


def test_a_response_can_be_set_on_the_event_loop() -> None:
    waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[Response]]] = []

    async def handle(request: Request) -> Awaitable[Response]:
        loop = asyncio.get_running_loop()
        waiting.append((loop, loop.create_future()))
        return waiting[-1][1]

    with run_server(handle) as server, connect_from(server, "127.0.0.1") as client:
        send(client, "/")
        wait_until(lambda: waiting, what="a waiting client")
        loop, future = waiting[0]
        loop.call_soon_threadsafe(future.set_result, Response(status=200, content={"answer": 42}))
        assert b'{"answer": 42}' in read_response(client)


def test_the_response_is_cancelled_if_the_client_disconnects_from_tls() -> None:
    handler = Waiting()
    with run_tls_server(handler) as server:
        with connect_by_tls(server) as client:
            send(client, "/")
            handler.wait_for(1)
        wait_until(handler.futures["/"].cancelled, what="a cancelled response")
