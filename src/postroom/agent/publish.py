"""The publish path: publish a batch of messages inside a transaction.

    publisher = Publisher(connection, routing)
    batch = publisher.run(lambda matcher: make_batch(matcher))

Both lanes, resumed messages and error messages go through ``publish``. Slow steps come first. The routing lock comes
last, because changes of subscriptions wait for it. A batch is matched without the lock, and is written only if the
routing version is the same under the lock. Otherwise the whole transaction is repeated.

Receipts prevent that a batch is published twice. A publish with an idempotency key takes its receipt first: the answer
of the first publish is in it. The receipts of chunks are taken after matching, because they contain the number of
documents without subscribers.

The *routes* of a batch are the pairs of message and subscriber. They are written as queue rows of the subscribers'
hosts.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from postroom.agent.idempotency import IdKind, Ids, Units, to_id_array
from postroom.agent.routing.batch_matches import MatchResult
from postroom.agent.routing.correlation import locate_instances
from postroom.agent.routing.matching import IndexMatcher, Matcher, ProcedureMatcher
from postroom.agent.routing.table import RoutingTable, Subscriber
from postroom.errors import NotAllowed, StaleRouting, TransactionConflict
from postroom.message import Message
from postroom.messagebox.connection import Connection, transaction
from postroom.messagebox.queues import WakeUp
from postroom.messagebox.statements import statement
from postroom.messagebox.storage.copy_rows import (
    BIGINT,
    INTEGER,
    SMALLINT,
    UUID,
    Cause,
    QueueTask,
    SuspendedRow,
    write_references,
    write_suspended,
    write_work_queue,
)


class RoutingLock(NamedTuple):
    """The state that the routing lock fixes until COMMIT."""

    version: int
    message_log: int
    part_log: int
    changed_here: bool
    """True if this transaction has changed the subscriptions itself. No other transaction sees that version yet."""


class PublishBatch(ABC):
    """Messages that are published together, and the rows for those that fail."""

    #: The hosts whose work queues get rows.
    hosts: Collection[str] = ()

    def insert_in_one_statement(self, connection: Connection) -> bool:
        """Publish the batch in one statement, outside of any transaction. Return False without writing if the batch
        needs more statements."""
        return False

    def prepare(self, connection: Connection) -> bool:
        """Do what does not depend on subscribers: take the receipt of an idempotency key, and write large bodies.
        Return False if nothing is left to do."""
        return True

    @abstractmethod
    def match(self, connection: Connection) -> int | None:
        """Find the subscribers that may receive the messages, and handle messages without subscribers. Return the
        routing version of the result, or None if nothing is left to do."""

    def insert_receipts(self, connection: Connection) -> None:
        """Insert the receipts of chunks, which contain results of ``match``. Raise if a chunk is published already."""
        return

    def insert_one_by_one(self, connection: Connection) -> bool:
        """Write everything with one call per message, which takes the lock and compares the version. Return False
        without writing if COPY is faster."""
        return False

    @abstractmethod
    def write_messages(self, connection: Connection) -> None:
        """Copy parts and spool rows."""

    @abstractmethod
    def write_routes(self, connection: Connection, lock: RoutingLock) -> None:
        """Lock the instances that the messages join. Copy queue rows, suspended rows and references."""


Batch = TypeVar("Batch", bound=PublishBatch)


def publish(connection: Connection, batch: PublishBatch) -> None:
    """Publish a batch as the last step of the caller's transaction. Raise StaleRouting if it has to be repeated."""
    if not batch.prepare(connection):
        return
    version = batch.match(connection)
    if version is None:
        return
    batch.insert_receipts(connection)
    if batch.insert_one_by_one(connection):
        return
    batch.write_messages(connection)
    batch.write_routes(connection, lock_current(connection, version))


def lock_routing(connection: Connection) -> RoutingLock:
    """Lock subscriptions, states and hosts against changes until COMMIT."""
    row = connection.execute(statement("queries/lock_routing")).fetchone()
    assert row is not None
    return RoutingLock(*row)


def lock_current(connection: Connection, version: int) -> RoutingLock:
    """Take the routing lock. Raise StaleRouting if the routing version is not ``version`` any more."""
    lock = lock_routing(connection)
    if lock.version != version:
        raise StaleRouting("The subscriptions changed.")
    return lock


class Publisher:
    """Runs transactions that end with a publish. Repeats them while routing is stale, and wakes hosts afterwards.
    Without a routing table the MessageBox matches."""

    def __init__(self, connection: Connection, routing: RoutingTable | None) -> None:
        self._connection = connection
        self._matcher: Matcher = ProcedureMatcher() if routing is None else IndexMatcher(routing)
        self._wake_up = WakeUp(connection)

    def run(
        self, make_batch: Callable[[Matcher], Batch], *, before: Callable[[Connection], object] | None = None
    ) -> Batch:
        """Run ``before`` and publish the batch in one transaction. Each attempt calls ``before`` and ``make_batch``."""
        self._matcher.load(self._connection)
        is_retry = False
        if before is None:
            batch = make_batch(self._matcher)
            try:
                if batch.insert_in_one_statement(self._connection):
                    self._wake_up.send(batch.hosts)
                    return batch
            except (StaleRouting, TransactionConflict):
                is_retry = True

        def attempt(connection: Connection) -> Batch:
            if before is not None:
                before(connection)
            batch = make_batch(self._matcher_under_lock(connection) if is_retry else self._matcher)
            publish(connection, batch)
            return batch

        while True:
            try:
                batch = transaction(self._connection, attempt)
                break
            except StaleRouting:
                is_retry = True
            except NotAllowed:
                # The login may have lost its trust, and may not name another originator any more.
                if is_retry:
                    raise
                is_retry = True
        self._wake_up.send(batch.hosts)
        return batch

    def _matcher_under_lock(self, connection: Connection) -> Matcher:
        """Take the routing lock and return an up-to-date matcher. From here on only instances can end.

        A transaction that has changed subscriptions itself is matched by the MessageBox, because the index in memory
        must not contain uncommitted changes."""
        if lock_routing(connection).changed_here:
            return ProcedureMatcher()
        self._matcher.catch_up(connection)
        return self._matcher


# -- routes ------------------------------------------------------------------------------------------------------------


class Routes:
    """Pairs of a message (its position in the batch) and a subscription, each with an instance id. The instance is new,
    unless the message joins an existing one. The ids of new instances are numbered from ``first_instance``."""

    def __init__(self, matches: MatchResult, units: Units, *, first_instance: int = 0) -> None:
        self.messages = matches.rows
        self._matches = matches
        self._subscription_ids = matches.subscription_ids
        self._instance_ids = units.derive_ids(IdKind.INSTANCE, first_instance + np.arange(len(matches.rows)))
        distinct, self._subscriber_of = np.unique(matches.subscription_ids, return_inverse=True)
        self._subscribers = [matches.subscribers[subscription_id] for subscription_id in distinct.tolist()]

    @property
    def hosts(self) -> set[str]:
        """The hosts whose work queues get rows."""
        # A host is missing only if the routing table is behind. Then the batch is stale.
        return {
            self._matches.host_names.get(subscriber.host_id, "")
            for subscriber in self._subscribers
            if subscriber.started
        }

    @property
    def has_convoys(self) -> bool:
        return bool(self._matches.convoys)

    def write(self, connection: Connection, message_ids: Ids) -> None:
        """Write one row per pair: to the work queue of the subscriber's host, or to the suspended queue if it is
        stopped.

        The caller has the routing lock. Raise StaleRouting if a matched instance has completed."""
        if not self._subscribers:
            return
        self._join_instances(connection)
        host_ids = np.array([subscriber.host_id for subscriber in self._subscribers])[self._subscriber_of]
        started = np.array([subscriber.started for subscriber in self._subscribers])[self._subscriber_of]
        for host_id in np.unique(host_ids).tolist():
            host = self._matches.host_names[host_id]
            for pairs in self._group_by_host_instance(np.flatnonzero((host_ids == host_id) & started)):
                self._write_work(connection, host, message_ids, pairs)
            stopped = np.flatnonzero((host_ids == host_id) & ~started)
            if len(stopped):
                write_suspended(
                    connection, host, [self._build_suspended_row(message_ids, pair) for pair in stopped.tolist()]
                )

    def locate_convoys(self, connection: Connection) -> None:
        """Set the instance ids of convoys to the instances that they join. Takes the routing lock."""
        pairs = list(self._matches.convoys)
        if pairs:
            offered = [uuid.UUID(bytes=bytes(instance_id)) for instance_id in self._instance_ids[pairs]]
            located = locate_instances(connection, list(self._matches.convoys.values()), offered)
            self._instance_ids[pairs] = to_id_array(located)

    def get_pairs(self, message: int) -> tuple[list[int], list[uuid.UUID]]:
        """Return the subscriptions of one message, and the instance id for each."""
        start, end = np.searchsorted(self.messages, [message, message + 1]).tolist()
        instances = self._instance_ids[start:end].tolist()
        return self._subscription_ids[start:end].tolist(), [uuid.UUID(bytes=instance_id) for instance_id in instances]

    def _join_instances(self, connection: Connection) -> None:
        """Set the instance ids of instance subscriptions and convoys to the instances that they join."""
        waiting = [subscriber for subscriber in self._subscribers if subscriber.instance_id is not None]
        if waiting:
            row = connection.execute(
                "SELECT lock_instance_subscriptions(%s::bigint[])",
                ([subscriber.subscription_id for subscriber in waiting],),
            ).fetchone()
            if row != (True,):
                raise StaleRouting("An instance that was matched has completed.")
            ids = b"".join(
                subscriber.instance_id.bytes if subscriber.instance_id else bytes(16)
                for subscriber in self._subscribers
            )
            joins = np.array([subscriber.instance_id is not None for subscriber in self._subscribers])[
                self._subscriber_of
            ]
            self._instance_ids[joins] = np.frombuffer(ids, dtype="V16")[self._subscriber_of[joins]]
        self.locate_convoys(connection)

    def _group_by_host_instance(self, pairs: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.int64]]:
        """Yield the pairs that any host instance may claim, and those of callers that a host instance holds."""
        if all(subscriber.for_host_instance is None for subscriber in self._subscribers):
            yield pairs
            return
        is_held = np.array([subscriber.for_host_instance is not None for subscriber in self._subscribers])
        held = is_held[self._subscriber_of[pairs]]
        yield pairs[~held]
        yield pairs[held]

    def _write_work(
        self,
        connection: Connection,
        host: str,
        message_ids: Ids,
        pairs: npt.NDArray[np.int64],
    ) -> None:
        """Write the pairs into a work queue in the order of their messages. All or none of them are for a host
        instance."""
        if not len(pairs):
            return
        subscriber_of = self._subscriber_of[pairs]
        services = np.frombuffer(b"".join(subscriber.service_id.bytes for subscriber in self._subscribers), dtype="V16")
        columns = [
            (SMALLINT, np.array([subscriber.host_id for subscriber in self._subscribers])[subscriber_of]),
            (UUID, message_ids[self.messages[pairs]]),
            (BIGINT, self._subscription_ids[pairs]),
            (SMALLINT, np.array([subscriber.service_class for subscriber in self._subscribers])[subscriber_of]),
            (UUID, services[subscriber_of]),
            (UUID, self._instance_ids[pairs]),
            (SMALLINT, np.array([subscriber.priority for subscriber in self._subscribers])[subscriber_of]),
        ]
        if any(subscriber.joins_instance for subscriber in self._subscribers):
            tasks = [
                QueueTask.JOIN_INSTANCE if subscriber.joins_instance else QueueTask.DELIVER
                for subscriber in self._subscribers
            ]
            columns.append((SMALLINT, np.array(tasks)[subscriber_of]))
        if self._subscribers[int(subscriber_of[0])].for_host_instance is not None:
            host_instances = [subscriber.for_host_instance or 0 for subscriber in self._subscribers]
            columns.append((INTEGER, np.array(host_instances)[subscriber_of]))
        write_work_queue(connection, host, columns, len(pairs))

    def _build_suspended_row(self, message_ids: Ids, pair: int) -> SuspendedRow:
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
            task=QueueTask.JOIN_INSTANCE if subscriber.joins_instance else QueueTask.DELIVER,
            cause=Cause.PORT_STOPPED,
            error_code="PORT_STOPPED",
            error_description=f"The subscriber {subscriber.service_name}{through} is enlisted but stopped.",
            group_id=subscriber.group_id,
        )


class RoutedMessages:
    """Single messages and their routes. ``units`` has the unit of each message."""

    def __init__(self, messages: Sequence[Message], matches: MatchResult, units: Sequence[uuid.UUID]) -> None:
        self.messages = messages
        self.routes = Routes(matches, Units.from_uuids(units).take(matches.rows))

    def write(self, connection: Connection, lock: RoutingLock, *, suspended: Sequence[int] = ()) -> None:
        """Write queue rows, and the references to messages and parts: one for each route, and one for each message that
        is ``suspended``."""
        self.routes.write(connection, to_id_array([message.message_id for message in self.messages]))
        counts = np.bincount(self.routes.messages, minlength=len(self.messages))
        counts[list(suspended)] += 1
        kept = [row for row, count in enumerate(counts.tolist()) if count]
        write_message_references(connection, lock, [self.messages[row] for row in kept], counts[kept])


class StoredMessageBatch(PublishBatch):
    """One message whose parts are in the MessageBox already. Its instances derive their ids from ``unit``."""

    def __init__(self, message: Message, unit: uuid.UUID, matcher: Matcher) -> None:
        self.message = message
        self._unit = unit
        self._matcher = matcher

    def find_subscribers(self, connection: Connection) -> MatchResult:
        """Return the subscribers that get the message."""
        return self._matcher.match(connection, [self.message])

    def match(self, connection: Connection) -> int | None:
        self.matches = self.find_subscribers(connection)
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
