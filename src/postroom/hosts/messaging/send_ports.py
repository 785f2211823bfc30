"""The send ports that a host instance serves, with their adapters opened; read again when something changed."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from pathlib import Path

from postroom.adapters import PortAdapter, SendAdapter, build
from postroom.adapters.dynamic.addresses import Endpoint, endpoint_of
from postroom.maps.outbound import map_message
from postroom.message import Message
from postroom.messagebox.configuration import SendPort, send_ports
from postroom.messagebox.connection import Connection
from postroom.messagebox.storage.stored_context import StoredContext
from postroom.system_properties import BTS

#: From what the configuration says of a port's adapter to the adapter, not yet opened.
BuildAdapter = Callable[[PortAdapter, Path], SendAdapter]


class _SharedAdapter:
    """An adapter that is opened at its first use, and closed when it is retired and nobody uses it any more."""

    def __init__(self, make: Callable[[], SendAdapter]) -> None:
        self._make = make
        self._opening = threading.Lock()
        self._adapter: SendAdapter | None = None
        self.users = 0
        self.retired = False

    def opened(self) -> SendAdapter:
        if self._adapter is None:
            with self._opening:
                if self._adapter is None:
                    adapter = self._make()
                    adapter.open()
                    self._adapter = adapter
        return self._adapter

    def close(self) -> None:
        if self._adapter is not None:
            self._adapter.close()


class OpenSendPort:
    """A send port as it is configured now, and its adapter."""

    def __init__(self, port: SendPort, shared: _SharedAdapter) -> None:
        self.port = port
        self.shared = shared
        self._written: dict[str, str | int] = {
            BTS.SPName.key: port.name,
            BTS.SPID.key: str(port.port_id),
            BTS.RetryInterval.key: int(port.retry_interval.total_seconds() // 60),
        }
        if port.adapter_type.is_dynamic:
            self._written[BTS.IsDynamicSend.key] = True
        else:
            self._written[BTS.OutboundTransportLocation.key] = port.uri
            self._written[BTS.OutboundTransportType.key] = port.adapter_type.transport_type
        self._by_attempt: dict[int, dict[str, str | int]] = {}

    def written(self, attempt: int) -> dict[str, str | int]:
        """What the adapter finds in the context of every message that goes through this port for the n-th time."""
        known = self._by_attempt.get(attempt)
        if known is None:
            remaining = max(0, self.port.retry_count - attempt)
            known = self._by_attempt[attempt] = {**self._written, BTS.RetryCount.key: remaining}
        return known

    def prepared(self, message: Message) -> Message:
        """The message as the adapter is to send it; MessageFailure, which trying again does not help."""
        return map_message(self.port.maps, message)

    def endpoint(self, context: str | None) -> Endpoint:
        """Adapter and address of a message with this stored context: the port's, or those that the message brings."""
        if self.port.adapter_type.is_dynamic and context is not None:
            return endpoint_of(StoredContext(context, {}))
        return Endpoint(self.port.adapter_kind, self.port.uri)


class OpenSendPorts:
    """Borrow a port, use its adapter, give it back."""

    def __init__(self, *, home: Path, max_age: timedelta, build_adapter: BuildAdapter = build) -> None:
        self._home = home
        self._max_age = max_age.total_seconds()
        self._build = build_adapter
        self._lock = threading.Lock()
        # By the bytes of their ids, which are hashed faster than the ids.
        self._ports: dict[bytes, OpenSendPort] = {}
        self._version = -1
        self._read_at = 0.0

    def refresh(self, connection: Connection, routing_version: int, wanted: Iterable[bytes]) -> None:
        """Reads the wanted ports that are not known; all known ones too if the version changed or they are old."""
        unknown = {service for service in wanted if service not in self._ports}
        stale = routing_version != self._version or time.monotonic() - self._read_at > self._max_age
        if not unknown and not stale:
            return
        asked = unknown | self._ports.keys() if stale else unknown
        ids = [uuid.UUID(bytes=service) for service in asked]
        found = {port.port_id.bytes: port for port in send_ports(connection, ids=ids)}
        with self._lock:
            unused = [self._set(service, found.get(service)) for service in asked]
            if stale:
                self._version, self._read_at = routing_version, time.monotonic()
        for shared in filter(None, unused):
            shared.close()

    def _set(self, service: bytes, port: SendPort | None) -> _SharedAdapter | None:
        """Replaces what is known of a port, under the lock; returns an adapter that is to be closed now."""
        known = self._ports.pop(service, None)
        if port is not None and known is not None and known.port.adapter_json == port.adapter_json:
            self._ports[service] = OpenSendPort(port, known.shared)
            return None
        if port is not None:
            self._ports[service] = OpenSendPort(port, _SharedAdapter(partial(self._make, port)))
        return self._retire(known.shared) if known is not None else None

    def _make(self, port: SendPort) -> SendAdapter:
        return self._build(port.adapter, self._home)

    @staticmethod
    def _retire(shared: _SharedAdapter) -> _SharedAdapter | None:
        shared.retired = True
        return shared if shared.users == 0 else None

    def borrow(self, service: bytes | None) -> OpenSendPort | None:
        """The port whose id has these bytes, to be given back; None if there is none."""
        with self._lock:
            port = self._ports.get(service) if service is not None else None
            if port is not None:
                port.shared.users += 1
            return port

    def give_back(self, port: OpenSendPort) -> None:
        shared = port.shared
        with self._lock:
            shared.users -= 1
            unused = shared.retired and shared.users == 0
        if unused:
            shared.close()

    def close(self) -> None:
        with self._lock:
            unused = [self._retire(port.shared) for port in self._ports.values()]
            self._ports.clear()
        for shared in filter(None, unused):
            shared.close()
