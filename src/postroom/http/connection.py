"""One connection of the HTTP/1.1 server: requests with streamed bodies and responses, with limits on everything.

h11 implements the protocol. Everything here runs on the event loop.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from email.utils import format_datetime
from http import HTTPStatus
from http.client import responses
from typing import Any, TypeVar

import h11

from postroom.clock import system_clock
from postroom.http.event_loop import WorkerPool
from postroom.http.framing import ChunkedBodyCheck, check_head, split_target
from postroom.http.messages import (
    LargeBody,
    Request,
    RequestFailed,
    Response,
    StreamedResponse,
    build_retry_response,
)
from postroom.http.tls import get_client_certificate

_RECEIVE_BYTES = 1 << 16
#: The time to close a connection. A TLS transport may still send the end of a response.
CLOSE_SECONDS = 10.0
_LINGER_SECONDS, _LINGER_BYTES = 2.0, 8 << 20
#: After this number of events of one connection the others have their turn.
_EVENTS_PER_TURN = 100
_STOPPED_RETRY_SECONDS = 5

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ConnectionLimits:
    """The limits for clients.

    ``timeout`` is the time for the head of a request, and for each wait for more of a body or until the client has read
    more of a response. A body may take ``max_body_seconds``, in both directions. The first ``small_chunks``
    chunks of a body may have any size. After them the average size must be ``min_chunk_bytes``. A connection without a
    request is closed after ``idle_seconds``. Above ``max_connections``, new connections wait until another one ends.
    Above ``client_connections`` of one client, its new connections are rejected.
    """

    max_head_bytes: int = 16_384
    timeout: float = 30.0
    max_body_seconds: float = 600.0
    min_bytes_per_second: int = 1_000
    small_chunks: int = 5_000
    min_chunk_bytes: int = 16
    idle_seconds: float = 15.0
    max_connections: int = 1_500
    client_connections: int = 50


class ClientProtocol(asyncio.StreamReaderProtocol):
    """The callbacks of a connection. ``on_end`` is called when the client closes its side or the connection breaks."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__(reader)
        self.has_ended = False
        self.on_end: Callable[[], object] | None = None

    def eof_received(self) -> bool:
        self._end()
        return bool(super().eof_received())

    def connection_lost(self, error: Exception | None) -> None:
        self._end()
        super().connection_lost(error)

    def _end(self) -> None:
        self.has_ended = True
        if self.on_end is not None:
            self.on_end()


class HttpConnection:
    """One connection: requests and responses in turn."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        transport: asyncio.Transport,
        callbacks: ClientProtocol,
        *,
        remote: str,
        limits: ConnectionLimits,
        workers: WorkerPool,
    ) -> None:
        self._reader = reader
        self._writer = asyncio.StreamWriter(transport, callbacks, reader, asyncio.get_running_loop())
        self._callbacks = callbacks
        self._remote = remote
        self._limits = limits
        self._workers = workers
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.max_head_bytes)
        tls = transport.get_extra_info("ssl_object")
        self._tls_version: str | None = None if tls is None else tls.version()
        self._certificate = get_client_certificate(tls)
        self._end_callbacks: list[Callable[[int | None], None]] = []
        #: How many bytes of the head of the next request were checked.
        self._checked_bytes = 0
        self._chunked_body: ChunkedBodyCheck | None = None
        self._is_head_request = False
        self._is_idle = True
        self._is_stopping = False
        self._is_cancelling = False
        self._awaited: asyncio.Future[Any] | None = None
        # A drained transport has sent everything, so that the timeout applies to all of a response. With a limit of 0,
        # a TLS transport would not continue.
        transport.set_write_buffer_limits(high=1, low=0)

    async def wait_for_request(self) -> bool:
        """Wait for the start of another request. Return False if the client has closed the connection or is idle, or
        after ``stop``."""
        if self._is_stopping:
            return False
        if self._protocol.trailing_data[0]:
            return True
        self._is_idle = True
        try:
            async with asyncio.timeout(self._limits.idle_seconds):
                received = await self._reader.read(_RECEIVE_BYTES)
        except TimeoutError:
            return False
        self._is_idle = False
        if not received:
            return False
        self._protocol.receive_data(received)
        return True

    async def read_head(self) -> Request:
        event = await self.receive_event(time.monotonic() + self._limits.timeout)
        if not isinstance(event, h11.Request):
            raise RequestFailed(400, "The request ended early.")
        self._is_head_request = event.method == b"HEAD"
        self._chunked_body = None
        if any(name == b"transfer-encoding" for name, _ in event.headers):
            self._chunked_body = ChunkedBodyCheck()
            self._chunked_body.check(self._protocol.trailing_data[0])
        # The protocol limits only what is still incomplete.
        if (
            len(event.target) + sum(len(name) + len(value) for name, value in event.headers)
            > self._limits.max_head_bytes
        ):
            raise RequestFailed(431, f"The head of the request has more than {self._limits.max_head_bytes} bytes.")
        if self._certificate is not None and system_clock() > self._certificate.expires_at:
            raise RequestFailed(403, "The client certificate has expired.", {"Connection": "close"})
        path, query = split_target(event.target.decode("ascii"))
        return Request(
            method=event.method.decode("ascii"),
            path=path,
            query=query,
            headers=tuple((name.decode("ascii"), value.decode("latin-1")) for name, value in event.headers),
            remote=self._remote,
            body=_RequestBody(self, self._limits),
            http_version=event.http_version.decode("ascii"),
            tls_version=self._tls_version,
            certificate=self._certificate,
            end_callbacks=self._end_callbacks,
        )

    async def wait_for_response(
        self, awaited: Awaitable[Response | StreamedResponse]
    ) -> Response | StreamedResponse | None:
        """Return the awaited response, or None if the client has disconnected."""
        try:
            return await self._wait_with_client(awaited)
        except ConnectionAbortedError:
            if self._callbacks.has_ended:
                return None
            return build_retry_response("The host is stopping.", _STOPPED_RETRY_SECONDS)

    async def _wait_with_client(self, awaited: Awaitable[T]) -> T:
        """Return an awaited value. Raise ConnectionAbortedError if the client has disconnected, and after
        ``cancel_response``. The awaitable is cancelled then.

        A client that closes its side of the connection while it waits counts as disconnected.
        """
        self._awaited = future = asyncio.ensure_future(awaited)
        self._callbacks.on_end = self._cancel_awaited
        if self._is_cancelling or self._callbacks.has_ended:
            self._cancel_awaited()
        try:
            return await future
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise ConnectionAbortedError("the client did not wait, or the server stopped") from None
        finally:
            self._awaited = self._callbacks.on_end = None

    def stop(self) -> None:
        """Close the connection if it is idle. Otherwise it ends after the response of the request in progress."""
        self._is_stopping = True
        if self._is_idle:
            self._writer.close()

    def cancel_response(self) -> None:
        """Respond with 503 instead of an awaited response, now and later."""
        self._is_cancelling = True
        self._cancel_awaited()

    def _cancel_awaited(self) -> None:
        """Cancel the awaited response after its first step: a coroutine that is cancelled before cannot clean up."""
        if self._awaited is not None:
            asyncio.get_running_loop().call_soon(self._awaited.cancel)

    async def send(self, response: Response | StreamedResponse) -> bool:
        """Send a response. Return False if the connection ends with it."""
        if isinstance(response, StreamedResponse):
            return await self._send_stream(response)
        # The unread rest of a body would be parsed as the next request.
        must_close = response.headers.get("Connection") == "close" or not self._is_all_read()
        body = json.dumps(response.content).encode() + b"\n" if response.body is None else response.body
        headers = {
            "Date": format_datetime(system_clock(), usegmt=True),
            "Content-Type": "application/json" if response.body is None else "application/octet-stream",
            **response.headers,
        }
        if response.status not in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED):
            headers["Content-Length"] = str(len(body) if isinstance(body, bytes) else body.size)
        if must_close or self._is_stopping:
            headers["Connection"] = "close"
        head = _build_head(response.status, list(headers.items()))
        try:
            async with asyncio.timeout(self._limits.max_body_seconds):
                await self._send_body(self._protocol.send(head) or b"", body)
        except h11.LocalProtocolError:
            return False  # the client broke the protocol, so no response is possible
        return await self._finish_response(must_close=must_close)

    async def _send_stream(self, response: StreamedResponse) -> bool:
        """Send a response in the pieces that come. The limit for its time does not include the waits for them."""
        must_close = self._protocol.their_state not in (h11.DONE, h11.MUST_CLOSE)
        headers = list(response.headers)
        if not any(name.lower() == b"date" for name, _ in headers):
            headers.append((b"Date", format_datetime(system_clock(), usegmt=True).encode()))
        if must_close or self._is_stopping:
            headers.append((b"Connection", b"close"))
        pending = self._protocol.send(_build_head(response.status, headers)) or b""
        has_body = not self._is_head_request and response.status not in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)
        remaining = self._limits.max_body_seconds
        while (piece := await self._wait_with_client(anext(response.pieces, None))) is not None:
            data = pending + ((self._protocol.send(h11.Data(data=piece)) or b"") if has_body else b"")
            started_at, pending = time.monotonic(), b""
            async with asyncio.timeout(remaining):
                await self._send(data)
            remaining -= time.monotonic() - started_at
        await self._send(pending + (self._protocol.send(h11.EndOfMessage()) or b""))
        return await self._finish_response(must_close=must_close)

    async def _finish_response(self, *, must_close: bool) -> bool:
        """Prepare for the next request. Return False if the connection ends."""
        if must_close:
            await self._linger()
        if self._protocol.our_state is h11.DONE and self._protocol.their_state is h11.DONE and not self._is_stopping:
            self._protocol.start_next_cycle()
            self._checked_bytes = 0
            return True
        return False

    def end_request(self, status: int | None) -> None:
        """Call the callbacks of the request that has ended with this status, or without a response."""
        callbacks, self._end_callbacks = self._end_callbacks, []
        for callback in callbacks:
            callback(status)

    async def close(self) -> None:
        """Close the connection after everything is sent."""
        self._writer.close()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            self.abort()

    def abort(self) -> None:
        """Close the connection at once."""
        self._writer.transport.abort()

    async def send_continue(self) -> None:
        """Tell a client that waits for it to send the body of its request."""
        if self._protocol.they_are_waiting_for_100_continue:
            interim = h11.InformationalResponse(status_code=100, headers=[], reason="Continue")
            await self._send(self._protocol.send(interim) or b"")

    def read_buffered(self) -> object:
        """Return the next event of what was received, or NEED_DATA."""
        if self._protocol.their_state is h11.IDLE:
            self._checked_bytes = check_head(self._protocol.trailing_data[0], self._checked_bytes)
        try:
            return self._protocol.next_event()
        except h11.RemoteProtocolError as error:
            raise RequestFailed(error.error_status_hint, f"{str(error).rstrip('.')}.") from None

    async def receive_event(self, deadline: float) -> object:
        """Return the next event. Raise RequestFailed after the deadline."""
        while (event := self.read_buffered()) is h11.NEED_DATA:
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    received = await self._reader.read(_RECEIVE_BYTES)
            except TimeoutError:
                raise RequestFailed(408, "The request took too long.") from None
            except OSError:
                raise RequestFailed(400, "The request ended early.") from None
            if self._chunked_body is not None:
                self._chunked_body.check(received)
            self._protocol.receive_data(received)
        return event

    def _is_all_read(self) -> bool:
        with suppress(h11.RemoteProtocolError):
            for _ in range(_EVENTS_PER_TURN):
                if self._protocol.their_state is not h11.SEND_BODY or self._protocol.next_event() is h11.NEED_DATA:
                    break
        return self._protocol.their_state in (h11.DONE, h11.MUST_CLOSE)

    async def _send_body(self, pending: bytes, body: bytes | LargeBody) -> None:
        """Send a body after the bytes that are pending."""
        if self._is_head_request:
            pass
        elif isinstance(body, bytes):
            pending += self._protocol.send(h11.Data(data=body)) or b""
        else:
            chunks = body.chunks()
            while chunk := await self._workers.run(next, chunks, b""):
                await self._send(pending + (self._protocol.send(h11.Data(data=chunk)) or b""))
                pending = b""
        await self._send(pending + (self._protocol.send(h11.EndOfMessage()) or b""))

    async def _send(self, data: bytes) -> None:
        self._writer.write(data)
        async with asyncio.timeout(self._limits.timeout):
            await self._writer.drain()

    async def _linger(self) -> None:
        """Read a little more from the client. A client that is cut off while it sends would lose the response."""
        rest = _LINGER_BYTES
        with suppress(OSError):
            if self._writer.can_write_eof():
                self._writer.write_eof()
            async with asyncio.timeout(_LINGER_SECONDS):
                while rest > 0 and (received := await self._reader.read(_RECEIVE_BYTES)):
                    rest -= len(received)


def _build_head(status: int, headers: list[tuple[str, str]] | list[tuple[bytes, bytes]]) -> h11.Response:
    return h11.Response(status_code=status, headers=headers, reason=responses.get(status, ""))


class _RequestBody:
    """The body of a request, in the pieces that arrive."""

    def __init__(self, connection: HttpConnection, limits: ConnectionLimits) -> None:
        self._connection = connection
        self._limits = limits
        self._started_at: float | None = None
        self._is_complete = False
        self._chunks = self._size = 0

    def __aiter__(self) -> _RequestBody:
        return self

    async def __anext__(self) -> bytes:
        if self._started_at is None:
            self._started_at = time.monotonic()
            await self._connection.send_continue()
        pieces: list[bytes] = []
        while not pieces and not self._is_complete:
            await self._read_pieces(pieces, await self._connection.receive_event(self._get_deadline(self._started_at)))
        if not pieces:
            raise StopAsyncIteration
        return b"".join(pieces)

    def _get_deadline(self, started_at: float) -> float:
        limits = self._limits
        return min(
            started_at + limits.max_body_seconds,
            # Each byte extends this deadline, so a client below the minimum rate runs out of time.
            started_at + limits.timeout + self._size / limits.min_bytes_per_second,
            time.monotonic() + limits.timeout,
        )

    async def _read_pieces(self, pieces: list[bytes], event: object) -> None:
        """Add everything that was received to ``pieces``."""
        count = 0
        while isinstance(event, h11.Data):
            pieces.append(event.data)
            self._size += len(event.data)
            # The work for a chunk does not depend on its size, so small chunks would cost much time.
            self._chunks += event.chunk_start
            if self._chunks > self._limits.small_chunks + self._size // self._limits.min_chunk_bytes:
                raise RequestFailed(400, f"The chunks of the body have less than {self._limits.min_chunk_bytes} bytes.")
            count += 1
            if count % _EVENTS_PER_TURN == 0:
                await asyncio.sleep(0)
            event = self._connection.read_buffered()
        if isinstance(event, h11.EndOfMessage):
            self._is_complete = True
        elif event is not h11.NEED_DATA:
            raise RequestFailed(400, "The request ended early.")
