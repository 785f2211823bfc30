"""The HTTP listener of a process for its metrics and its health.

    with MonitoringServer("127.0.0.1", 9464) as monitoring:
        monitoring.process = instance        # ready from now on, if the instance has no problems

It listens before the process is ready, so that a health check can tell a process that starts from one that is gone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypedDict

from postroom.errors import StateError
from postroom.http.connection import ConnectionLimits
from postroom.http.event_loop import EventLoopThread, WorkerPool
from postroom.http.messages import Request, Response, build_error_response
from postroom.http.server import HttpServer
from postroom.monitoring.metrics import MonitoredProcess, format_metrics

#: The default address: only programs on the same machine can reach it.
LOOPBACK = "127.0.0.1"

_LIMITS = ConnectionLimits(timeout=10.0, max_connections=50, client_connections=20)
_ANSWER_SECONDS = 8.0
_STOP_SECONDS = 1.0


class Target(TypedDict):
    """Addresses with common labels."""

    targets: list[str]
    labels: dict[str, str]


class MonitoringServer:
    """Answers /metrics, /livez and /readyz. ``process`` is None until the process has started.

    /targets lists the other processes that this one has started, for the HTTP service discovery of Prometheus.
    """

    def __init__(self, listen: str, port: int) -> None:
        self.process: MonitoredProcess | None = None
        #: Returns the addresses of the other processes that this one has started, in the format of Prometheus.
        self.list_targets: Callable[[], list[Target]] | None = None
        self._loop = EventLoopThread("monitoring")
        self._workers = WorkerPool(threads=2, max_waiting=20)
        try:
            self._server = HttpServer(
                listen, port, self._handle, loop=self._loop, workers=self._workers, limits=_LIMITS
            )
        except OSError as error:
            raise StateError(
                f"The process cannot listen on {listen}:{port} for its metrics.",
                why=f"{error.strerror or error}.",
                hint="Choose another --metrics-port or --metrics-listen.",
            ) from None

    @property
    def port(self) -> int:
        return self._server.port

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.stop(_STOP_SECONDS)
        self._loop.close()
        self._workers.close()

    async def _handle(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            return build_error_response(405, f"{request.method} is not allowed. Use GET.", {"Allow": "GET, HEAD"})
        if request.path == "/livez":
            return Response(status=200, content={"status": "alive"})
        if request.path == "/readyz":
            return await self._respond_ready()
        if request.path == "/metrics":
            return await self._respond_metrics(request.header("accept") or "")
        if request.path == "/targets" and self.list_targets is not None:
            body = json.dumps(self.list_targets()).encode() + b"\n"
            return Response(status=200, body=body, headers={"Content-Type": "application/json"})
        known = "/livez and /readyz" if self.list_targets is None else "/livez, /readyz and /targets"
        return build_error_response(404, f"There is no {request.path}. There are /metrics, {known}.")

    async def _respond_ready(self) -> Response:
        process = self.process
        if process is None:
            return _build_not_ready_response(["The process is starting."])
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                self._workers.check_capacity()
                problems = await self._workers.run(process.find_problems)
        except TimeoutError:
            problems = [f"The process did not answer within {_ANSWER_SECONDS:.0f} seconds."]
        return _build_not_ready_response(problems) if problems else Response(status=200, content={"status": "ready"})

    async def _respond_metrics(self, accept: str) -> Response:
        process = self.process
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                self._workers.check_capacity()
                text, content_type = await self._workers.run(_collect, process, accept)
        except TimeoutError:
            return build_error_response(503, f"The metrics took longer than {_ANSWER_SECONDS:.0f} seconds.")
        return Response(status=200, body=text, headers={"Content-Type": content_type})


def _collect(process: MonitoredProcess | None, accept: str) -> tuple[bytes, str]:
    return format_metrics([] if process is None else process.collect_metrics(), accept)


def _build_not_ready_response(problems: list[str]) -> Response:
    return Response(status=503, content={"status": "not ready", "problems": problems})
