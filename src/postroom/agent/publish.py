"""The one way into the MessageBox: a batch of messages, published inside a transaction.

    publisher = Publisher(connection, IndexMatcher(routing))
    batch = publisher.run(lambda matcher: make_batch(matcher))

Both lanes, resumed messages and error messages go through ``publish``. What takes time comes first; the routing lock
comes last, because everybody who changes a subscription waits for it. A batch is matched without the lock and is
written only if the routing version is still the same under the lock. Otherwise the whole transaction is repeated.

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
    """One chunk of a unit of work, and what came of it."""

    unit: uuid.UUID
    chunk: int = 0
    outcome: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How much of an interchange is published already, from its receipts."""

    next_chunk: int = 0
    last_document: int = 0
    bad: int = 0
    done: bool = False

    @property
    def has_started(self) -> bool:
        """Whether some of it came in, so that it cannot be all or nothing any more."""
        return bool(self.next_chunk or self.last_document)


def take_receipts(connection: Connection, receipts: Sequence[Receipt]) -> bool:
    """Takes the receipts; False if one of them was taken before. Waits for a transaction that is taking the same."""
    taken = connection.execute(
        "SELECT unit, chunk FROM take_receipts(%s::uuid[], %s::int[], %s::jsonb[])",
        (
            [one.unit for one in receipts],
            [one.chunk for one in receipts],
            [json.dumps(dict(one.outcome)) for one in receipts],
        ),
    ).fetchall()
    return len(taken) == len(receipts)


def read_outcome(connection: Connection, unit: uuid.UUID) -> Mapping[str, Any]:
    """What the receipt of a unit says, which was taken before."""
    row = connection.execute("SELECT outcome FROM read_receipts(ARRAY[%s::uuid])", (unit,)).fetchone()
    assert row is not None
    outcome: Mapping[str, Any] = row[0]
    return outcome


def read_progress(connection: Connection, interchange_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, Progress]:
    """How far each interchange was published before, by its receipts."""
    rows = connection.execute(
        "SELECT unit, last_chunk, last_document, bad, done FROM read_receipts(%s)", (list(interchange_ids),)
    )
    known = {
        unit: Progress(next_chunk=chunk + 1, last_document=last, bad=bad, done=done)
        for unit, chunk, last, bad, done in rows
    }
    return {one: known.get(one, Progress()) for one in interchange_ids}


class RoutingLock(NamedTuple):
    """What is fixed from the routing lock until COMMIT."""

    version: int
    message_log: int
    part_log: int
    changed_here: bool
    """This transaction has changed the subscriptions itself; nobody else sees that version yet."""


class PublishBatch(ABC):
    """Messages that are published together, however they are encoded, and what becomes of those that fail."""

    #: The hosts whose work queues get rows.
    hosts: Collection[str] = ()

    def insert_in_one_statement(self, connection: Connection) -> bool:
        """Publishes the batch in one statement, outside of any transaction. False, and nothing is written, if it takes
        more than that."""
        return False

    def prepare(self, connection: Connection) -> bool:
        """Takes the receipts, and writes what is large and does not depend on who subscribes. False if nothing is left
        to do."""
        return True

    @abstractmethod
    def match(self, connection: Connection) -> int | None:
        """Finds the subscribers that may receive the messages, and decides about messages that have none. Returns the
        routing version that this is true of; None if nothing is left to do."""

    def insert(self, connection: Connection) -> bool:
        """Writes everything with one call a message, which locks and compares the version itself. False, and nothing is
        written, if COPY is the better way."""
        return False

    @abstractmethod
    def write_messages(self, connection: Connection) -> None:
        """Copies parts and spool rows."""

    @abstractmethod
    def write_routes(self, connection: Connection, lock: RoutingLock) -> None:
        """Locks instances that the messages join, and copies queue rows, suspended rows and references."""


Batch = TypeVar("Batch", bound=PublishBatch)


def publish(connection: Connection, batch: PublishBatch) -> None:
    """Publishes a batch inside the caller's transaction, as its last step. StaleRouting if it has to be repeated."""
    if not batch.prepare(connection):
        return
    version = batch.match(connection)
    if version is None or batch.insert(connection):
        return
    batch.write_messages(connection)
    batch.write_routes(connection, lock_current(connection, version))


def lock_routing(connection: Connection) -> RoutingLock:
    """Keeps subscriptions, states and hosts as they are until COMMIT."""
    row = connection.execute(statement("queries/lock_routing")).fetchone()
    assert row is not None
    return RoutingLock(*row)


def lock_current(connection: Connection, version: int) -> RoutingLock:
    """The same; StaleRouting if the version is another one by now."""
    lock = lock_routing(connection)
    if lock.version != version:
        raise StaleRouting("The subscriptions changed.")
    return lock


class Publisher:
    """Runs transactions that end in a publish, repeats them as long as routing is stale, and wakes hosts afterwards."""

    def __init__(self, connection: Connection, matcher: Matcher) -> None:
        self._connection = connection
        self._matcher = matcher
        self._wake_up = WakeUp(connection)

    def run(
        self, make_batch: Callable[[Matcher], Batch], *, before: Callable[[Connection], object] | None = None
    ) -> Batch:
        """Runs ``before`` and publishes the batch, in one transaction. Both are called again in each attempt."""
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
                # The login is perhaps not trusted any more, and may not say whom it publishes for.
                if is_retry:
                    raise
                is_retry = True
        self._wake_up.send(batch.hosts)
        return batch

    def _matcher_under_lock(self, connection: Connection) -> Matcher:
        """Only an instance can end from here on. The index in memory does not learn what is not committed: a
        transaction that has changed subscriptions itself is matched by the MessageBox."""
        if lock_routing(connection).changed_here:
            return ProcedureMatcher()
        self._matcher.catch_up(connection)
        return self._matcher
