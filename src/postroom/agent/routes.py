"""The routes of a batch: which subscriber receives which message, as queue rows per host."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from postroom.agent.identity import Kind, Units, to_id_array
from postroom.agent.publish import PublishBatch, RoutingLock
from postroom.agent.routing.correlation import locate_instances
from postroom.agent.routing.matching import Matcher, MatchResult
from postroom.agent.routing.table import Subscriber
from postroom.errors import StaleRouting
from postroom.message import Message
from postroom.messagebox.connection import Connection
from postroom.messagebox.storage.copy_rows import (
    BIGINT,
    SMALLINT,
    UUID,
    Cause,
    SuspendedRow,
    Task,
    write_references,
    write_suspended,
    write_work_queue,
)


class Routes:
    """Pairs of a message (its position in the batch) and a subscription, each with an instance id. The instance is new,
    unless the message joins an existing one."""

    def __init__(self, matches: MatchResult, units: Units) -> None:
        self.messages = matches.rows
        self._matches = matches
        self._subscription_ids = matches.subscription_ids
        self._instance_ids = units.ids(Kind.INSTANCE, np.arange(len(matches.rows)))
        distinct, self._subscriber_of = np.unique(matches.subscription_ids, return_inverse=True)
        self._subscribers = [matches.subscribers[one] for one in distinct.tolist()]

    @property
    def hosts(self) -> set[str]:
        """The hosts whose work queues get rows."""
        # A host is missing only if the routing table is behind. Then the batch is stale.
        return {self._matches.host_names.get(one.host_id, "") for one in self._subscribers if one.started}

    @property
    def has_convoys(self) -> bool:
        return bool(self._matches.convoys)

    def write(self, connection: Connection, message_ids: npt.NDArray[np.void]) -> None:
        """Write one row per pair: to the work queue of the subscriber's host, or to the suspended queue if it is
        stopped.

        The caller has the routing lock. Raise StaleRouting if a matched instance has completed."""
        if not self._subscribers:
            return
        self._join_instances(connection)
        host_ids = np.array([one.host_id for one in self._subscribers])[self._subscriber_of]
        started = np.array([one.started for one in self._subscribers])[self._subscriber_of]
        for host_id in np.unique(host_ids).tolist():
            host = self._matches.host_names[host_id]
            self._write_work(connection, host, message_ids, np.flatnonzero((host_ids == host_id) & started))
            stopped = np.flatnonzero((host_ids == host_id) & ~started)
            if len(stopped):
                write_suspended(connection, host, [self._suspended(message_ids, pair) for pair in stopped.tolist()])

    def locate_convoys(self, connection: Connection) -> None:
        """Set the instance ids of convoys to the instances that they join. Takes the routing lock."""
        pairs = list(self._matches.convoys)
        if pairs:
            offered = [uuid.UUID(bytes=bytes(one)) for one in self._instance_ids[pairs]]
            located = locate_instances(connection, list(self._matches.convoys.values()), offered)
            self._instance_ids[pairs] = to_id_array(located)

    def get_pairs(self, message: int) -> tuple[list[int], list[uuid.UUID]]:
        """Return the subscriptions of one message, and the instance id for each."""
        start, end = np.searchsorted(self.messages, [message, message + 1]).tolist()
        instances = self._instance_ids[start:end].tolist()
        return self._subscription_ids[start:end].tolist(), [uuid.UUID(bytes=one) for one in instances]

    def _join_instances(self, connection: Connection) -> None:
        """Set the instance ids of instance subscriptions and convoys to the instances that they join."""
        waiting = [one for one in self._subscribers if one.instance_id is not None]
        if waiting:
            row = connection.execute(
                "SELECT lock_instance_subscriptions(%s::bigint[])", ([one.subscription_id for one in waiting],)
            ).fetchone()
            if row != (True,):
                raise StaleRouting("An instance that was matched has completed.")
            ids = b"".join(one.instance_id.bytes if one.instance_id else bytes(16) for one in self._subscribers)
            joins = np.array([one.instance_id is not None for one in self._subscribers])[self._subscriber_of]
            self._instance_ids[joins] = np.frombuffer(ids, dtype="V16")[self._subscriber_of[joins]]
        self.locate_convoys(connection)

    def _write_work(
        self,
        connection: Connection,
        host: str,
        message_ids: npt.NDArray[np.void],
        pairs: npt.NDArray[np.int64],
    ) -> None:
        """Write the pairs into a work queue in the order of their messages."""
        if not len(pairs):
            return
        subscriber_of = self._subscriber_of[pairs]
        services = np.frombuffer(b"".join(one.service_id.bytes for one in self._subscribers), dtype="V16")
        columns = [
            (SMALLINT, np.array([one.host_id for one in self._subscribers])[subscriber_of]),
            (UUID, message_ids[self.messages[pairs]]),
            (BIGINT, self._subscription_ids[pairs]),
            (SMALLINT, np.array([one.service_class for one in self._subscribers])[subscriber_of]),
            (UUID, services[subscriber_of]),
            (UUID, self._instance_ids[pairs]),
            (SMALLINT, np.array([one.priority for one in self._subscribers])[subscriber_of]),
        ]
        if any(one.joins_instance for one in self._subscribers):
            tasks = [Task.JOIN_INSTANCE if one.joins_instance else Task.DELIVER for one in self._subscribers]
            columns.append((SMALLINT, np.array(tasks)[subscriber_of]))
        write_work_queue(connection, host, columns, len(pairs))

    def _suspended(self, message_ids: npt.NDArray[np.void], pair: int) -> SuspendedRow:
        subscriber: Subscriber = self._subscribers[int(self._subscriber_of[pair])]
        group = subscriber.group_name
        through = "" if group is None else f", or the send port group {group} that the message comes through,"
        return SuspendedRow(
            message_id=uuid.UUID(bytes=bytes(message_ids[self.messages[pair]])),
            instance_id=uuid.UUID(bytes=bytes(self._instance_ids[pair])),
            subscription_id=subscriber.subscription_id,
            host_id=subscriber.host_id,
            service_class=subscriber.service_class,
            service_id=subscriber.service_id,
            priority=subscriber.priority,
            task=Task.JOIN_INSTANCE if subscriber.joins_instance else Task.DELIVER,
            cause=Cause.PORT_STOPPED,
            error_code="PORT_STOPPED",
            error_description=f"The subscriber {subscriber.service_name}{through} is enlisted but stopped.",
            group_id=subscriber.group_id,
        )


class RoutedMessages:
    """Single messages and their routes. ``units`` has the unit of each message."""

    def __init__(self, messages: Sequence[Message], matches: MatchResult, units: Sequence[uuid.UUID]) -> None:
        self.messages = messages
        self.routes = Routes(matches, Units.of(units).take(matches.rows))

    def write(self, connection: Connection, lock: RoutingLock, *, suspended: Sequence[int] = ()) -> None:
        """Write queue rows, and the references to messages and parts: one for each route, and one for each message that
        is ``suspended``."""
        self.routes.write(connection, to_id_array([message.message_id for message in self.messages]))
        counts = np.bincount(self.routes.messages, minlength=len(self.messages))
        counts[list(suspended)] += 1
        kept = [row for row, count in enumerate(counts.tolist()) if count]
        write_message_references(connection, lock, [self.messages[row] for row in kept], counts[kept])


class StoredMessage(PublishBatch):
    """One message whose parts are in the MessageBox already. Its instances derive their ids from ``unit``."""

    def __init__(self, message: Message, unit: uuid.UUID, matcher: Matcher) -> None:
        self.message = message
        self._unit = unit
        self._matcher = matcher

    def match(self, connection: Connection) -> int | None:
        self.matches = self._matcher.match(connection, [self.message])
        self.routed = RoutedMessages([self.message], self.matches, [self._unit])
        self.hosts = self.routed.routes.hosts
        return self.matches.version if len(self.matches.rows) else None

    def write_messages(self, connection: Connection) -> None:
        """Write nothing: the message is stored already."""

    def write_routes(self, connection: Connection, lock: RoutingLock) -> None:
        self.routed.write(connection, lock)


def write_message_references(
    connection: Connection, lock: RoutingLock, messages: Sequence[Message], counts: npt.NDArray[np.int64]
) -> None:
    """Write ``counts`` references to each message and to each of its parts."""
    ids = to_id_array([message.message_id for message in messages])
    write_references(connection, "message", lock.message_log, ids, counts)
    parts = to_id_array([part.part_id for message in messages for part in message.parts])
    write_references(
        connection, "part", lock.part_log, parts, np.repeat(counts, [len(message.parts) for message in messages])
    )
