"""Resumed inbound instances: through the receive pipeline once more, or straight to publishing.

A host that dequeues such a row calls in here; publishing and completing the row are one transaction. A failure is
raised, and the host suspends the row again with the new reason.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

import psycopg

from postroom.agent.identity import Kind, derive_id
from postroom.agent.interchange import Interchange
from postroom.agent.receiving import Receiver
from postroom.agent.routing import RoutingTable
from postroom.agent.wake_up import WakeUp
from postroom.errors import PipelineFailure, RoutingFailure
from postroom.message import Context, Message
from postroom.messagebox.configuration import ReceiveLocation, receive_locations
from postroom.messagebox.connection import Connection, transaction
from postroom.system_properties import BTS

_STALE, _NOBODY = "PR001", "PR002"

#: Deletes the claimed row, in the transaction that it is given; raises if the claim was taken over.
Complete = Callable[[Connection], None]


class InboundResumer:
    """Takes resumed messages of receive locations up again, over one connection."""

    def __init__(self, connection: Connection, routing: RoutingTable) -> None:
        self._connection = connection
        self._routing = routing
        self._wake_up = WakeUp(connection)
        self._receiver = Receiver(connection, routing, self._wake_up)

    def receive(self, location_id: uuid.UUID | None, message: Message, complete: Complete) -> None:
        """The original bytes through the location's pipeline, from its start (NRF-05)."""
        location = self._location(location_id)
        assert message.body is not None
        written = {
            key: value for key, value in {**message.context.written}.items() if key != BTS.ReceiveLocationName.key
        }
        interchange = Interchange(interchange_id=uuid.uuid4(), body=message.body.body, context=Context(written=written))

        def work(connection: Connection) -> None:
            self._receiver.receive_again(connection, location, interchange)
            complete(connection)

        transaction(self._connection, work)
        self._wake_up.flush()

    def publish(self, message: Message, complete: Complete) -> None:
        """A message that has its context already: to whoever subscribes to it now (decision 26.10)."""
        unit = uuid.uuid4()
        part_ids = [part.part_id for part in message.parts]

        def work(connection: Connection) -> set[str]:
            self._routing.catch_up(connection)
            found = [self._routing.subscribers[one] for one in self._routing.match_one(message.context.promoted)]
            if not found:
                raise RoutingFailure("The message still could not be routed: no subscribers were found.")
            connection.execute(
                "SELECT route_message(%s, %s, %s, %s, %s, %s)",
                (
                    *(unit, self._routing.version, message.message_id, part_ids),
                    [one.subscription_id for one in found],
                    [derive_id(unit, Kind.INSTANCE, number) for number in range(len(found))],
                ),
            )
            complete(connection)
            return {self._routing.host_names[one.host_id] for one in found if one.started}

        while True:
            try:
                hosts = transaction(self._connection, work)
                break
            except psycopg.Error as error:
                if error.sqlstate == _NOBODY:
                    raise RoutingFailure("No host that subscribes may receive the message.") from error
                if error.sqlstate != _STALE:
                    raise
        self._wake_up.send(hosts)

    def _location(self, location_id: uuid.UUID | None) -> ReceiveLocation:
        for location in receive_locations(self._connection):
            if location.location_id == location_id:
                return location
        raise PipelineFailure(
            "The receive location of this message is not deployed any more.",
            hint="Apply an application with that location, or terminate the instance.",
        )
