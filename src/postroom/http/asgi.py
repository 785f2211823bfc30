"""Runs an ASGI application on the HTTP server (ADR 0038). Postroom itself has none yet.

    application = AsgiApplication(app)
    server = HttpServer("127.0.0.1", 8080, application.handle, loop=loop, workers=workers)
    loop.run(application.start())
    server.start()
    ...
    server.stop()
    loop.run(application.stop())

All limits of the server apply. The application runs on the event loop: what blocks belongs in a thread. Give it an
event loop of its own if others depend on theirs.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import h11

from postroom.http.messages import Request, RequestFailed, Response, StreamedResponse, build_error_response

_log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Application = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]

#: In 2.4, ``send`` raises an OSError after the client has disconnected.
_ASGI = {"version": "3.0", "spec_version": "2.4"}
_TLS_VERSIONS = {"TLSv1.2": 0x0303, "TLSv1.3": 0x0304}
#: These responses have no body, and 204 may not have a length.
_WITHOUT_BODY = (204, 304)


class ClientDisconnected(OSError):
    """The application sends to a client that has disconnected, or whose request has failed."""


class StartupFailed(Exception):
    """The application has reported that it cannot start."""


class AsgiApplication:
    """An ASGI 3 application: HTTP with streamed bodies, and lifespan. WebSockets are refused with 501."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._lifespan = _Lifespan(application)
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Let the application start. Raise StartupFailed if it reports a failure."""
        await self._lifespan.start()

    async def stop(self, within: float = 10.0) -> None:
        """Cancel what still runs, and let the application shut down. Call this after the server was stopped."""
        for task in (tasks := set(self._tasks)):
            task.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                if tasks:
                    await asyncio.wait(tasks)
                await self._lifespan.stop()

    async def handle(self, request: Request) -> Response | Awaitable[Response | StreamedResponse]:
        """Handle a request of the server."""
        if "websocket" in (request.header("upgrade") or "").lower():
            return build_error_response(501, "WebSockets are not supported.")
        if not int(request.header("content-length") or 0) and request.header("transfer-encoding") is None:
            await anext(request.body, b"")  # the connection can be used again only if the request has ended
        exchange = _Exchange(request)
        scope = _build_scope(request, self._lifespan.state)
        task = asyncio.get_running_loop().create_task(exchange.run(self._application, scope))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return exchange.respond()


class _Exchange:
    """A request, and the response of the application to it."""

    def __init__(self, request: Request) -> None:
        loop = asyncio.get_running_loop()
        self._request = request
        self._is_read = self._is_complete = False
        self._reading: asyncio.Future[bytes] | None = None
        self._head: tuple[int, list[tuple[bytes, bytes]]] | None = None
        # One piece waits while another one is sent. None is the end.
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=1)
        self._ended: asyncio.Future[None] = loop.create_future()
        self._response: asyncio.Future[Response | StreamedResponse] = loop.create_future()
        request.end_callbacks.append(lambda _: self._end())

    async def run(self, application: Application, scope: MutableMapping[str, Any]) -> None:
        """Run the application. If it does not complete its response, the client gets a 500, or an incomplete body."""
        try:
            await application(scope, self._receive, self._send)
            if not self._is_complete and not self._ended.done():
                _log.error("the application has not completed its response to %s", self._request.path)
        except ClientDisconnected:
            pass
        except Exception:
            _log.exception("the application could not handle a request from %s", self._request.remote)
        finally:
            if not self._response.done():
                self._response.set_result(build_error_response(500, "An internal error occurred."))
            elif not self._is_complete:
                with suppress(ClientDisconnected):
                    await self._put(None)

    async def respond(self) -> Response | StreamedResponse:
        """Return the response when the application has started it."""
        response = None
        try:
            response = await self._response
            return response
        finally:
            if not isinstance(response, StreamedResponse):
                await self._stop_reading()

    async def _receive(self) -> Message:
        while not self._ended.done():
            if self._is_read:
                await asyncio.wait((self._ended,))
                break
            # A receive may be cancelled, and several may wait. Each piece belongs to the first one that takes it.
            self._reading = reading = self._reading or asyncio.ensure_future(anext(self._request.body, b""))
            await asyncio.wait((reading, self._ended), return_when=asyncio.FIRST_COMPLETED)
            if reading is not self._reading or not reading.done() or reading.cancelled():
                continue
            self._reading = None
            try:
                piece = reading.result()
            except RequestFailed as failed:
                if not self._response.done():
                    self._response.set_exception(failed)  # the server sends its response
                self._end()
                break
            self._is_read = not piece
            return {"type": "http.request", "body": piece, "more_body": not self._is_read}
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if self._ended.done():
            raise ClientDisconnected("the client has disconnected")
        if message["type"] == "http.response.start" and self._head is None:
            # The server decides on the transfer coding.
            headers = [
                (bytes(name), bytes(value))
                for name, value in message.get("headers", ())
                if name.lower() != b"transfer-encoding"
            ]
            h11.Response(status_code=message["status"], headers=headers)  # raises an error if they are invalid
            self._head = message["status"], headers
        elif message["type"] == "http.response.body" and self._head is not None and not self._is_complete:
            await self._send_piece(*self._head, message.get("body", b""), has_more=message.get("more_body", False))
        else:
            raise RuntimeError(f"The message {message['type']!r} is not expected now.")

    async def _send_piece(
        self, status: int, headers: list[tuple[bytes, bytes]], piece: bytes, *, has_more: bool
    ) -> None:
        if not self._response.done():
            has_length = any(name.lower() == b"content-length" for name, _ in headers)
            if not has_more and not has_length and status not in _WITHOUT_BODY and self._request.method != "HEAD":
                headers = [*headers, (b"content-length", b"%d" % len(piece))]
            self._response.set_result(StreamedResponse(status=status, headers=headers, pieces=self._stream()))
        await self._put(bytes(piece))
        if not has_more:
            self._is_complete = True
            await self._put(None)

    async def _stream(self) -> AsyncIterator[bytes]:
        """Yield the body of the response."""
        while (piece := await self._pieces.get()) is not None:
            yield piece
        if not self._is_complete:
            raise ConnectionAbortedError("the application has not completed its response")
        await self._stop_reading()

    async def _put(self, piece: bytes | None) -> None:
        """Wait until a piece of the response can be queued. Raise ClientDisconnected if the exchange ends first."""
        putting = asyncio.ensure_future(self._pieces.put(piece))
        try:
            await asyncio.wait((putting, self._ended), return_when=asyncio.FIRST_COMPLETED)
            if not putting.done():
                raise ClientDisconnected("the client has disconnected")
        finally:
            putting.cancel()

    async def _stop_reading(self) -> None:
        """End the exchange. From now on the server reads from the connection."""
        reading = self._reading
        self._end()
        if reading is not None:
            await asyncio.wait((reading,))

    def _end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)
        if self._reading is not None:
            self._reading.cancel()


class _Lifespan:
    """The start and the end of an application. An application that does not support them runs without."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._events: asyncio.Queue[Message] = asyncio.Queue()
        self._answers: asyncio.Queue[Message | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self.state: dict[str, Any] = {}

    async def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())
        await self._notify("startup")

    async def stop(self) -> None:
        if self._task is not None and not self._task.done():
            await self._notify("shutdown")
            await self._task

    async def _notify(self, event: str) -> None:
        self._events.put_nowait({"type": f"lifespan.{event}"})
        answer = await self._answers.get()
        if answer is not None and answer["type"] == f"lifespan.{event}.failed":
            if event == "startup":
                raise StartupFailed(answer.get("message", ""))
            _log.error("the application could not shut down: %s", answer.get("message", ""))

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": _ASGI, "state": self.state}
        try:
            await self._application(scope, self._events.get, self._answers.put)
        except Exception as error:
            _log.info("the application has ended its lifespan: %r", error)
        finally:
            self._answers.put_nowait(None)


def _build_scope(request: Request, state: dict[str, Any]) -> dict[str, Any]:
    """Return the scope of a request. The port of the client is not known and is 0."""
    certificate = request.certificate
    tls = {
        "server_cert": None,
        "client_cert_chain": [] if certificate is None else [ssl.DER_cert_to_PEM_cert(certificate.der)],
        "client_cert_name": None if certificate is None else certificate.subject or None,
        "client_cert_error": None,
        "tls_version": _TLS_VERSIONS.get(request.tls_version or ""),
        "cipher_suite": None,
    }
    return {
        "type": "http",
        "asgi": _ASGI,
        "http_version": request.http_version,
        "method": request.method,
        "scheme": "http" if request.tls_version is None else "https",
        "path": unquote(request.path),
        "raw_path": request.path.encode("ascii"),
        "query_string": request.query.encode("ascii"),
        "root_path": "",
        "headers": [(name.encode("ascii"), value.encode("latin-1")) for name, value in request.headers],
        "client": (request.remote, 0),
        "server": None,
        "state": dict(state),
        "extensions": {} if request.tls_version is None else {"tls": tls},
    }
