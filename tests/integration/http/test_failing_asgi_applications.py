"""A client of an ASGI application that fails gets an error or an incomplete response."""

from __future__ import annotations

import asyncio
import http.client
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import closing

import pytest

from tests.support.asgi_server import (
    LAST_GET,
    OK,
    Receive,
    Recorder,
    Send,
    body,
    exchange,
    serve,
)
from tests.support.http_server import receive_all
from tests.support.waiting import PATIENCE, wait_until


async def fail(receive: Receive, send: Send) -> None:
    raise ValueError("broken")


async def forget(receive: Receive, send: Send) -> None:
    await receive()


async def send_nothing(receive: Receive, send: Send) -> None:
    await send(OK)


async def split_the_response(receive: Receive, send: Send) -> None:
    await send({**OK, "headers": [(b"location", b"/\r\nset-cookie: a=1")]})
    await send(body(b""))


async def send_a_body_first(receive: Receive, send: Send) -> None:
    await send(body(b"x"))


@pytest.mark.parametrize("respond", [fail, forget, send_nothing, split_the_response, send_a_body_first])
def test_an_application_that_fails_before_its_response_gets_500(
    respond: Callable[[Receive, Send], Awaitable[None]], caplog: pytest.LogCaptureFixture
) -> None:
    with serve(Recorder(respond)) as server:
        received = exchange(server, LAST_GET)
    assert received.startswith(b"HTTP/1.1 500 ")
    assert b"set-cookie" not in received
    assert [record.levelno for record in caplog.records if record.name == "postroom.http.asgi"] == [logging.ERROR]


def test_an_application_that_fails_during_its_response_leaves_it_incomplete() -> None:
    async def respond(receive: Receive, send: Send) -> None:
        await send(OK)
        await send(body(b"first", more=True))
        raise ValueError("broken")

    with serve(Recorder(respond)) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        with closing(connection):
            connection.request("GET", "/")
            with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
                connection.getresponse().read()


@pytest.mark.parametrize("fails", [False, True])
def test_an_application_may_still_wait_for_a_body_when_it_is_answered(
    fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It fails, or the server stops."""

    async def respond(receive: Receive, send: Send) -> None:
        pending = asyncio.ensure_future(receive())
        await asyncio.sleep(0)
        if fails:
            raise ValueError("broken")
        await pending

    app = Recorder(respond)
    with closing(socket.socket()) as client:
        with serve(app) as server:
            client.settimeout(PATIENCE)
            client.connect(("127.0.0.1", server.port))
            client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n")
            wait_until(lambda: app.scopes, what="the request")
            if fails:
                assert receive_all(client).startswith(b"HTTP/1.1 500 ")
        if not fails:
            assert receive_all(client).startswith(b"HTTP/1.1 503 ")
    assert app.types == ["http.disconnect"]
    assert [record for record in caplog.records if record.name == "postroom.http.server"] == []
