"""What a host does with the messages of one service class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from postroom.hosts.dequeue.outcomes import Outcome
from postroom.hosts.dequeue.thread_connections import ThreadConnections
from postroom.messagebox.configuration import Host
from postroom.messagebox.connection import Connect, Connection
from postroom.messagebox.queues import ClaimedMessage, HostQueues
from postroom.messagebox.service_subscriptions import ServiceSubscriptions


class Service(Protocol):
    """A subservice: the Endpoint Manager for messaging; others for other service classes."""

    def prepare(self, connection: Connection, claimed: Sequence[ClaimedMessage]) -> None:
        """Called by the poller, on its connection, before it hands out what it claimed: one message at least."""
        ...

    def handle(self, claimed: ClaimedMessage, connections: ThreadConnections) -> Outcome:
        """Called by a dequeue thread, with connections of its own. Never raises because of the message."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class ServiceContext:
    """What a service of a host instance works with: its host, the queues to complete messages in, and a way to
    subscribe for its service class. Connections log in as the host."""

    host: Host
    queues: HostQueues
    subscriptions: ServiceSubscriptions
    connect: Connect


#: Makes the service of a service class when a host instance starts.
BuildService = Callable[[ServiceContext], Service]
