"""The HTTP receive locations of a host: one listener for each port that a deployed location uses."""

from __future__ import annotations

import logging
import time
import uuid
from collections import defaultdict
from collections.abc import Hashable
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
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.http.requests import HttpRequests, Locations, RequestCounts
from postroom.receiving.http.shared_connections import SharedConnections
from postroom.receiving.http.two_way_requests import TwoWayRequests
from postroom.receiving.location_runner import LocationRunner, Running
from postroom.throttling.process_load import find_process_limits
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

    @property
    def name(self) -> str:
        return f"{self.listen}:{self.port}"

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
class _OpenListener(Running):
    listener: Listener
    server: HttpServer
    requests: HttpRequests
    tls_versions: tuple[tuple[int, int], ...] | None
    answer_within: float

    def stop(self) -> None:
        """Accept no more requests, and end after those in progress."""
        self.server.stop(max(0.0, self.finish_by - time.monotonic()), answer_within=self.answer_within)

    def reload_tls(self) -> None:
        """Read the certificates again if their files have changed, so that a renewed certificate needs no restart."""
        if self.listener.tls is None:
            return
        versions = self.listener.tls.read_versions()
        if versions != self.tls_versions:
            self.server.replace_tls(self.listener.tls.create_context())
            self.tls_versions = versions
            _log.info("the certificates of %s were read again", self.listener.name)


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
        within = answer_within + _CLOSE_SECONDS
        self._listeners = LocationRunner(self._listen, stop_seconds=within, finish_within=within)
        #: The deployed locations of each listener.
        self._locations: dict[Hashable, Locations] = {}

    def close(self, within: float) -> None:
        """Close every listener after its requests in progress."""
        self._listeners.stop(within)
        self._listeners.join()
        self._event_loop.close()
        self._workers.close()
        self._connections.close()

    @property
    def ports(self) -> list[int]:
        """The ports that the host listens on now."""
        return sorted(self.connections)

    @property
    def connections(self) -> dict[int, int]:
        """The number of open connections of each port."""
        return {opened.server.port: opened.server.connections for opened in self._listeners.running.copy().values()}

    @property
    def enabled_ids(self) -> set[uuid.UUID]:
        """The ids of the enabled locations that the host listens for, or should listen for."""
        served = (self._locations.get(key, {}) for key in [*self._listeners.running, *self._listeners.problems])
        return {one.location_id for locations in served for one in locations.values() if one.enabled}

    @property
    def problems(self) -> dict[uuid.UUID, str]:
        """The problems that keep the host from serving its locations, by the ids of these."""
        found: dict[uuid.UUID, str] = {}
        for key, problem in self._listeners.problems.copy().items():
            served = [key] if isinstance(key, uuid.UUID) else [one.location_id for one in self._locations[key].values()]
            found |= dict.fromkeys(served, problem)
        return found

    def serve(self, deployed: list[ReceiveLocation]) -> bool:
        """Serve these locations from now on. Return False if one of them cannot be served now."""
        wanted: dict[Hashable, Listener | ReceiveLocation] = {}
        ports: defaultdict[str, list[tuple[HttpReceive, ReceiveLocation]]] = defaultdict(list)
        for location in deployed:
            try:
                adapter = location.adapter
            except DefinitionError:
                wanted[location.location_id] = location  # reported when it is started
            else:
                assert isinstance(adapter, HttpReceive), "no other adapter is received by a listener"
                ports[f"{adapter.listen}:{adapter.port}"].append((adapter, location))
        for address, deployed_at in ports.items():
            wanted[address] = Listener.of([definition for definition, _ in deployed_at], self._home)
            self._locations[address] = {definition.path: location for definition, location in deployed_at}
        is_complete = self._listeners.apply(wanted)
        for key, opened in self._listeners.running.items():
            opened.requests.locations = self._locations[key]
            try:
                opened.reload_tls()
            except OSError as error:
                # The files may be half written. The next poll reads them again.
                self._listeners.warn(key, f"the certificates of {key} cannot be read: {error}")
            else:
                self._listeners.problems.pop(key, None)
        return is_complete

    def _listen(self, listener: Listener | ReceiveLocation) -> _OpenListener:
        if isinstance(listener, ReceiveLocation):
            assert isinstance(listener.adapter, HttpReceive)  # raises why it cannot be loaded
            listener = Listener.of([listener.adapter], self._home)
        requests = HttpRequests(self._connections, self._throttle, self._workers, self._two_way, self.counts)
        requests.locations = self._locations[listener.name]
        # The versions first: a file that changes now is read again at the next poll.
        tls_versions = None if listener.tls is None else listener.tls.read_versions()
        # It fails if another instance of this host uses the port now.
        server = HttpServer(
            listener.listen,
            listener.port,
            requests,
            loop=self._event_loop,
            workers=self._workers,
            tls=None if listener.tls is None else listener.tls.create_context(),
            limits=ConnectionLimits(timeout=listener.timeout, client_connections=listener.client_connections),
        )
        server.start()
        _log.info("listening on %s:%d", listener.listen, server.port)
        return _OpenListener(
            listener=listener,
            server=server,
            requests=requests,
            tls_versions=tls_versions,
            answer_within=self._answer_within,
        )
