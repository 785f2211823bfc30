"""An HTTP server with an ASGI application, and an application that records what it receives."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from postroom.http.asgi import Application, AsgiApplication, Message
from postroom.http.connection import ConnectionLimits
from postroom.http.event_loop import EventLoopThread, WorkerPool
from postroom.http.server import HttpServer
from tests.support.http_server import connect_from, receive_all

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
