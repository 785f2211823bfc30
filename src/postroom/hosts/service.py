"""What a host does with the messages of one service class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from postroom.hosts.outcomes import Outcome
from postroom.hosts.thread_connections import ThreadConnections
from postroom.messagebox.connection import Connection
from postroom.messagebox.queues import ClaimedMessage


class Service(Protocol):
    """A subservice: the Endpoint Manager for messaging; others for other service classes."""

    def prepare(self, connection: Connection, claimed: Sequence[ClaimedMessage]) -> None:
        """Called by the poller, on its connection, before it hands out what it claimed: one message at least."""
        ...

    def handle(self, claimed: ClaimedMessage, connections: ThreadConnections) -> Outcome:
        """Called by a dequeue thread, with connections of its own. Never raises because of the message."""
        ...

    def close(self) -> None: ...
