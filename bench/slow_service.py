"""Callers of a slow service: requests over two-way HTTP, through a send port to an HTTP service that takes 0.5 s.

    python -m bench.slow_service

All callers ask at the same time, and each checks that it gets its own answer. The host has its default settings. Only
the receive location takes more connections of one address, because all callers come from this machine.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import psutil

from bench.host import host_process
from bench.http_client import HttpClient, find_free_port, wait_for_listener
from bench.messagebox import measured_box
from bench.ratios import Result
from postroom import adapters, pipelines
from postroom.system_properties import BTS

_PATH = "/quotes"
_CALLERS = 200
_SERVICE_SECONDS = 0.5
_BODY_BYTES = 2_000


def measure() -> Iterator[Result]:
    """Yield the time until every caller has its answer, and the threads of the host while they wait."""
    port, service_port = find_free_port(), find_free_port()
    adapter = adapters.HttpReceive(_PATH, port=port, client_connections=2 * _CALLERS)
    with measured_box(adapter=adapter, pipeline=pipelines.PassThrough(), subscriptions=0) as box:
        service = adapters.Http(f"http://127.0.0.1:{service_port}/")
        box.make_two_way(box.add_send_port("Quotes", service, BTS.ReceivePortName == "In"))
        with host_process(box, box.host.name) as host:
            wait_for_listener(port)
            elapsed, threads = asyncio.run(_measure_callers(port, service_port, host))
    yield Result(
        name=f"two-way HTTP, {_CALLERS} callers at once, an HTTP service that takes {_SERVICE_SECONDS:g} s, default"
        " settings: seconds until all have their own answers",
        group="D",
        measured=elapsed,
        bar=12,
        at_most=True,
        detail=f"{threads} threads",
    )


async def _measure_callers(port: int, service_port: int, host: psutil.Process) -> tuple[float, int]:
    """Return the seconds until all callers are answered, and the largest number of threads of the host."""
    async with _run_service(service_port):
        clients = [await HttpClient.connect(port, _PATH) for _ in range(_CALLERS)]
        started = time.perf_counter()
        calls = asyncio.gather(*(_ask(client) for client in clients))
        threads = 0
        while not calls.done():
            threads = max(threads, host.num_threads())
            await asyncio.sleep(0.05)
        await calls
        elapsed = time.perf_counter() - started
        for client in clients:
            client.close()
        return elapsed, threads


async def _ask(client: HttpClient) -> None:
    """Send a request. Raise an error unless the answer is the request itself."""
    body = uuid.uuid4().hex.encode().ljust(_BODY_BYTES, b"x")
    answer = await client.post(body)
    if answer != body:
        raise RuntimeError(f"A caller got the answer {answer[:32]!r} to {body[:32]!r}.")


@asynccontextmanager
async def _run_service(port: int) -> AsyncIterator[None]:
    """Run an HTTP service that answers each request with the request itself, later."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = re.search(rb"(?i)content-length: *(\d+)", head)
                assert size is not None
                body = await reader.readexactly(int(size[1]))
                await asyncio.sleep(_SERVICE_SECONDS)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port, backlog=2 * _CALLERS)
    try:
        yield
    finally:
        server.close()


if __name__ == "__main__":
    for result in measure():
        sys.stdout.write(f"{result}\n")
