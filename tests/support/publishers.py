"""Publish orders in each of the three ways in which subscriptions are matched."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from postroom.agent.direct.direct_agent import DirectAgent
from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.receiver import Receiver
from postroom.errors import PublishFailed
from postroom.message import Message
from postroom.messagebox.connection import Connection
from postroom.ports.receive_locations import ReceiveLocation
from tests.support.box import PROMOTE, Box, interchange

_PROPERTIES = {name: prop for prop, name in PROMOTE.items()}


class PublishPath(Enum):
    """How a publish matches subscriptions: by the index in memory, by the procedure, or as a batch in columns."""

    INDEX = "index"
    PROCEDURE = "procedure"
    STREAMING = "streaming"


class Publisher:
    """Publishes orders, given as mappings of ``region``, ``total`` and ``priority``, over one connection."""

    def __init__(
        self, box: Box, publish_path: PublishPath, connection: Connection, location: ReceiveLocation | None
    ) -> None:
        routing = RoutingTable()
        self._agent = DirectAgent(connection, box.host(), None if publish_path is PublishPath.PROCEDURE else routing)
        self._receiver = Receiver(connection, routing)
        self._location = location if publish_path is PublishPath.STREAMING else None

    def publish(self, *orders: Mapping[str, Any]) -> int:
        """Publish all orders in one transaction. Return the number of orders that were routed."""
        if self._location is not None:
            body = b"\n".join(json.dumps(order, default=str).encode() for order in orders)
            return self._receiver.receive(self._location, [interchange(body)])[0].published
        messages = [
            Message.of(b"{}", promoted={_PROPERTIES[name]: value for name, value in order.items()}) for order in orders
        ]
        try:
            return len(self._agent.publish(messages))
        except PublishFailed:
            return 0


def read_queued_numbers(box: Box) -> dict[Any, list[int]]:
    """Return the queue numbers of the messages of each instance, in order."""
    rows: Sequence[tuple[Any, list[int]]] = box.connection.execute(
        "SELECT instance_id, array_agg(seq ORDER BY seq) FROM instances"
        " WHERE cause IS DISTINCT FROM 'routing failure report' GROUP BY 1 ORDER BY min(seq)"
    ).fetchall()
    return dict(rows)


def is_waiting_for_lock(box: Box, connection: Connection) -> bool:
    """Return whether the statement of this connection waits for another transaction."""
    return bool(box.one("SELECT cardinality(pg_blocking_pids(%s)) > 0", connection.info.backend_pid))
