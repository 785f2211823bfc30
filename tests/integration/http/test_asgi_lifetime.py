"""The start, the end and the limits of an ASGI application and of its requests."""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing

import pytest

from postroom.http.asgi import StartupFailed
from postroom.http.connection import ConnectionLimits
from tests.support.asgi_server import (
    GET,
    LAST_GET,
    OK,
    Receive,
    Recorder,
    Scope,
    Send,
    body,
    exchange,
    read_until,
    serve,
)
from tests.support.http_server import connect_from, receive_all
from tests.support.waiting import PATIENCE, wait_until


def test_an_application_starts_before_its_first_request_and_shuts_down_after_its_last_one() -> None:
    events: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            events.append(f"request with {scope['state']['pool']}")
            scope["state"]["pool"] = "changed"
            await send(OK)
            await send(body(b"done\n"))
            return
        assert scope["type"] == "lifespan"
        assert (await receive())["type"] == "lifespan.startup"
        scope["state"]["pool"] = "a pool"
        events.append("startup")
        await send({"type": "lifespan.startup.complete"})
        assert (await receive())["type"] == "lifespan.shutdown"
        events.append("shutdown")
        await send({"type": "lifespan.shutdown.complete"})

    with serve(app) as server:
        for _ in range(2):
            exchange(server, LAST_GET)
    assert events == ["startup", "request with a pool", "request with a pool", "shutdown"]


def test_an_application_that_cannot_start_is_reported() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})

    with pytest.raises(StartupFailed, match="no database"), serve(app):
        pass


def test_a_server_that_stops_answers_the_clients_of_an_application_that_waits() -> None:
    async def respond(receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    app = Recorder(respond)
    with closing(socket.socket()) as client:
        with serve(app) as server:
            client.settimeout(PATIENCE)
            client.connect(("127.0.0.1", server.port))
            client.sendall(GET)
            wait_until(lambda: app.received, what="the request")
        assert receive_all(client).startswith(b"HTTP/1.1 503 ")
    assert app.types == ["http.request", "http.disconnect"]


def test_an_application_that_ignores_the_end_is_cancelled() -> None:
    ended: list[BaseException] = []

    async def respond(receive: Receive, send: Send) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            ended.append(error)
            raise

    app = Recorder(respond)
    with serve(app) as server, closing(connect_from(server, "127.0.0.1")) as client:
        client.sendall(GET)
        wait_until(lambda: app.scopes, what="the request")
    assert len(ended) == 1


@pytest.mark.parametrize("has_started", [False, True])
def test_an_application_learns_that_its_client_has_disconnected(has_started: bool) -> None:
    async def respond(receive: Receive, send: Send) -> None:
        await receive()
        if has_started:
            await send(OK)
            await send(body(b"first", more=True))
        await receive()
        await send(OK if not has_started else body(b"second"))

    app = Recorder(respond)
    with serve(app) as server:
        with closing(connect_from(server, "127.0.0.1")) as client:
            client.sendall(GET)
            wait_until(lambda: app.received, what="the request")
            if has_started:
                read_until(client, b"first\r\n")
        wait_until(lambda: app.errors, what="the end of the application")
        assert app.types == ["http.request", "http.disconnect"]
        assert isinstance(app.errors[0], OSError)
        wait_until(lambda: not server.connections, what="the end of the connection")


def test_receive_returns_a_disconnect_after_the_response() -> None:
    async def respond(receive: Receive, send: Send) -> None:
        pending = asyncio.ensure_future(receive())  # waits for a body that does not come
        await asyncio.sleep(0)
        await send(OK)
        await send(body(b"early"))
        await pending
        await receive()

    app = Recorder(respond)
    with serve(app) as server, closing(connect_from(server, "127.0.0.1")) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n")
        received = receive_all(client)
        wait_until(lambda: len(app.received) == 2, what="the end of the application")
    assert received.endswith(b"early")
    assert b"Connection: close\r\n" in received
    assert app.types == ["http.disconnect", "http.disconnect"]


def test_an_application_that_sends_faster_than_its_client_reads_has_to_wait() -> None:
    sent = 0

    async def respond(receive: Receive, send: Send) -> None:
        nonlocal sent
        await send(OK)
        while True:
            await send(body(bytes(1_000_000), more=True))
            sent += 1

    app = Recorder(respond)
    with serve(app, ConnectionLimits(timeout=0.4)) as server, closing(connect_from(server, "127.0.0.1")) as client:
        client.sendall(GET)
        wait_until(lambda: app.errors, what="the end of a client that does not read")
        assert isinstance(app.errors[0], OSError)
        assert sent < 30
        wait_until(lambda: not server.connections, what="the end of the connection")


def test_the_limits_of_the_server_apply_to_the_body_of_a_request() -> None:
    app = Recorder()
    with serve(app, ConnectionLimits(timeout=0.4)) as server:
        received = exchange(server, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab")
        wait_until(lambda: app.errors, what="the end of the application")
    assert received.startswith(b"HTTP/1.1 408 ")
    assert app.types == ["http.request", "http.disconnect"]


def test_an_ambiguous_body_ends_its_request() -> None:
    app = Recorder()
    with serve(app) as server:
        received = exchange(
            server, b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\n\r\n" + LAST_GET
        )
    assert received.startswith(b"HTTP/1.1 400 ")
    assert received.count(b"HTTP/1.1 ") == 1


def test_a_websocket_is_refused() -> None:
    app = Recorder()
    with serve(app) as server:
        received = exchange(
            server,
            b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        )
    assert received.startswith(b"HTTP/1.1 501 ")
    assert b"WebSockets are not supported." in received
    assert app.scopes == []
