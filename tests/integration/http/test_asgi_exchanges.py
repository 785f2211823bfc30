"""Requests to an ASGI application and their responses."""

from __future__ import annotations

import asyncio
import http.client
import ssl
from contextlib import closing

import pytest
import trustme

from tests.support.asgi_server import (
    OK,
    Receive,
    Recorder,
    Send,
    body,
    exchange,
    read_until,
    serve,
)
from tests.support.http_server import connect_from, receive_all
from tests.support.waiting import PATIENCE, wait_until


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


def test_a_body_that_is_not_read_is_not_the_next_request() -> None:
    async def respond(receive: Receive, send: Send) -> None:
        await send(OK)
        await send(body(b"early"))

    app = Recorder(respond)
    with serve(app) as server:
        hidden = b"POST /hidden HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
        exchange(server, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(hidden), hidden))
    assert [scope["path"] for scope in app.scopes] == ["/"]


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
