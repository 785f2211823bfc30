"""ASGI applications on the HTTP server."""

from __future__ import annotations

import asyncio
import http.client
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
import trustme

from postroom.http.asgi import Application, AsgiApplication, Message, StartupFailed
from postroom.http.connection import ConnectionLimits
from postroom.http.event_loop import EventLoopThread, WorkerPool
from postroom.http.server import HttpServer
from tests.support.http_server import connect_from, receive_all
from tests.support.waiting import PATIENCE, wait_until

Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Scope = Any
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
LAST_GET = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
OK: Message = {"type": "http.response.start", "status": 200, "headers": []}


def body(piece: bytes, *, more: bool = False) -> Message:
    return {"type": "http.response.body", "body": piece, "more_body": more}


@contextmanager
def serve(
    app: Application, limits: ConnectionLimits | None = None, tls: ssl.SSLContext | None = None
) -> Iterator[HttpServer]:
    loop, workers = EventLoopThread(), WorkerPool(threads=1, max_waiting=0)
    application = AsgiApplication(app)
    server = HttpServer("127.0.0.1", 0, application.handle, loop=loop, workers=workers, limits=limits, tls=tls)
    try:
        loop.run(application.start())
        server.start()
        yield server
    finally:
        server.stop(answer_within=0.1)
        loop.run(application.stop())
        loop.close()
        workers.close()


def exchange(server: HttpServer, sent: bytes) -> bytes:
    with closing(connect_from(server, "127.0.0.1")) as client:
        client.sendall(sent)
        return receive_all(client)


def read_until(client: socket.socket, end: bytes) -> bytes:
    received = b""
    while not received.endswith(end):
        piece = client.recv(65536)
        assert piece, received
        received += piece
    return received


class Recorder:
    """An application for HTTP without lifespan. It records the scopes and the messages that it receives."""

    def __init__(self, respond: Callable[[Receive, Send], Awaitable[None]] | None = None) -> None:
        self._respond = respond
        self.scopes: list[Scope] = []
        self.received: list[Message] = []
        self.errors: list[Exception] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        self.scopes.append(scope)

        async def record() -> Message:
            self.received.append(await receive())
            return self.received[-1]

        try:
            if self._respond is not None:
                await self._respond(record, send)
            else:
                while (await record()).get("more_body"):
                    pass
                await send(OK)
                await send(body(b"done\n"))
        except Exception as error:
            self.errors.append(error)
            raise

    @property
    def types(self) -> list[str]:
        return [message["type"] for message in self.received]


def test_the_scope_describes_the_request() -> None:
    app = Recorder()
    with serve(app) as server:
        exchange(
            server,
            b"PUT /a%20b/%C3%A9?q=%20&r HTTP/1.0\r\nHost: x\r\nX-Name: \xe9\r\nContent-Length: 2\r\n\r\nab",
        )
    (scope,) = app.scopes
    assert {key: scope[key] for key in ("type", "http_version", "method", "scheme", "root_path")} == {
        "type": "http",
        "http_version": "1.0",
        "method": "PUT",
        "scheme": "http",
        "root_path": "",
    }
    assert scope["asgi"] == {"version": "3.0", "spec_version": "2.4"}
    assert (scope["path"], scope["raw_path"]) == ("/a b/é", b"/a%20b/%C3%A9")
    assert scope["query_string"] == b"q=%20&r"
    assert (b"x-name", b"\xe9") in scope["headers"]
    assert scope["client"] == ("127.0.0.1", 0)
    assert scope["extensions"] == {}
    assert b"".join(message["body"] for message in app.received) == b"ab"


def test_a_connection_serves_several_requests() -> None:
    app = Recorder()
    with serve(app) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        with closing(connection):
            for content in (None, b"abc", None):
                connection.request("POST" if content else "GET", "/", content)
                response = connection.getresponse()
                assert (response.status, response.getheader("Content-Length"), response.read()) == (200, "5", b"done\n")
        wait_until(lambda: not server.connections, what="the end of the connection")
    assert len({id(scope) for scope in app.scopes}) == 3
    assert app.types == ["http.request"] * 4


def test_the_body_of_a_request_arrives_in_pieces() -> None:
    app = Recorder()
    with serve(app) as server, closing(connect_from(server, "127.0.0.1")) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nConnection: close\r\n\r\nab")
        wait_until(lambda: app.received, what="the first piece")
        assert app.received == [{"type": "http.request", "body": b"ab", "more_body": True}]
        client.sendall(b"cd")
        assert receive_all(client).endswith(b"done\n")
    assert b"".join(message["body"] for message in app.received) == b"abcd"
    assert not app.received[-1]["more_body"]


def test_a_receive_that_is_cancelled_loses_nothing() -> None:
    cancelled = 0

    async def respond(receive: Receive, send: Send) -> None:
        nonlocal cancelled
        while True:
            waiting = asyncio.ensure_future(receive())
            for _ in range(4):
                await asyncio.sleep(0)
            if waiting.cancel():
                cancelled += 1
            await asyncio.wait((waiting,))
            if not waiting.cancelled() and not waiting.result()["more_body"]:
                break
        await send(OK)
        await send(body(b"done\n"))

    app = Recorder(respond)
    with serve(app) as server:
        sent = b"1\r\nx\r\n" * 4_000 + b"0\r\n\r\n"
        received = exchange(
            server, b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + sent
        )
    assert received.endswith(b"done\n")
    assert cancelled
    assert sum(len(message["body"]) for message in app.received) == 4_000


def test_two_receives_at_the_same_time_get_each_piece_once() -> None:
    async def respond(receive: Receive, send: Send) -> None:
        await asyncio.gather(receive(), receive())
        await send(OK)
        await send(body(b"done\n"))

    app = Recorder(respond)
    with serve(app) as server, closing(connect_from(server, "127.0.0.1")) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\n")
        wait_until(lambda: app.scopes, what="the request")
        client.sendall(b"ab")
        assert receive_all(client).endswith(b"done\n")
    assert sorted(message["body"] for message in app.received) == [b"", b"ab"]


def test_a_response_without_a_length_is_sent_in_chunks_while_it_is_produced() -> None:
    async def respond(receive: Receive, send: Send) -> None:
        await send({**OK, "headers": [(b"set-cookie", b"a=1"), (b"set-cookie", b"b=2"), (b"date", b"today")]})
        await send(body(b"first", more=True))
        assert (await receive())["body"] == b"go"
        await send(body(b"second"))

    with serve(Recorder(respond)) as server, closing(connect_from(server, "127.0.0.1")) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n")
        received = read_until(client, b"5\r\nfirst\r\n")
        assert b"transfer-encoding: chunked" in received.lower()
        assert b"set-cookie: a=1\r\nset-cookie: b=2\r\n" in received
        assert received.lower().count(b"\r\ndate: ") == 1
        client.sendall(b"go")
        assert receive_all(client) == b"6\r\nsecond\r\n0\r\n\r\n"


def test_a_request_and_its_response_can_be_streamed_at_the_same_time() -> None:
    async def echo(receive: Receive, send: Send) -> None:
        await send({**OK, "headers": [(b"content-length", b"300000")]})
        while (message := await receive())["more_body"]:
            await send(body(message["body"], more=True))
        await send(body(b""))

    with serve(Recorder(echo)) as server, closing(connect_from(server, "127.0.0.1")) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n")
        received = b""
        for _ in range(30):
            client.sendall(b"x" * 10_000)
            received += client.recv(65536)
        received += receive_all(client)
    assert received.partition(b"\r\n\r\n")[2] == b"x" * 300_000


@pytest.mark.parametrize(
    ("method", "status", "length"), [("HEAD", 200, "7"), ("GET", 204, None), ("GET", 304, None), ("GET", 299, "5")]
)
def test_a_response_has_a_body_only_if_http_allows_it(method: str, status: int, length: str | None) -> None:
    async def respond(receive: Receive, send: Send) -> None:
        await send({**OK, "status": status, "headers": [(b"content-length", b"7")] if method == "HEAD" else []})
        await send(body(b"" if status in (204, 304) else b"12345"))

    with serve(Recorder(respond)) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        with closing(connection):
            for _ in range(2):  # the connection is usable afterwards
                connection.request(method, "/")
                response = connection.getresponse()
                assert (response.status, response.getheader("Content-Length")) == (status, length)
                assert response.read() == (b"12345" if status == 299 else b"")


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


def test_a_body_that_is_not_read_is_not_the_next_request() -> None:
    async def respond(receive: Receive, send: Send) -> None:
        await send(OK)
        await send(body(b"early"))

    app = Recorder(respond)
    with serve(app) as server:
        hidden = b"POST /hidden HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
        exchange(server, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(hidden), hidden))
    assert [scope["path"] for scope in app.scopes] == ["/"]


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


def test_the_certificate_of_a_client_is_in_the_scope() -> None:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_OPTIONAL
    issued = authority.issue_cert("client.example", common_name="contoso.example")
    app = Recorder()
    with serve(app, tls=context) as server:
        for certificate in (issued, None):
            client = ssl.create_default_context()
            authority.configure_trust(client)
            if certificate is not None:
                certificate.configure_cert(client)
            connection = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=PATIENCE, context=client)
            with closing(connection):
                connection.request("GET", "/")
                assert connection.getresponse().read() == b"done\n"
    known, unknown = (scope["extensions"]["tls"] for scope in app.scopes)
    assert [scope["scheme"] for scope in app.scopes] == ["https", "https"]
    assert known["client_cert_chain"] == [issued.cert_chain_pems[0].bytes().decode()]
    assert "CN=contoso.example" in known["client_cert_name"]
    assert known["tls_version"] == 0x0304
    assert (unknown["client_cert_chain"], unknown["client_cert_name"]) == ([], None)
