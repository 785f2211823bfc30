"""Requests and responses of the HTTP server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from postroom.http.tls import ClientCertificate


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request whose head has been read.

    ``body`` can be read once, entirely or in part. Reading it raises RequestFailed if the client exceeds a limit or
    disconnects.
    """

    method: str
    path: str
    query: str
    headers: tuple[tuple[str, str], ...]
    """Names in lower case."""
    remote: str
    body: AsyncIterator[bytes]
    http_version: str = "1.1"
    tls_version: str | None = None
    """For example ``TLSv1.3``. None without TLS."""
    certificate: ClientCertificate | None = None
    end_callbacks: list[Callable[[int | None], None]] = field(default_factory=list)
    """Called with the status of the response after it was sent, and with None if the client disconnects first."""

    def header(self, name: str) -> str | None:
        """Return a header by its name in lower case. Several values are joined by commas."""
        values = [value for one, value in self.headers if one == name]
        return ", ".join(values) if values else None


class LargeBody(Protocol):
    """The body of a response that may be too large for memory. It is read in worker threads."""

    @property
    def size(self) -> int: ...

    def chunks(self) -> Iterator[bytes]: ...


@dataclass(frozen=True, kw_only=True)
class Response:
    """A response: a status with a JSON object, or with ``body`` if there is one."""

    status: int
    content: Mapping[str, object] = field(default_factory=dict)
    body: bytes | LargeBody | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class StreamedResponse:
    """A response whose body is produced while it is sent. The rest of the request may be read at the same time.

    ``pieces`` is cancelled when the client disconnects, and some time after the server was stopped. If it raises an
    OSError, the connection is closed, so that the client sees that the response is incomplete.
    """

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    pieces: AsyncIterator[bytes]


class RequestFailed(Exception):
    """The request is not processed: it is invalid, too large or incomplete. ``response`` describes the problem."""

    def __init__(self, status: int, error: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(error)
        self.response = build_error_response(status, error, headers)


def build_error_response(status: int, error: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with an error message."""
    return Response(status=status, content={"error": error}, headers=headers or {})


def build_retry_response(error: str, seconds: int) -> Response:
    """Return a 503: the client should send the request again after this time."""
    return build_error_response(503, error, {"Retry-After": str(seconds)})
