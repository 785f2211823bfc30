"""Resumed inbound instances: through the receive pipeline once more, or straight to publishing.

A host that dequeues such a row calls in here; publishing and completing the row are one transaction. A failure is
raised, and the host suspends the row again with the new reason.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable

import psycopg

from postroom.agent.authorised import routing_failure
from postroom.agent.finding import IndexFinder, clear_predicates, instances_for
from postroom.agent.identity import Kind, derive_id
from postroom.agent.kept_documents import taken_up
from postroom.agent.receiving import receive_again
from postroom.agent.reports import RoutingFailureReport, Unroutable, write_reports
from postroom.agent.routing import RoutingTable, StaleRouting
from postroom.agent.wake_up import WakeUp
from postroom.errors import PipelineFailure
from postroom.message import Context, Message
from postroom.messagebox.configuration import ReceiveLocation, host_named, receive_locations
from postroom.messagebox.connection import Connection, transaction
from postroom.messagebox.queues import ClaimedMessage
from postroom.messagebox.writing import Task
from postroom.system_properties import BTS

_STALE, _NOBODY = "PR001", "PR002"

#: Deletes the claimed row, in the transaction that it is given; raises if the claim was taken over.
Complete = Callable[[Connection], None]


class ResumedInbound:
    """Takes resumed inbound messages up again; one at a time, because they share a routing table."""

    def __init__(self, host_name: str) -> None:
        self._host_name = host_name
        self._routing = RoutingTable()
        self._one_at_a_time = threading.Lock()

    def handle(self, connection: Connection, claimed: ClaimedMessage, message: Message, complete: Complete) -> None:
        """Publishes the message and completes its queue row, in one transaction on ``connection``."""
        try:
            with self._one_at_a_time:
                if claimed.task == Task.RECEIVE:
                    hosts = self._receive(connection, claimed, message, complete)
                else:
                    hosts = self._publish(connection, message, complete)
        except Unroutable as failure:
            failure.report_id = self._report(connection, claimed.instance_id, failure)
            raise
        WakeUp(connection).send(hosts)

    def _report(self, connection: Connection, instance_id: uuid.UUID, failure: Unroutable) -> uuid.UUID:
        """Every routing failure has its report (NRF-04); an instance has one, however often it is resumed."""
        row = connection.execute("SELECT report_of(%s)", (instance_id,)).fetchone()
        known: uuid.UUID | None = row[0] if row is not None else None
        if known is not None:
            return known
        host = host_named(connection, self._host_name)
        report = RoutingFailureReport(
            message_id=uuid.uuid4(),
            instance_id=uuid.uuid4(),
            related_instance_id=instance_id,
            host_id=host.host_id,
            context=failure.context,
            description=failure.what,
        )
        transaction(connection, lambda c: write_reports(c, host, [report]))
        return report.instance_id

    def _receive(
        self, connection: Connection, claimed: ClaimedMessage, message: Message, complete: Complete
    ) -> set[str]:
        """The original bytes through the location's pipeline, from its start (NRF-05); those of a document that was
        suspended alone, from where it was stopped."""
        location = _location(connection, claimed.service_id)
        assert claimed.context is not None, "a message that is gone is not handed over"
        resumed = taken_up(message, Context.from_json(claimed.context))

        def work(connection: Connection) -> set[str]:
            hosts = receive_again(connection, self._routing, location, resumed)
            complete(connection)
            return hosts

        while True:
            try:
                return transaction(connection, work)
            except StaleRouting:
                continue

    def _publish(self, connection: Connection, message: Message, complete: Complete) -> set[str]:
        """A message that has its context already: to whoever subscribes to it now (ADR 0020)."""
        unit = uuid.uuid4()

        def work(connection: Connection) -> set[str]:
            routes = IndexFinder(self._routing).find(connection, unit, [message])
            [found] = routes.subscribers
            if not found and not routes.barred:
                what = "The message still could not be routed because no subscribers were found."
                raise Unroutable(what, message.context)
            if not found:
                message_type = message.context.get(BTS.MessageType)
                failure = routing_failure(message_type, message.context.predicates, routes.barred[0])
                raise Unroutable(failure.what, message.context, why=failure.why, hint=failure.hint)
            connection.execute(
                "SELECT route_message(%s, %s, %s, %s, %s, %s)",
                (
                    *(unit, self._routing.version, message.message_id, [part.part_id for part in message.parts]),
                    [one.subscription_id for one in found],
                    instances_for(
                        connection, found, [derive_id(unit, Kind.INSTANCE, number) for number in range(len(found))]
                    ),
                ),
            )
            clear_predicates(connection, unit, [message])
            complete(connection)
            return {one.host_name for one in found if one.started}

        while True:
            self._routing.catch_up(connection)
            try:
                return transaction(connection, work)
            except psycopg.Error as error:
                if error.sqlstate == _NOBODY:
                    raise Unroutable("No host that subscribes may receive the message.", message.context) from error
                if error.sqlstate != _STALE:
                    raise


def _location(connection: Connection, location_id: uuid.UUID | None) -> ReceiveLocation:
    for location in receive_locations(connection):
        if location.location_id == location_id:
            return location
    raise PipelineFailure(
        "The receive location of this message is not deployed any more.",
        hint="Apply an application with that location, or terminate the instance.",
    )
