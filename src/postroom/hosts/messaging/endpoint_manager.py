"""The Endpoint Manager: delivers messages to send ports, and resumes inbound messages at their receive location.

It opens the adapter of a send port at its first message, and reads the ports again after a change of configuration.
"""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path

from postroom.adapters import Attempt, PortAdapter, SendAdapter, build
from postroom.agent.resuming import ResumedInbound
from postroom.backoff import Backoff
from postroom.clock import Clock, system_clock
from postroom.errors import ClaimLost, PostroomError, ReadInterrupted, Unavailable
from postroom.hosts.dequeue.service import Disposition, Outcome, ThreadConnections
from postroom.hosts.messaging.acknowledgements import Acknowledgements
from postroom.hosts.messaging.failures import MessagingFailures, describe_sent
from postroom.hosts.messaging.transports import count_remaining_retries, get_transport_index, wait_for_service_window
from postroom.message import Message
from postroom.messagebox.configuration import Host, SendPort, Transport, read_removed_name, read_send_ports
from postroom.messagebox.connection import Connection
from postroom.messagebox.queues import ClaimedMessage, HostQueues, Suspension
from postroom.messagebox.storage.copy_rows import QueueTask
from postroom.messagebox.storage.stored_messages import build_message
from postroom.system_properties import BTS

_DELIVER = QueueTask.DELIVER
_ACK_REQUIRED = BTS.AckRequired.key
_ACK_BACKOFF = Backoff(first=0.1, longest=5.0)
_ACK_RETRIES = 8

#: Builds the adapter of a port from its configuration. The adapter is not open yet.
BuildAdapter = Callable[[PortAdapter, Path], SendAdapter]


class EndpointManager:
    """The service of the messaging service class."""

    def __init__(
        self,
        *,
        host: Host,
        ports: OpenSendPorts,
        queues: HostQueues,
        resumed: ResumedInbound,
        clock: Clock = system_clock,
    ) -> None:
        self._ports = ports
        self._queues = queues
        self._resumed = resumed
        self._clock = clock
        self._acknowledgements = Acknowledgements(host, queues, clock)
        self._failures = MessagingFailures(queues, self._acknowledgements, clock)

    def prepare(self, connection: Connection, claimed: Sequence[ClaimedMessage]) -> None:
        services = {message.service for message in claimed if message.task == _DELIVER and message.service is not None}
        self._ports.refresh(connection, claimed[0].routing_version, services)

    def handle(self, claimed: ClaimedMessage, connections: ThreadConnections) -> Outcome:
        if claimed.task == _DELIVER:
            return self._deliver(claimed, connections)
        if claimed.task == QueueTask.JOIN_INSTANCE:
            return Suspension(
                code="NO_RECEIVER",
                description="This host instance has no service for the instance that the message belongs to.\n"
                "Resume it when a host instance with the service runs.",
            )
        return self._receive(claimed, connections)

    def close(self) -> None:
        self._ports.close()

    def _deliver(self, claimed: ClaimedMessage, connections: ThreadConnections) -> Outcome:
        port = self._ports.borrow(claimed.service)
        if port is None:
            return _suspend_for_removed_port(claimed, connections)
        try:
            transport = port.choose_transport(claimed)
            if transport.settings.service_window is not None and (
                waiting := wait_for_service_window(transport.settings.service_window, port.port.name, self._clock())
            ):
                return waiting
            message = build_message(claimed, connections, transport.get_context_values(claimed))
            attempt = Attempt(instance_id=claimed.instance_id, number=claimed.attempt + 1, group=claimed.group)
            outgoing = port.process(message)
            if outgoing is not None:
                transport.shared.get_open().send(outgoing, attempt)
            if claimed.context and _ACK_REQUIRED in claimed.context:
                return self._acknowledge(port.port, claimed, connections)
        except ClaimLost:
            return Disposition.DISCARD
        except ReadInterrupted:
            return Disposition.RELEASE
        except Exception as error:
            return self._failures.handle_send_failure(port.port, claimed, connections, error)
        finally:
            self._ports.release(port)
        return Disposition.COMPLETE

    def _acknowledge(self, port: SendPort, claimed: ClaimedMessage, connections: ThreadConnections) -> Outcome:
        """Complete a sent message, with an ACK if its publisher wants one.

        A MessageBox that is unavailable is tried again for some seconds, because a retry would send the message
        again."""
        sent = describe_sent(port, claimed)
        for failures in itertools.count(1):
            try:
                connection = connections.get_writing()
                if sent is None or not self._acknowledgements.is_ack_wanted(connection, sent):
                    return Disposition.COMPLETE
                self._acknowledgements.complete(connection, claimed, sent)
                break
            except Unavailable:
                if failures > _ACK_RETRIES:
                    raise
                time.sleep(_ACK_BACKOFF.delay(failures))
        return Disposition.FINISHED

    def _receive(self, claimed: ClaimedMessage, connections: ThreadConnections) -> Outcome:
        def complete(connection: Connection) -> None:
            if self._queues.complete(connection, claimed.claim_id, [claimed.seq]) != 1:
                raise ClaimLost("Another host instance has taken over the message.")

        try:
            self._resumed.handle(connections.get_writing(), claimed, build_message(claimed, connections), complete)
        except ClaimLost:
            return Disposition.DISCARD
        except Exception as error:
            return self._failures.handle_resume_failure(claimed, connections, error)
        return Disposition.FINISHED


def _suspend_for_removed_port(claimed: ClaimedMessage, connections: ThreadConnections) -> Suspension:
    name = None
    with suppress(PostroomError):
        name = read_removed_name(connections.get_writing(), claimed.service_id)
    port = repr(name) if name is not None else f"with the id {claimed.service_id}"
    return Suspension(
        code="PORT_GONE",
        description=f"The send port {port} was removed after the message was queued for it.\n"
        "Reroute the instance, terminate it, or apply an application that has the port again and resume it.",
    )


class _SharedAdapter:
    """An adapter that is opened at its first use, and closed when it is retired and has no users."""

    def __init__(self, make: Callable[[], SendAdapter]) -> None:
        self._make = make
        self._opening = threading.Lock()
        self._adapter: SendAdapter | None = None
        self.users = 0
        self.retired = False

    def get_open(self) -> SendAdapter:
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


class OpenTransport:
    """The primary or the backup transport of a send port, with its adapter."""

    def __init__(self, port: SendPort, settings: Transport, shared: _SharedAdapter) -> None:
        self.settings = settings
        self.shared = shared
        self._values: dict[str, str | int] = {
            BTS.SPName.key: port.name,
            BTS.SPID.key: str(port.port_id),
            BTS.RetryInterval.key: int(settings.retry_interval.total_seconds() // 60),
        }
        if settings.adapter_type.is_dynamic:
            self._values[BTS.IsDynamicSend.key] = True
        else:
            self._values[BTS.OutboundTransportLocation.key] = settings.uri
            self._values[BTS.OutboundTransportType.key] = settings.adapter_type.transport_type
        self._by_remaining: dict[int, dict[str, str | int]] = {}

    def get_context_values(self, claimed: ClaimedMessage) -> dict[str, str | int]:
        """Return the properties that are written to the context of a message for its next attempt, by key."""
        remaining = count_remaining_retries(self.settings, claimed)
        values = self._by_remaining.get(remaining)
        if values is None:
            values = self._by_remaining[remaining] = {**self._values, BTS.RetryCount.key: remaining}
        return values


class OpenSendPort:
    """A send port with its current configuration, and its transports: the primary, and the backup if it has one."""

    def __init__(self, port: SendPort, transports: Sequence[OpenTransport]) -> None:
        self.port = port
        self.transports = transports

    def choose_transport(self, claimed: ClaimedMessage) -> OpenTransport:
        """Return the transport of the next attempt."""
        return self.transports[get_transport_index(claimed)]

    def process(self, message: Message) -> Message | None:
        """Apply the maps and the send pipeline of the port. Return None if the pipeline consumed the message. Raise
        MessageFailure, which is not retried, if one of them fails (SND-03)."""
        mapped = self.port.maps.running.map_message(message) if self.port.has_maps else message
        return self.port.pipeline.run(mapped)


class OpenSendPorts:
    """The open send ports of a host instance. ``borrow`` a port, use its adapter, ``release`` it."""

    def __init__(self, *, home: Path, max_age: timedelta, build_adapter: BuildAdapter = build) -> None:
        self._home = home
        self._max_age = max_age.total_seconds()
        self._build = build_adapter
        self._lock = threading.Lock()
        # By the bytes of the port id, which are hashed faster than a UUID.
        self._ports: dict[bytes, OpenSendPort] = {}
        self._version = -1
        self._read_at = 0.0

    def refresh(self, connection: Connection, routing_version: int, services: Iterable[bytes]) -> None:
        """Read the ports that are not known, and all ports if the routing version changed or they are too old."""
        unknown = {service for service in services if service not in self._ports}
        stale = routing_version != self._version or time.monotonic() - self._read_at > self._max_age
        if not unknown and not stale:
            return
        to_read = unknown | self._ports.keys() if stale else unknown
        ids = [uuid.UUID(bytes=service) for service in to_read]
        found = {port.port_id.bytes: port for port in read_send_ports(connection, ids=ids)}
        with self._lock:
            unused = [shared for service in to_read for shared in self._set(service, found.get(service))]
            if stale:
                self._version, self._read_at = routing_version, time.monotonic()
        for shared in unused:
            shared.close()

    def _set(self, service: bytes, port: SendPort | None) -> list[_SharedAdapter]:
        """Replace a port, under the lock. Return the adapters that the caller has to close."""
        known = self._ports.pop(service, None)
        unused = [] if known is None else list(known.transports)
        if port is not None:
            transports = []
            for settings in port.transports:
                same = next((each for each in unused if each.settings.adapter_json == settings.adapter_json), None)
                if same is not None:
                    unused.remove(same)
                shared = same.shared if same is not None else _SharedAdapter(partial(self._make, settings))
                transports.append(OpenTransport(port, settings, shared))
            self._ports[service] = OpenSendPort(port, transports)
        return list(filter(None, (self._retire(transport.shared) for transport in unused)))

    def _make(self, transport: Transport) -> SendAdapter:
        return self._build(transport.adapter, self._home)

    @staticmethod
    def _retire(shared: _SharedAdapter) -> _SharedAdapter | None:
        shared.retired = True
        return shared if shared.users == 0 else None

    def borrow(self, service: bytes | None) -> OpenSendPort | None:
        """Return the port with these id bytes, or None if it does not exist. The caller has to ``release`` it."""
        with self._lock:
            port = self._ports.get(service) if service is not None else None
            if port is not None:
                for transport in port.transports:
                    transport.shared.users += 1
            return port

    def release(self, port: OpenSendPort) -> None:
        with self._lock:
            for transport in port.transports:
                transport.shared.users -= 1
            unused = [each.shared for each in port.transports if each.shared.retired and each.shared.users == 0]
        for shared in unused:
            shared.close()

    def close(self) -> None:
        with self._lock:
            transports = [transport for port in self._ports.values() for transport in port.transports]
            unused = [self._retire(transport.shared) for transport in transports]
            self._ports.clear()
        for shared in filter(None, unused):
            shared.close()
