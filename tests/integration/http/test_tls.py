"""Hostile and broken TLS clients: no request of them is handled, and the server keeps serving others."""

from __future__ import annotations

import logging
import socket
import ssl
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from postroom.http import connection
from postroom.http.connection import ConnectionLimits
from postroom.http.messages import Request, Response
from postroom.http.server import HttpServer
from postroom.http.tls import TlsFiles
from tests.support.certificates import issue
from tests.support.http_server import connect_from, echo, receive_all, run_server
from tests.support.waiting import wait_until

REQUEST = b"POST /order HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)


class TlsServer:
    """A server that asks its clients for a certificate of ``clients``."""

    def __init__(self, folder: Path) -> None:
        self._authority, self.clients = trustme.CA(), trustme.CA()
        issued = self._authority.issue_cert("127.0.0.1")
        self.files = TlsFiles(
            certificate=folder / "certificate.pem",
            key=folder / "key.pem",
            client_ca=folder / "clients.pem",
            requires_client_certificate=True,
        )
        issued.cert_chain_pems[0].write_to_path(self.files.certificate)
        issued.private_key_pem.write_to_path(self.files.key)
        self.clients.cert_pem.write_to_path(folder / "clients.pem")
        self.paths: list[str] = []

    async def _handle(self, request: Request) -> Response:
        self.paths.append(request.path)
        return await echo(request)

    @contextmanager
    def run(self, limits: ConnectionLimits | None = None) -> Iterator[HttpServer]:
        with run_server(self._handle, limits, tls=self.files.create_context()) as server:
            yield server

    def make_client(self, certificate: trustme.LeafCert | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self._authority.configure_trust(context)
        if certificate is not None:
            certificate.configure_cert(context)
        return context

    def send(self, server: HttpServer, context: ssl.SSLContext, sent: bytes = REQUEST) -> bytes:
        """Return what the server sends, and nothing if it ends the handshake.

        With TLS 1.3 a client may send its request before it learns that its certificate was rejected.
        """
        with suppress(OSError), self.connect(server, context) as client:
            client.sendall(sent)
            return receive_all(client)
        return b""

    def connect(
        self, server: HttpServer, context: ssl.SSLContext, session: ssl.SSLSession | None = None
    ) -> ssl.SSLSocket:
        return context.wrap_socket(connect_from(server, "127.0.0.1"), server_hostname="127.0.0.1", session=session)

    def check_is_serving(self, server: HttpServer) -> None:
        """A client with a valid certificate is served, and the other connections have ended."""
        known = self.make_client(self.clients.issue_cert(common_name="contoso.example"))
        assert self.send(server, known).startswith(b"HTTP/1.1 200 ")
        wait_until(lambda: not server.connections, what="the end of all connections")


@pytest.fixture
def tls(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[TlsServer]:
    """Yield a server. What its clients do must not fill the log."""
    yield TlsServer(tmp_path)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_an_invalid_client_certificate_ends_the_handshake(tls: TlsServer, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    day = timedelta(days=1)
    name = "contoso.example"
    self_signed = issue(name, valid=(now - day, now + day)).write(tmp_path, "self-signed")
    invalid = {
        "expired": tls.make_client(
            tls.clients.issue_cert(common_name=name, not_before=now - 2 * day, not_after=now - day)
        ),
        "not yet valid": tls.make_client(
            tls.clients.issue_cert(common_name=name, not_before=now + day, not_after=now + 2 * day)
        ),
        "of another authority": tls.make_client(trustme.CA().issue_cert(common_name=name)),
        "self-signed": tls.make_client(),
        "missing": tls.make_client(),
    }
    invalid["self-signed"].load_cert_chain(*self_signed)
    with tls.run() as server:
        for why, context in invalid.items():
            assert tls.send(server, context) == b"", why
        assert tls.paths == []
        tls.check_is_serving(server)


@pytest.mark.parametrize(
    "sent",
    [
        REQUEST,
        PREFACE,
        b"\x16\x03\x01\x00\xff",
        b"\x16\x03\x00\x40\x00" + bytes(100),
        b"\x80\x2e\x01\x00\x02",
        bytes(500),
    ],
    ids=["HTTP", "HTTP/2", "half a record", "SSL 3", "SSL 2", "zeros"],
)
def test_a_client_without_tls_is_disconnected(tls: TlsServer, sent: bytes) -> None:
    with tls.run() as server:
        with closing(connect_from(server, "127.0.0.1")) as client:
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
            try:
                received = receive_all(client)
            except ConnectionResetError:
                received = b""
        assert not received.startswith(b"HTTP/")
        assert tls.paths == []
        tls.check_is_serving(server)


def test_a_client_that_closes_during_the_handshake_is_forgotten(tls: TlsServer) -> None:
    with tls.run() as server:
        for context in (tls.make_client(), tls.make_client(tls.clients.issue_cert(common_name="a.example"))):
            for steps in range(3):
                incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
                handshake = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
                with closing(connect_from(server, "127.0.0.1")) as client:
                    for _ in range(steps):
                        try:
                            handshake.do_handshake()
                        except ssl.SSLWantReadError:
                            client.sendall(outgoing.read())
                            incoming.write(client.recv(65536))
        tls.check_is_serving(server)


def test_old_versions_of_tls_are_refused(tls: TlsServer) -> None:
    context = tls.make_client(tls.clients.issue_cert(common_name="a.example"))
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings(action="ignore"):
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with tls.run() as server:
        assert tls.send(server, context) == b""
        tls.check_is_serving(server)


def test_a_client_that_knows_only_http_2_gets_400(tls: TlsServer) -> None:
    context = tls.make_client(tls.clients.issue_cert(common_name="a.example"))
    context.set_alpn_protocols(["h2"])
    with tls.run() as server:
        assert tls.send(server, context, PREFACE).startswith(b"HTTP/1.1 400 ")
        assert tls.paths == []
        tls.check_is_serving(server)


def test_a_client_cannot_renegotiate(tls: TlsServer, tmp_path: Path) -> None:
    issued = tls.clients.issue_cert(common_name="a.example")
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "client.pem")
    with tls.run() as server:
        client = subprocess.run(
            [
                "openssl",
                "s_client",
                "-tls1_2",
                "-cert",
                tmp_path / "client.pem",
                "-connect",
                f"127.0.0.1:{server.port}",
            ],
            input=b"R\nPOST /order HTTP/1.1\r\n",
            capture_output=True,
            check=False,
        )
        assert b"RENEGOTIATING" in client.stdout + client.stderr
        assert b"no renegotiation" in client.stderr
        assert tls.paths == []
        tls.check_is_serving(server)


def test_a_client_that_ends_without_a_closing_alert_is_forgotten(tls: TlsServer) -> None:
    context = tls.make_client(tls.clients.issue_cert(common_name="a.example"))
    with tls.run() as server:
        for sent in (b"", b"POST /half HT"):
            client = tls.connect(server, context)
            client.sendall(sent)
            with closing(socket.socket(fileno=client.detach())):
                pass
        assert tls.paths == []
        tls.check_is_serving(server)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_certificate_that_expires_is_rejected_on_open_connections_and_in_resumed_sessions(
    tls: TlsServer, monkeypatch: pytest.MonkeyPatch, version: ssl.TLSVersion
) -> None:
    """TLS verifies a certificate only in a full handshake."""
    expires_at = datetime.now(UTC) + timedelta(days=1)
    context = tls.make_client(tls.clients.issue_cert(common_name="a.example", not_after=expires_at))
    context.maximum_version = version
    with tls.run() as server:
        opened = tls.connect(server, context)
        opened.sendall(REQUEST.replace(b"Connection: close\r\n", b""))
        assert opened.recv(65536).startswith(b"HTTP/1.1 200 ")
        resumed = tls.connect(server, context, opened.session)
        assert resumed.session_reused
        monkeypatch.setattr(connection, "system_clock", lambda: expires_at + timedelta(seconds=1))
        for client in (opened, resumed):
            client.sendall(REQUEST)
            received = receive_all(client)
            assert received.startswith(b"HTTP/1.1 403 ")
            assert b"The client certificate has expired." in received
            client.close()
        assert len(tls.paths) == 1


def test_a_replaced_authority_ends_the_connections_that_the_old_one_has_verified(tls: TlsServer) -> None:
    old = tls.make_client(tls.clients.issue_cert(common_name="a.example"))
    with tls.run() as server:
        opened = tls.connect(server, old)
        opened.sendall(REQUEST.replace(b"Connection: close\r\n", b""))
        assert opened.recv(65536).startswith(b"HTTP/1.1 200 ")
        tls.clients = trustme.CA()
        assert tls.files.client_ca is not None
        tls.clients.cert_pem.write_to_path(tls.files.client_ca)
        server.replace_tls(tls.files.create_context())
        assert opened.recv(65536) == b""
        opened.close()
        with suppress(OSError), tls.connect(server, old, opened.session) as resumed:
            resumed.sendall(REQUEST)
            assert receive_all(resumed) == b""
        assert len(tls.paths) == 1
        tls.check_is_serving(server)
