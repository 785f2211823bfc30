"""Claimed messages that failed at a port which routes failures: an error message in place of the suspension.

Used by hosts, for what a send port could not transmit and for what came in, was resumed and failed again. The parts
are shared with the original, whatever their size. Publishing the error message and completing the original are one
transaction; when it rolls back, the original is where it was.
"""

from __future__ import annotations

import uuid

import psycopg

from postroom.agent.error_reports import Failure, is_error_report
from postroom.agent.finding import SqlFinder, clear_predicates, instances_for
from postroom.agent.identity import Kind, derive_id, unit_for_failure
from postroom.agent.wake_up import WakeUp
from postroom.message import Message
from postroom.messagebox.connection import Connection, transaction
from postroom.messagebox.queues import ClaimedMessage, ClaimLost, HostQueues
from postroom.messagebox.stored_context import StoredContext

_STALE, _NOBODY_MAY = "PR001", "PR002"


class FailedMessages:
    """Publishes error messages. The MessageBox finds their subscribers: failures are rare, an index is large."""

    def __init__(self, queues: HostQueues) -> None:
        self._queues = queues
        self._finder = SqlFinder()

    def route(self, connection: Connection, claimed: ClaimedMessage, failure: Failure) -> bool:
        """Publishes the error message and completes the claimed one, in one transaction on ``connection``.

        False, and nothing is done, if nobody wants or may have the error message, or if the message is one itself.
        ClaimLost if another host instance has the message by now."""
        if claimed.context is None:
            return False
        original = StoredContext(claimed.context, {}, claimed.originator)
        if is_error_report(original):
            return False
        unit = unit_for_failure(claimed.instance_id)
        error = Message(context=failure.context(original), message_id=derive_id(unit, Kind.MESSAGE, 0))
        while True:
            try:
                hosts = transaction(connection, lambda c: self._publish(c, claimed, error, unit))
                break
            except psycopg.Error as refused:
                if refused.sqlstate == _NOBODY_MAY:
                    return False
                if refused.sqlstate != _STALE:  # an instance that waited for it has just completed
                    raise
        if hosts is None:
            return False
        WakeUp(connection).send(hosts)
        return True

    def _publish(
        self, connection: Connection, claimed: ClaimedMessage, error: Message, unit: uuid.UUID
    ) -> set[str] | None:
        batch_id = uuid.uuid4()
        found = self._finder.find(connection, batch_id, [error])
        (subscribers,) = found.subscribers
        if subscribers and not self._queues.route_failed(
            connection,
            claimed,
            batch_id=batch_id,
            version=found.version,
            error_id=error.message_id,
            context=error.context.to_json(),
            subscription_ids=[one.subscription_id for one in subscribers],
            instance_ids=instances_for(
                connection, subscribers, [derive_id(unit, Kind.INSTANCE, n) for n in range(len(subscribers))]
            ),
        ):
            raise ClaimLost("The message was given to another host instance.")
        self._finder.clear(connection, batch_id)
        clear_predicates(connection, batch_id, [error])
        return {one.host_name for one in subscribers if one.started} if subscribers else None
