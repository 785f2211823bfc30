"""The send ports that a host instance delivers to, with their open adapters.

The adapter of a transport is opened at its first message. The ports are read again after a change of configuration.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from postroom.adapters import SendAdapter, SendDefinition, build
from postroom.errors import PostroomError
from postroom.hosts.dequeue.processing import UNLIMITED, Limits
from postroom.hosts.messaging.delivery_times import count_remaining_retries, get_transport_index
from postroom.hosts.messaging.response_waits import BeginsToSend
from postroom.message import Message
from postroom.messagebox.connection import Connection
from postroom.messagebox.queues import ClaimedMessage
from postroom.ports.send_ports import SendPort, Transport, read_send_ports
from postroom.system_properties import BTS

#: Builds the adapter of a port from its configuration. The adapter is not open yet.
BuildAdapter = Callable[[SendDefinition, Path], SendAdapter]


class SharedAdapter:
    """An adapter that is opened at its first use, and closed when no open port has it any more."""

    def __init__(self, make: Callable[[], SendAdapter]) -> None:
        self._make = make
        self._opening = threading.Lock()
        self._adapter: SendAdapter | None = None
        #: The number of open ports that have it: the current one, and replaced ones that are still used.
        self.ports = 0
        #: The adapter, if it can return before its receiver has answered. Known when it is open.
        self.begins: BeginsToSend | None = None

    def get_open(self) -> SendAdapter:
        if self._adapter is None:
            with self._opening:
                if self._adapter is None:
                    adapter = self._make()
                    adapter.open()
                    self.begins = adapter if isinstance(adapter, BeginsToSend) else None
                    self._adapter = adapter
        return self._adapter

    def close(self) -> None:
        if self._adapter is not None:
            self._adapter.close()


class OpenTransport:
    """The primary or the backup transport of a send port, with its adapter."""

    def __init__(self, port: SendPort, transport: Transport, shared: SharedAdapter) -> None:
        self.transport = transport
        self.shared = shared
        self._values: dict[str, str | int] = {
            BTS.SPName.key: port.name,
            BTS.SPID.key: str(port.port_id),
            BTS.RetryInterval.key: int(transport.settings.retry.interval // 60),
        }
        if transport.is_dynamic:
            self._values[BTS.IsDynamicSend.key] = True
        else:
            self._values[BTS.OutboundTransportLocation.key] = transport.uri
            self._values[BTS.OutboundTransportType.key] = transport.adapter_type.transport_type
        self._by_remaining: dict[int, dict[str, str | int]] = {}

    def get_context_values(self, claimed: ClaimedMessage) -> dict[str, Any]:
        """Return the properties that are written to the context of a message for its next attempt, by key. Those that
        the adapter updated in an earlier attempt are the last."""
        remaining = count_remaining_retries(self.transport, claimed)
        values = self._by_remaining.get(remaining)
        if values is None:
            values = self._by_remaining[remaining] = {**self._values, BTS.RetryCount.key: remaining}
        return values if claimed.properties is None else {**values, **json.loads(claimed.properties)}


class OpenSendPort:
    """A send port with its current configuration, and its transports: the primary, and the backup if it has one."""

    def __init__(self, port: SendPort, transports: Sequence[OpenTransport]) -> None:
        self.port = port
        self.transports = transports
        sends = [limit for each in port.transports if (limit := _find_send_limit(each)) is not None]
        self.limits = Limits(batch=port.adapter_type.max_batch, sends=min(sends, default=None))
        #: The number of threads that use the port, and one while it is the current one.
        self.users = 1
        for transport in transports:
            transport.shared.ports += 1

    def choose_transport(self, claimed: ClaimedMessage) -> OpenTransport:
        """Return the transport of the next attempt."""
        return self.transports[get_transport_index(claimed)]

    def process(self, message: Message) -> Message | None:
        """Apply the maps and the send pipeline of the port. Return None if the pipeline consumed the message. Raise
        MessageFailure, which is not retried, if one of them fails (SND-03)."""
        mapped = self.port.maps.running.map_message(message) if self.port.has_maps else message
        return self.port.pipeline.run(mapped)


def _find_send_limit(transport: Transport) -> int | None:
    with suppress(PostroomError):  # each message reports why the adapter cannot be built
        return transport.adapter.send_limit
    return None


class OpenSendPorts:
    """The open send ports of a host instance. ``borrow`` a port, use its adapter, ``release`` it."""

    def __init__(self, *, home: Path, build_adapter: BuildAdapter = build) -> None:
        self._home = home
        self._build = build_adapter
        self._lock = threading.Lock()
        # By the bytes of the port id, which are hashed faster than a UUID.
        self._ports: dict[bytes, OpenSendPort] = {}
        self._version = -1

    def refresh(self, connection: Connection, routing_version: int, services: Iterable[bytes]) -> None:
        """Read the ports that are not known, and all ports if the routing version has changed."""
        unknown = {service for service in services if service not in self._ports}
        stale = routing_version != self._version
        if not unknown and not stale:
            return
        to_read = unknown | self._ports.keys() if stale else unknown
        ids = [uuid.UUID(bytes=service) for service in to_read]
        found = {port.port_id.bytes: port for port in read_send_ports(connection, ids=ids)}
        with self._lock:
            unused = [shared for service in to_read for shared in self._set(service, found.get(service))]
            if stale:
                self._version = routing_version
        for shared in unused:
            shared.close()

    def _set(self, service: bytes, port: SendPort | None) -> list[SharedAdapter]:
        """Replace a port, under the lock. Return the adapters that the caller has to close."""
        known = self._ports.pop(service, None)
        before = [] if known is None else list(known.transports)
        if port is not None:
            transports = []
            for transport in port.transports:
                same = next((each for each in before if each.transport.adapter_json == transport.adapter_json), None)
                if same is not None:
                    before.remove(same)
                shared = same.shared if same is not None else SharedAdapter(partial(self._make, transport))
                transports.append(OpenTransport(port, transport, shared))
            self._ports[service] = OpenSendPort(port, transports)
        return [] if known is None else self._end_use(known)

    def _make(self, transport: Transport) -> SendAdapter:
        return self._build(transport.adapter, self._home)

    @staticmethod
    def _end_use(port: OpenSendPort) -> list[SharedAdapter]:
        """End one use of a port, under the lock. Return the adapters that the caller has to close."""
        port.users -= 1
        if port.users:
            return []
        for transport in port.transports:
            transport.shared.ports -= 1
        return [transport.shared for transport in port.transports if transport.shared.ports == 0]

    def get_limits(self, service: bytes | None) -> Limits:
        """Return how many messages of this port can be sent together, and at a time."""
        port = self._ports.get(service) if service is not None else None
        return UNLIMITED if port is None else port.limits

    def find_guarded(self, services: Iterable[bytes]) -> list[bytes]:
        """Return those ports that have a circuit breaker."""
        ports = ((service, self._ports.get(service)) for service in services)
        return [
            service for service, port in ports if port is not None and port.port.settings.circuit_breaker is not None
        ]

    def borrow(self, service: bytes | None) -> OpenSendPort | None:
        """Return the port with these id bytes, or None if it does not exist. The caller has to ``release`` it."""
        with self._lock:
            port = self._ports.get(service) if service is not None else None
            if port is not None:
                port.users += 1
            return port

    def release(self, port: OpenSendPort) -> None:
        with self._lock:
            unused = self._end_use(port)
        for shared in unused:
            shared.close()

    def close(self) -> None:
        with self._lock:
            unused = [shared for port in self._ports.values() for shared in self._end_use(port)]
            self._ports.clear()
        for shared in unused:
            shared.close()
