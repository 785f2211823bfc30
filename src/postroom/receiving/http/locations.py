"""The HTTP receive locations of a host: one listener for each port that a deployed location uses."""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from postroom.adapters.http.receive_definition import HttpReceive
from postroom.errors import DefinitionError
from postroom.http.connection import ConnectionLimits
from postroom.http.event_loop import EventLoopThread, WorkerPool
from postroom.http.server import HttpServer
from postroom.http.tls import TlsFiles
from postroom.messagebox.connection import Connect
from postroom.messagebox.throttling.load import ThrottleWatch
from postroom.messagebox.throttling.process_load import find_process_limits
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.http.requests import HttpRequests, Locations, RequestCounts
from postroom.receiving.http.shared_connections import SharedConnections
from postroom.receiving.http.two_way import TwoWayRequests
from postroom.two_way.callers import RequestPublisher

_log = logging.getLogger(__name__)

#: Each worker thread uses one connection to the MessageBox at a time.
_CONNECTIONS = 10
_MAX_WAITING_CALLS = 1_000
#: How long requests in progress may take after a listener was closed, besides the time for waiting callers.
_CLOSE_SECONDS = 4.0


@dataclass(frozen=True, kw_only=True)
class Listener:
    """A port that the host listens on, for all locations that use it."""

    listen: str
    port: int
    tls: TlsFiles | None
    timeout: float
    client_connections: int

    @classmethod
    def of(cls, definitions: list[HttpReceive], home: Path) -> Listener:
        # Locations of one port differ only in these limits: ``plan`` rejects other differences.
        return cls(
            listen=definitions[0].listen,
            port=definitions[0].port,
            tls=definitions[0].tls_files(home),
            timeout=min(definition.timeout for definition in definitions),
            client_connections=min(definition.client_connections for definition in definitions),
        )


@dataclass(kw_only=True)
class _OpenListener:
    server: HttpServer
    requests: HttpRequests
    tls_versions: tuple[tuple[int, int], ...] | None


class HttpLocations:
    """Opens and closes listeners for the deployed locations.

    A disabled location responds with 503, so that its senders retry later.
    """

    def __init__(
        self, *, connect: Connect, host_id: int, home: Path, requests: RequestPublisher, answer_within: float
    ) -> None:
        self._home = home
        self._answer_within = answer_within
        self._throttle = ThrottleWatch(host_id, find_process_limits)
        self._connections = SharedConnections(connect, _CONNECTIONS)
        self._two_way = TwoWayRequests(self._connections, requests)
        self._event_loop = EventLoopThread()
        self._workers = WorkerPool(threads=_CONNECTIONS, max_waiting=_MAX_WAITING_CALLS)
        self.counts = RequestCounts()
        self._open: dict[Listener, _OpenListener] = {}
        self._problems: dict[Listener | str, str] = {}

    def close(self, within: float) -> None:
        """Close every listener after its requests in progress."""
        for listener in list(self._open):
            self._close(listener, within)
        self._event_loop.close()
        self._workers.close()
        self._connections.close()

    @property
    def ports(self) -> list[int]:
        """The ports that the host listens on now."""
        return sorted(opened.server.port for opened in self._open.values())

    @property
    def connections(self) -> dict[int, int]:
        """The number of open connections of each port."""
        return {opened.server.port: opened.server.connections for opened in list(self._open.values())}

    @property
    def problems(self) -> list[str]:
        """The problems that keep the host from serving its locations."""
        return list(self._problems.values())

    def serve(self, deployed: list[ReceiveLocation]) -> bool:
        """Serve these locations from now on. Return False if a port cannot be opened now."""
        ports: defaultdict[tuple[str, int], list[tuple[HttpReceive, ReceiveLocation]]] = defaultdict(list)
        for location in deployed:
            try:
                adapter = location.adapter
            except DefinitionError as error:
                self._warn(location.name, str(error))  # and serve the other locations
                continue
            if isinstance(adapter, HttpReceive):
                ports[adapter.listen, adapter.port].append((adapter, location))
        listeners = {
            Listener.of([definition for definition, _ in deployed_at], self._home): {
                definition.path: location for definition, location in deployed_at
            }
            for deployed_at in ports.values()
        }
        for listener in self._open.keys() - listeners.keys():
            self._close(listener, within=self._answer_within + _CLOSE_SECONDS)
        for listener, locations in listeners.items():
            opened = self._open.get(listener)
            if opened is not None:
                opened.requests.locations = locations
                self._reload_tls(listener, opened)
            else:
                self._listen(listener, locations)
        return self._open.keys() == listeners.keys()

    def _listen(self, listener: Listener, locations: Locations) -> None:
        requests = HttpRequests(self._connections, self._throttle, self._workers, self._two_way, self.counts)
        requests.locations = locations
        try:
            # The versions first: a file that changes now is read again at the next poll.
            tls_versions = None if listener.tls is None else listener.tls.read_versions()
            tls = None if listener.tls is None else listener.tls.create_context()
            limits = ConnectionLimits(timeout=listener.timeout, client_connections=listener.client_connections)
            server = HttpServer(
                listener.listen,
                listener.port,
                requests,
                loop=self._event_loop,
                workers=self._workers,
                tls=tls,
                limits=limits,
            )
        except OSError as error:
            # Another instance of this host may use the port now and release it later.
            self._warn(listener, f"cannot listen on {listener.listen}:{listener.port}: {error}")
            return
        self._problems.pop(listener, None)
        server.start()
        _log.info("listening on %s:%d", listener.listen, server.port)
        self._open[listener] = _OpenListener(server=server, requests=requests, tls_versions=tls_versions)

    def _reload_tls(self, listener: Listener, opened: _OpenListener) -> None:
        """Read the certificates again if their files have changed, so that a renewed certificate needs no restart."""
        if listener.tls is None:
            return
        try:
            versions = listener.tls.read_versions()
            if versions == opened.tls_versions:
                return
            opened.server.replace_tls(listener.tls.create_context())
        except OSError as error:
            # The files may be half written. The next poll reads them again.
            self._warn(listener, f"the certificates of {listener.listen}:{listener.port} cannot be read: {error}")
            return
        opened.tls_versions = versions
        self._problems.pop(listener, None)
        _log.info("the certificates of %s:%d were read again", listener.listen, listener.port)

    def _warn(self, source: Listener | str, problem: str) -> None:
        """Log a problem once, not at every poll."""
        if self._problems.get(source) != problem:
            _log.warning("%s", problem)
        self._problems[source] = problem

    def _close(self, listener: Listener, within: float) -> None:
        self._open.pop(listener).server.stop(within, answer_within=self._answer_within)
        _log.info("no longer listening on %s:%d", listener.listen, listener.port)
