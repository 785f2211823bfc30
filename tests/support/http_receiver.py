"""A real HTTP server on the loopback interface whose behaviour a test controls."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.support.reserved_port import reserve_port


@dataclass(frozen=True, kw_only=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class HttpReceiver:
    """Records all requests in ``requests`` and the accepted ones in ``accepted``. ``behave`` is called with the handler
    of each request. By default it accepts the request."""

    def __init__(self, port: int, certificate: ssl.SSLContext | None = None) -> None:
        self.requests: list[Request] = []
        self.accepted: list[Request] = []
        self.behave: Callable[[Handler], None] = Handler.accept
        self.released = threading.Event()
        self._certificate = certificate
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None
        self._port = port

    @property
    def url(self) -> str:
        return f"{'http' if self._certificate is None else 'https'}://127.0.0.1:{self._port}/orders"

    def start(self) -> None:
        """Listen on the port, also again after a stop."""
        self._server = _Server(("127.0.0.1", self._port), self, self._certificate)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def stop(self) -> None:
        if self._server is not None and self._thread is not None:
            self.released.set()
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()
            self._server = None

    def fail(self, times: int, status: int = 503, text: str = "busy") -> None:
        """Answer the next ``times`` requests with an error, and accept later requests."""
        left = iter(range(times))
        self.behave = lambda handler: (
            handler.accept() if next(left, None) is None else handler.answer(status, text.encode())
        )


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    receiver: HttpReceiver
    timeout = 20

    def do_POST(self) -> None:
        self.receiver.behave(self)

    def do_CONNECT(self) -> None:
        self.receiver.behave(self)

    def take(self) -> Request:
        """Read the whole request and record it."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        request = Request(method=self.command, path=self.path, headers=dict(self.headers.items()), body=body)
        if len(body) == int(self.headers["Content-Length"]):
            self.receiver.requests.append(request)
        else:
            self.close_connection = True
            raise ConnectionAbortedError
        return request

    def accept(self) -> None:
        request = self.take()
        self.receiver.accepted.append(request)
        self.respond(200, b"thanks")

    def answer(self, status: int, text: bytes = b"", **headers: str) -> None:
        self.take()
        self.respond(status, text, **headers)

    def respond(self, status: int, text: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def hang(self) -> None:
        """Read the request and do not answer until ``released`` is set."""
        self.take()
        self.ignore()

    def ignore(self) -> None:
        """Neither read nor answer until ``released`` is set."""
        self.receiver.released.wait()
        self.close_connection = True

    def drip(self, start: bytes) -> None:
        """Sends this start, and then one byte at a time until the test lets go."""
        self.wfile.write(start)
        with suppress(OSError):  # the client has gone away
            while not self.receiver.released.wait(0.02):
                self.wfile.write(b".")
        self.close_connection = True

    def read_slowly(self) -> None:
        """Reads one kilobyte at a time until the test lets go."""
        while not self.receiver.released.wait(0.02) and self.rfile.read1(1024):
            pass
        self.close_connection = True

    def close_after(self, count: int) -> None:
        """Read ``count`` bytes of the body and close the connection."""
        self.rfile.read(count)
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], receiver: HttpReceiver, certificate: ssl.SSLContext | None) -> None:
        super().__init__(address, type("Handler", (Handler,), {"receiver": receiver}))
        self._open: set[socket.socket] = set()
        if certificate is not None:
            self.socket = certificate.wrap_socket(self.socket, server_side=True)

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        assert isinstance(request, socket.socket)
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown(self) -> None:
        super().shutdown()
        # The threads of kept-alive connections end only when the connection is closed.
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        pass


@contextmanager
def http_receiver(certificate: ssl.SSLContext | None = None) -> Iterator[HttpReceiver]:
    with reserve_port() as port:
        receiver = HttpReceiver(port, certificate)
        receiver.start()
        try:
            yield receiver
        finally:
            receiver.stop()
