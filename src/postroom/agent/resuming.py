"""Publish resumed inbound messages: through the receive pipeline again, or directly. Publish rerouted messages.

The host that dequeued the row calls this module. The row is completed in the transaction that publishes. A failure is
raised, and the host suspends the row again with the new reason.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial

import numpy as np

from postroom.agent.error_messages import has_routing_failure_report
from postroom.agent.publish import Publisher, StoredMessageBatch, lock_current
from postroom.agent.routing.batch_matches import MatchResult
from postroom.agent.routing.matching import Matcher, routing_failure
from postroom.agent.routing.table import RoutingTable
from postroom.agent.routing_failure_reports import RoutingFailureReport, Unroutable, publish_reports
from postroom.agent.streaming.receiver import Receiver
from postroom.agent.streaming.suspended_context import missing_location_failure, resume_interchange
from postroom.message import Context, Message
from postroom.messagebox.configuration.hosts import find_host
from postroom.messagebox.connection import Connection
from postroom.messagebox.queues import ClaimedMessage, QueueTask
from postroom.messagebox.routing import find_new_subscriptions, find_report
from postroom.ports.receive_locations import find_receive_location
from postroom.system_properties import BTS

#: Deletes the claimed row in the given transaction. Raises if another host instance has the claim.
Complete = Callable[[Connection], None]


class ResumedInbound:
    """Publishes resumed and rerouted messages."""

    def __init__(self, host_name: str, routing: RoutingTable) -> None:
        self._host_name = host_name
        self._routing = routing

    def handle(self, connection: Connection, claimed: ClaimedMessage, message: Message, complete: Complete) -> None:
        """Publish the message and complete its queue row, in one transaction on ``connection``."""
        try:
            self._routing.catch_up(connection)
            if claimed.task == QueueTask.RECEIVE:
                self._receive(connection, claimed, message, complete)
            else:
                publisher = Publisher(connection, self._routing)
                publisher.run(partial(ResumedMessage, claimed, message), before=complete)
        except Unroutable as failure:
            if claimed.task != QueueTask.REROUTE and has_routing_failure_report(failure.context):
                failure.report_id = self._get_or_write_report(connection, claimed.instance_id, failure)
            raise

    def _get_or_write_report(self, connection: Connection, instance_id: uuid.UUID, failure: Unroutable) -> uuid.UUID:
        """Return the id of the report about an instance, and write the report if there is none (NRF-04)."""
        known = find_report(connection, instance_id)
        if known is not None:
            return known
        host = find_host(connection, self._host_name)
        report = RoutingFailureReport(
            message_id=uuid.uuid4(),
            instance_id=uuid.uuid4(),
            related_instance_id=instance_id,
            last_related_instance_id=instance_id,
            host_id=host.host_id,
            context=failure.context,
            description=failure.what,
        )
        publish_reports(connection, host, [report])
        return report.instance_id

    def _receive(self, connection: Connection, claimed: ClaimedMessage, message: Message, complete: Complete) -> None:
        """Run an interchange through the location's pipeline from the start (NRF-05), or a document that was suspended
        alone from the stage at which it stopped."""
        assert claimed.context is not None, "the host suspends a message without context"
        location = None if claimed.service_id is None else find_receive_location(connection, claimed.service_id)
        if location is None:
            raise missing_location_failure()
        resumed = resume_interchange(message, Context.from_json(claimed.context))
        Receiver(connection, self._routing).receive_again(location, resumed, complete)


class ResumedMessage(StoredMessageBatch):
    """A suspended message that is published to its current subscribers, with its stored context (ADR 0020).

    A rerouted message is that of one subscriber. Subscribers that it was routed to before do not get it again: it goes
    to subscriptions that were created since, and to the subscription of its own service that it is a copy for."""

    def __init__(self, claimed: ClaimedMessage, message: Message, matcher: Matcher) -> None:
        super().__init__(message, uuid.uuid4(), matcher)
        self._claimed = claimed
        self._is_rerouted = claimed.task == QueueTask.REROUTE

    def find_subscribers(self, connection: Connection) -> MatchResult:
        matches = super().find_subscribers(connection)
        if not self._is_rerouted:
            return matches
        new = find_new_subscriptions(
            connection,
            matches.subscription_ids.tolist(),
            seq=self._claimed.seq,
            service_id=self._claimed.service_id,
            group=self._claimed.group,
        )
        return matches.select(np.isin(matches.subscription_ids, np.array(new, dtype=np.int64)))

    def match(self, connection: Connection) -> int:
        if super().match(connection) is None:
            lock_current(connection, self.matches.version)
            raise self._build_failure()
        return self.matches.version

    def _build_failure(self) -> Unroutable:
        context, unauthorised_hosts = self.message.context, self.matches.unauthorised_hosts.get(0, ())
        if unauthorised_hosts:
            failure = routing_failure(context.get(BTS.MessageType), context.predicates, unauthorised_hosts)
            return Unroutable(failure.what, context, why=failure.why, hint=failure.hint)
        if self._is_rerouted:
            return Unroutable(
                "The message was not rerouted: it was routed to every subscription that matches it before.",
                context,
                hint="Enlist a port whose filter matches it, and resume the instance. Or terminate it.",
            )
        return Unroutable("The message still could not be routed because no subscribers were found.", context)
