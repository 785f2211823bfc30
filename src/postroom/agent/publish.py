"""The publish path: publish a batch of messages inside a transaction.

    publisher = Publisher(connection, routing)
    batch = publisher.run(lambda matcher: make_batch(matcher))

Both lanes, resumed messages and error messages go through ``publish``. Slow steps come first. The routing lock comes
last, because changes of subscriptions wait for it. A batch is matched without the lock, and is written only if the
routing version is the same under the lock. Otherwise the whole transaction is repeated.

Receipts prevent a second publish of a batch. A publish with an idempotency key takes its receipt first. If the receipt
exists, the outcome in it is returned. Chunks take their receipts after matching, because a receipt contains how many
documents have no subscriber.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import TypeVar

from psycopg.pq import TransactionStatus

from postroom.agent.routing.batch_matches import MatchResult
from postroom.agent.routing.matching import IndexMatcher, Matcher, ProcedureMatcher
from postroom.agent.routing.routes import OrderedRoutes, RoutedMessages
from postroom.agent.routing.table import RoutingTable
from postroom.errors import NotAllowed, StaleRouting, TransactionConflict
from postroom.message import Message
from postroom.messagebox.connection import Connection, transaction
from postroom.messagebox.coordination.notifications import OwnHost, WakeUp
from postroom.messagebox.routing import RoutingLock, lock_routing


class PublishBatch(ABC):
    """Messages that are published together, and the rows for those that fail."""

    @property
    @abstractmethod
    def hosts(self) -> Collection[str]:
        """The hosts whose work queues have got rows."""

    @property
    def needs_transaction(self) -> bool:
        """False if the batch does not write before ``insert_in_one_statement``."""
        return True

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

    def insert_in_one_statement(self, connection: Connection) -> bool:
        """Write everything in one statement, which takes the lock and compares the version. Return False without
        writing if the batch needs more statements, or if COPY is faster."""
        return False

    @abstractmethod
    def write_messages(self, connection: Connection) -> None:
        """Copy parts and spool rows."""

    @abstractmethod
    def write_routes(self, connection: Connection, lock: RoutingLock, ordered: OrderedRoutes) -> None:
        """Lock the instances that the messages join. Copy queue rows, suspended rows and references. Add the routes of
        ordered subscriptions to ``ordered``, which is written last."""


Batch = TypeVar("Batch", bound=PublishBatch)


def publish(connection: Connection, batch: PublishBatch, *, ordered: OrderedRoutes | None = None) -> None:
    """Publish a batch as the last step of the caller's transaction. Raise StaleRouting if it has to be repeated.

    ``ordered`` collects the routes of ordered subscriptions of several batches in one transaction. The caller writes it
    after the last one."""
    if not batch.prepare(connection):
        return
    version = batch.match(connection)
    if version is None:
        return
    batch.insert_receipts(connection)
    if ordered is None and batch.insert_in_one_statement(connection):
        return
    batch.write_messages(connection)
    collected = OrderedRoutes() if ordered is None else ordered
    batch.write_routes(connection, lock_current(connection, version), collected)
    if ordered is None:
        collected.write(connection)


def lock_current(connection: Connection, version: int) -> RoutingLock:
    """Take the routing lock. Raise StaleRouting if the routing version is not ``version`` any more."""
    lock = lock_routing(connection)
    if lock.version != version:
        raise StaleRouting("The subscriptions changed.")
    return lock


class Publisher:
    """Runs transactions that end with a publish. Repeats them while routing is stale, and wakes hosts afterwards.
    Without a routing table the MessageBox matches."""

    def __init__(
        self, connection: Connection, routing: RoutingTable | None, *, own_host: OwnHost | None = None
    ) -> None:
        self._connection = connection
        self._routing = routing
        self._wake_up = WakeUp(connection, own_host)

    def run(
        self, make_batch: Callable[[Matcher], Batch], *, before: Callable[[Connection], object] | None = None
    ) -> Batch:
        """Run ``before`` and publish a batch in one transaction. A repeated attempt calls both functions again."""
        matcher = self._build_matcher()
        is_retry = False
        if before is None:
            batch = make_batch(matcher)
            try:
                if self._publish_in_one_statement(batch):
                    self._wake_up.send(batch.hosts)
                    return batch
            except (StaleRouting, TransactionConflict):
                is_retry = True

        def attempt(connection: Connection) -> Batch:
            if before is not None:
                before(connection)
            batch = make_batch(self._build_current_matcher(connection) if is_retry else matcher)
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

    def _publish_in_one_statement(self, batch: PublishBatch) -> bool:
        """Publish a batch without a transaction around its statement. Return False without writing if it needs one."""
        connection = self._connection
        if connection.info.transaction_status is not TransactionStatus.IDLE or batch.needs_transaction:
            return False
        if not batch.prepare(connection) or batch.match(connection) is None:
            return True
        return batch.insert_in_one_statement(connection)

    def _build_matcher(self) -> Matcher:
        """Return a matcher that may be out of date."""
        return ProcedureMatcher() if self._routing is None else IndexMatcher(self._routing.load(self._connection))

    def _build_current_matcher(self, connection: Connection) -> Matcher:
        """Take the routing lock and return an up-to-date matcher. From here on only instances can end.

        A transaction that has changed subscriptions itself is matched by the MessageBox, because the index in memory
        must not contain uncommitted changes."""
        if lock_routing(connection).changed_here or self._routing is None:
            return ProcedureMatcher()
        return IndexMatcher(self._routing.catch_up(connection))


class StoredMessageBatch(PublishBatch):
    """One message whose parts are in the MessageBox already. Its instances derive their ids from ``unit``."""

    def __init__(self, message: Message, unit: uuid.UUID, matcher: Matcher) -> None:
        self.message = message
        self._unit = unit
        self._matcher = matcher

    @property
    def hosts(self) -> Collection[str]:
        return self.routed.routes.hosts

    def find_subscribers(self, connection: Connection) -> MatchResult:
        """Return the subscribers that get the message."""
        return self._matcher.match(connection, [self.message])

    def match(self, connection: Connection) -> int | None:
        self.matches = self.find_subscribers(connection)
        self.routed = RoutedMessages([self.message], self.matches, [self._unit])
        return self.matches.version if len(self.matches.rows) else None

    def write_messages(self, connection: Connection) -> None:
        """Write nothing: the message is stored already."""

    def write_routes(self, connection: Connection, lock: RoutingLock, ordered: OrderedRoutes) -> None:
        self.routed.write(connection, lock, ordered)
