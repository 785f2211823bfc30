"""Publishes the acknowledgements of ports, in the transaction that completes or suspends the message."""

from __future__ import annotations

from collections.abc import Callable, Collection

from postroom.agent.acknowledgements import (
    PROMOTED,
    AcknowledgedMessage,
    SentMessage,
    is_ack_required,
    is_acknowledgement,
)
from postroom.agent.direct.direct_agent import DirectAgent, Outbox
from postroom.agent.direct.direct_batch import DirectBatch, Publication
from postroom.agent.publish import publish
from postroom.agent.routing.matching import ProcedureMatcher
from postroom.agent.routing.routes import OrderedRoutes
from postroom.clock import Clock
from postroom.message import Message
from postroom.messagebox.configuration.hosts import Host
from postroom.messagebox.connection import Connection
from postroom.messagebox.coordination.running_processes import read_routing_version
from postroom.messagebox.queues import ClaimedMessage, HostQueues, Suspension
from postroom.messagebox.subscriptions import has_subscriptions_by_property


class Acknowledgements:
    """Publishes an ACK or a NACK if it may have a subscriber (ACK-02). The MessageBox matches them, because they are
    rare."""

    def __init__(self, host: Host, queues: HostQueues, clock: Clock) -> None:
        self._host = host
        self._queues = queues
        self._clock = clock
        # The last answer of has_subscriptions_by_property, with its routing version.
        self._known: tuple[int, bool] = (0, False)

    def is_ack_wanted(self, connection: Connection, sent: SentMessage) -> bool:
        """Return True if the publisher has asked for an ACK and somebody may receive it."""
        return is_ack_required(sent.context) and self._has_subscribers(connection)

    def is_nack_wanted(self, connection: Connection, failed: AcknowledgedMessage) -> bool:
        """Return True if somebody may receive a NACK about the message."""
        return not is_acknowledgement(failed.context) and (failed.has_caller or self._has_subscribers(connection))

    def complete(self, connection: Connection, claimed: ClaimedMessage, sent: SentMessage) -> None:
        """Complete a message and publish its ACK. Raise ClaimLost if another host instance has the claim."""
        self._publish_with(connection, sent.build_ack(), lambda: self._queues.complete_message(connection, claimed))

    def suspend(self, connection: Connection, claimed: ClaimedMessage, suspension: Suspension, nack: Message) -> None:
        """Suspend a message and publish its NACK. Raise ClaimLost if another host instance has the claim."""
        self._publish_with(
            connection,
            nack,
            lambda: self._queues.suspend_message(connection, claimed, suspension, self._clock()),
        )

    def publish_in_transaction(
        self, connection: Connection, ordered: OrderedRoutes, message: Message
    ) -> Collection[str]:
        """Publish a NACK in the caller's transaction. Return the hosts whose work queues get rows."""
        batch = DirectBatch(self._host, Publication(messages=[message]), ProcedureMatcher())
        publish(connection, batch, ordered=ordered)
        return batch.hosts

    def _publish_with(self, connection: Connection, message: Message, change_row: Callable[[], None]) -> None:
        def work(connection: Connection, outbox: Outbox) -> None:
            change_row()
            outbox.publish(message)

        DirectAgent(connection, self._host, is_engine=True).transaction(work)

    def _has_subscribers(self, connection: Connection) -> bool:
        version = read_routing_version(connection)
        if self._known[0] != version:
            self._known = version, has_subscriptions_by_property(connection, [prop.key for prop in PROMOTED])
        return self._known[1]
