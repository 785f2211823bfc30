"""Failed-message routing for claimed messages: publish an error message instead of suspending the message.

Hosts use it for messages that a send port could not transmit, and for resumed inbound messages that failed again. The
error message shares the parts of the original. It is published in the transaction that completes the original.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime

from postroom.agent.error_messages import Failure, get_message_type, is_error_report
from postroom.agent.idempotency import IdKind, derive_id, unit_for_failure
from postroom.agent.publish import Publisher, StoredMessageBatch
from postroom.agent.routing.matching import Matcher
from postroom.agent.routing.routes import OrderedRoutes
from postroom.errors import ClaimLost
from postroom.message import Bytes, Message, Part
from postroom.messagebox.connection import Connection
from postroom.messagebox.queues import OUT_OF_ORDER, ClaimedMessage, HostQueues, Suspension
from postroom.messagebox.routing import RoutingLock
from postroom.messagebox.storage.claimed_messages import StoredContext

#: Publishes another message in the transaction of an error message. Returns the hosts whose work queues get rows.
PublishMore = Callable[[Connection, OrderedRoutes], Collection[str]]


def describe_failure(
    claimed: ClaimedMessage,
    suspension: Suspension,
    failed_at: datetime,
    *,
    send_port: str | None = None,
    receive_port: str | None = None,
) -> Failure:
    """Return the failure of a claimed message that would be suspended otherwise."""
    context = None if claimed.context is None else StoredContext(claimed.context, {})
    return Failure(
        code=suspension.code,
        description=suspension.description.removesuffix(f"\n{OUT_OF_ORDER}"),
        message_id=claimed.message_id,
        instance_id=claimed.delivery_id,
        failed_at=failed_at,
        adapter=suspension.adapter,
        uri=suspension.uri,
        send_port=send_port,
        receive_port=receive_port,
        message_type=None if context is None else get_message_type(context),
    )


class FailedMessages:
    """Publishes error messages. The MessageBox matches them, because failures are rare and an index is large."""

    def __init__(self, queues: HostQueues) -> None:
        self._queues = queues

    def route(
        self,
        connection: Connection,
        claimed: ClaimedMessage,
        failure: Failure,
        *,
        and_publish: PublishMore | None = None,
    ) -> bool:
        """Publish the error message and complete the claimed message, in one transaction on ``connection``.
        ``and_publish`` publishes another message in the same transaction, if the error message has a subscriber.

        Return False without writing if the error message has no subscriber that may receive it. The same applies if the
        claimed message is itself an error message. Raise ClaimLost if another host instance has claimed the message."""
        if claimed.context is None:
            return False
        original = StoredContext(claimed.context, {}, claimed.originator)
        if is_error_report(original):
            return False
        unit = unit_for_failure(claimed.delivery_id)
        error = Message(context=failure.build_context(original), message_id=derive_id(unit, IdKind.MESSAGE, 0))
        publisher = Publisher(connection, None)
        batch = publisher.run(
            lambda matcher: ErrorMessage(error, unit, matcher, self._queues, claimed, failure, and_publish)
        )
        return bool(len(batch.matches.rows))


class ErrorMessage(StoredMessageBatch):
    """An error message that replaces a claimed message and shares its parts."""

    def __init__(
        self,
        error: Message,
        unit: uuid.UUID,
        matcher: Matcher,
        queues: HostQueues,
        claimed: ClaimedMessage,
        failure: Failure,
        and_publish: PublishMore | None = None,
    ) -> None:
        super().__init__(error, unit, matcher)
        self._queues = queues
        self._claimed = claimed
        self._failure = failure
        self._and_publish = and_publish
        self._other_hosts: Collection[str] = ()

    @property
    def hosts(self) -> Collection[str]:
        return {*super().hosts, *self._other_hosts}

    def write_messages(self, connection: Connection) -> None:
        part_ids = self._queues.insert_error_message(
            connection,
            self._claimed,
            error_id=self.message.message_id,
            context=self.message.context.to_json(),
            adapter=self._failure.adapter,
            uri=self._failure.uri,
        )
        if part_ids is None:
            raise ClaimLost("Another host instance has taken over the message.")
        # Names and contents are the original's and stored already. Only the ids are referred to.
        parts = [Part(name=str(part_id), body=Bytes(b""), part_id=part_id) for part_id in part_ids]
        self.routed.messages = [replace(self.message, parts=tuple(parts))]

    def write_routes(self, connection: Connection, lock: RoutingLock, ordered: OrderedRoutes) -> None:
        super().write_routes(connection, lock, ordered)
        if self._and_publish is not None:
            self._other_hosts = self._and_publish(connection, ordered)
