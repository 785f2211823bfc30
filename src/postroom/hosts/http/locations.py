"""The HTTP receive locations of a host: a listener for each port, open while a location is deployed for it."""

from __future__ import annotations

import logging
import ssl
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from postroom.adapters.http.receive_definition import HttpReceive
from postroom.adapters.http.server import HttpServer, Limits
from postroom.background_loop import BackgroundLoop
from postroom.errors import DefinitionError
from postroom.hosts.http.requests import HttpRequests, Locations
from postroom.hosts.http.shared_connections import SharedConnections
from postroom.messagebox.configuration import ReceiveLocation, read_receive_locations
from postroom.messagebox.connection import Connect, LazyConnection
from postroom.messagebox.streams.throttling import ThrottleWatch

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
_CONNECTIONS = 10


@dataclass(frozen=True, kw_only=True)
class Listener:
    """A port that is listened on, for all the locations that have it."""

    listen: str
    port: int
    certificate: tuple[Path, Path] | None
    timeout: float

    @classmethod
    def of(cls, definitions: list[HttpReceive], home: Path) -> Listener:
        # Two of one port do not differ in more than the timeout: plan refuses that.
        return cls(
            listen=definitions[0].listen,
            port=definitions[0].port,
            certificate=definitions[0].certificate_files(home),
            timeout=min(one.timeout for one in definitions),
        )


@dataclass(kw_only=True)
class _Open:
    server: HttpServer
    requests: HttpRequests


class HttpLocations:
    """Opens and closes listeners as the configuration says, and tells them which locations there are.

    A location that is disabled answers 503, so that its senders keep what they have and come again.
    """

    def __init__(self, *, connect: Connect, host_id: int, home: Path) -> None:
        self._host_id = host_id
        self._home = home
        self._throttle = ThrottleWatch(host_id)
        self._configuration = LazyConnection(connect)
        self._connections = SharedConnections(connect, _CONNECTIONS)
        self._open: dict[Listener, _Open] = {}
        self._problems: dict[Listener | str, str] = {}
        self.loop = BackgroundLoop("http locations", self._step)

    def close(self, within: float) -> None:
        """Ends every listener; what is under way is answered. To be called after the loop has ended."""
        for listener in list(self._open):
            self._close(listener, within)
        self._connections.close()
        self._configuration.close()

    @property
    def ports(self) -> list[int]:
        """Where it listens now."""
        return sorted(each.server.port for each in self._open.values())

    def _step(self) -> float:
        self.follow(read_receive_locations(self._configuration.get(), host_id=self._host_id))
        return _LOOK_SECONDS

    def follow(self, deployed: list[ReceiveLocation]) -> None:
        """Serves these locations from now on."""
        ports: defaultdict[tuple[str, int], list[tuple[HttpReceive, ReceiveLocation]]] = defaultdict(list)
        for location in deployed:
            try:
                adapter = location.adapter
            except DefinitionError as error:
                self._warn(location.name, str(error))  # and serve the others
                continue
            if isinstance(adapter, HttpReceive):
                ports[adapter.listen, adapter.port].append((adapter, location))
        wanted = {
            Listener.of([definition for definition, _ in there], self._home): {
                definition.path: location for definition, location in there
            }
            for there in ports.values()
        }
        for listener in self._open.keys() - wanted.keys():
            self._close(listener, within=5.0)
        for listener, locations in wanted.items():
            opened = self._open.get(listener)
            if opened is not None:
                opened.requests.locations = locations
            else:
                self._listen(listener, locations)

    def _listen(self, listener: Listener, locations: Locations) -> None:
        requests = HttpRequests(self._connections, self._throttle)
        requests.locations = locations
        try:
            tls = None if listener.certificate is None else _tls(*listener.certificate)
            limits = Limits(timeout=listener.timeout)
            server = HttpServer(listener.listen, listener.port, requests, tls=tls, limits=limits)
        except OSError as error:
            # Another instance of this host may have the port, and end some day.
            self._warn(listener, f"{listener.listen}:{listener.port} cannot be listened on: {error}")
            return
        self._problems.pop(listener, None)
        server.start()
        _log.info("listening on %s:%d", listener.listen, server.port)
        self._open[listener] = _Open(server=server, requests=requests)

    def _warn(self, source: Listener | str, problem: str) -> None:
        """Log a problem, but not again at every look."""
        if self._problems.get(source) != problem:
            _log.warning("%s", problem)
        self._problems[source] = problem

    def _close(self, listener: Listener, within: float) -> None:
        self._open.pop(listener).server.stop(within)
        _log.info("no longer listening on %s:%d", listener.listen, listener.port)


def _tls(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context
