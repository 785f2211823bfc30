"""The publish path: publish a batch of messages inside a transaction.

    publisher = Publisher(connection, IndexMatcher(routing))
    batch = publisher.run(lambda matcher: make_batch(matcher))

Both lanes, resumed messages and error messages go through ``publish``. Slow steps come first. The routing lock comes
last, because changes of subscriptions wait for it. A batch is matched without the lock, and is written only if the
routing version is the same under the lock. Otherwise the whole transaction is repeated.

A publish takes a receipt for each unit of work first, under a unique key. If the receipt exists, the unit was published
before, and the receipt stores the outcome.
"""

from __future__ import annotations

import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from postroom.agent.routing.matching import Matcher, ProcedureMatcher
from postroom.errors import NotAllowed, StaleRouting, TransactionConflict
from postroom.messagebox.connection import Connection, transaction
from postroom.messagebox.queues import WakeUp
from postroom.messagebox.statements import statement


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """The record that a chunk of a unit of work was published, and its outcome."""

    unit: uuid.UUID
    chunk: int = 0
    outcome: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How much of an interchange is published, according to its receipts."""

    next_chunk: int = 0
    last_document: int = 0
    bad: int = 0
    done: bool = False

    @property
    def has_started(self) -> bool:
        """True if some of it is published, so that it cannot be all or nothing any more."""
        return bool(self.next_chunk or self.last_document)


def take_receipts(connection: Connection, receipts: Sequence[Receipt]) -> bool:
    """Insert the receipts. Return False if one of them exists. Waits for a transaction that inserts the same
    receipt."""
    inserted = connection.execute(
        "SELECT unit, chunk FROM take_receipts(%s::uuid[], %s::int[], %s::jsonb[])",
        (
            [one.unit for one in receipts],
            [one.chunk for one in receipts],
            [json.dumps(dict(one.outcome)) for one in receipts],
        ),
    ).fetchall()
    return len(inserted) == len(receipts)


def read_outcome(connection: Connection, unit: uuid.UUID) -> Mapping[str, Any]:
    """Return the outcome in the receipt of a unit that was published before."""
    row = connection.execute("SELECT outcome FROM read_receipts(ARRAY[%s::uuid])", (unit,)).fetchone()
    assert row is not None
    outcome: Mapping[str, Any] = row[0]
    return outcome


def read_progress(connection: Connection, interchange_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, Progress]:
    """Return how much of each interchange is published."""
    rows = connection.execute(
        "SELECT unit, last_chunk, last_document, bad, done FROM read_receipts(%s)", (list(interchange_ids),)
    )
    known = {
        unit: Progress(next_chunk=chunk + 1, last_document=last, bad=bad, done=done)
        for unit, chunk, last, bad, done in rows
    }
    return {one: known.get(one, Progress()) for one in interchange_ids}


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
        """Insert the receipts, and write large bodies, which do not depend on subscribers. Return False if nothing is
        left to do."""
        return True

    @abstractmethod
    def match(self, connection: Connection) -> int | None:
        """Find the subscribers that may receive the messages, and handle messages without subscribers. Return the
        routing version of the result, or None if nothing is left to do."""

    def insert(self, connection: Connection) -> bool:
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
    if version is None or batch.insert(connection):
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
    """Runs transactions that end with a publish. Repeats them while routing is stale, and wakes hosts afterwards."""

    def __init__(self, connection: Connection, matcher: Matcher) -> None:
        self._connection = connection
        self._matcher = matcher
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
