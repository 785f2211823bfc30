"""A client that sends POST requests over one connection, on an event loop."""

from __future__ import annotations

import asyncio
import re
import socket
import time

_PATIENCE_SECONDS = 120.0


class HttpClient:
    """Sends requests one after the other."""

    def __init__(self, path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._path = path.encode()
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, port: int, path: str) -> HttpClient:
        return cls(path, *await asyncio.open_connection("127.0.0.1", port))

    async def post(self, body: bytes) -> bytes:
        """Return the body of the response. Raise an error unless its status is 200 or 202."""
        head = b"POST %b HTTP/1.1\r\nHost: bench\r\nContent-Length: %d\r\n\r\n" % (self._path, len(body))
        self._writer.write(head + body)
        answered = await self._reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: *(\d+)", answered)
        answer = b"" if length is None else await self._reader.readexactly(int(length[1]))
        if answered[9:12] not in (b"200", b"202"):
            raise RuntimeError(f"A request failed: {answered + answer[:200]!r}")
        return answer

    def close(self) -> None:
        self._writer.close()


def find_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def wait_for_listener(port: int) -> None:
    """Wait until a server listens on the port."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
