"""Receiving: interchanges through the receive pipeline, matched and published, a transaction for many of them.

The same code runs inside Spark's tasks and inside hosts. Bad messages become suspensions, or error messages, in the
transaction that publishes the good ones. A receipt per chunk makes a second run of the same interchange find nothing
to do. Two runs at once, whose chunks may even end at different documents, take turns: a chunk is written only by one
who knows where the chunk before it ended.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import psycopg

from postroom.agent.authentication import authenticated
from postroom.agent.batch import Batch
from postroom.agent.chunks import CHUNK_BYTES, CHUNK_ROWS, Chunk, Progress, chunks_of, held_chunks, refused
from postroom.agent.interchange import Interchange
from postroom.agent.reports import Unroutable
from postroom.agent.routing import RoutingTable, StaleRouting
from postroom.agent.wake_up import WakeUp
from postroom.clock import Clock, system_clock
from postroom.errors import MessageFailure, StateError
from postroom.maps.inbound import received_by, taken_up_by
from postroom.messagebox.configuration import ReceiveLocation
from postroom.messagebox.connection import Connection, transaction

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Received:
    """What became of one interchange."""

    interchange_id: uuid.UUID
    published: int = 0
    suspended: int = 0
    routed: int = 0
    """Failures that were published as error messages."""
    dropped: int = 0
    """Messages that nobody known stands for, at a receive port that drops those."""
    empty: bool = False
    """It was a list without documents, of which nothing is kept. Not said again when it is repeated."""
    unfinished: bool = False
    """Some of it is not published yet, because too much waits. It has to come again."""

    def plus(self, more: Received) -> Received:
        return Received(
            interchange_id=self.interchange_id,
            published=self.published + more.published,
            suspended=self.suspended + more.suspended,
            routed=self.routed + more.routed,
            dropped=self.dropped + more.dropped,
            empty=more.empty,
        )


class Overtaken(Exception):
    """Another attempt has published a chunk that this one was about to write. Nothing was written; how far the other
    has come is in the receipts."""


class Receiver:
    """Publishes interchanges over one connection, with one routing table that it keeps up to date."""

    def __init__(self, connection: Connection, routing: RoutingTable, *, clock: Clock = system_clock) -> None:
        self._connection = connection
        self._routing = routing
        self._clock = clock
        self._wake_up = WakeUp(connection)

    def receive(
        self,
        location: ReceiveLocation,
        interchanges: Sequence[Interchange],
        *,
        pace: Callable[[], bool] = lambda: True,
    ) -> list[Received]:
        """Publishes what of these interchanges is not published yet. Raises only if the MessageBox does not answer.
        When it returns, each of them is published to its end, by this run or another, and can be taken away; but for
        those that are unfinished. ``pace`` is called between two transactions, may take its time, and says whether to
        go on."""
        self._routing.catch_up(self._connection)
        pipeline = received_by(location.pipeline, location.maps)
        outcome = {one.interchange_id: Received(interchange_id=one.interchange_id) for one in interchanges}
        left = {one.interchange_id: one for one in interchanges}
        while left:
            progress = read_progress(self._connection, list(left))
            left = {unit: one for unit, one in left.items() if not progress[unit].done}
            chunks = (
                chunk
                for interchange in list(left.values())
                for chunk in chunks_of(pipeline, interchange, progress[interchange.interchange_id])
            )
            try:
                for number, group in enumerate(_groups(chunks)):
                    if number and not pace():
                        return [replace(one, unfinished=unit in left) for unit, one in outcome.items()]
                    for one in self._publish(location, pipeline.content_type, group):
                        outcome[one.interchange_id] = outcome[one.interchange_id].plus(one)
                    for chunk in group:
                        if chunk.is_last:
                            del left[chunk.interchange.interchange_id]
            except Overtaken:
                continue
            if left:
                raise StateError(f"Interchange {next(iter(left))} has come to no end, although all of it was read.")
        return list(outcome.values())

    def refuse(self, location: ReceiveLocation, interchange: Interchange, failure: MessageFailure) -> Received:
        """Suspends what of an interchange is not published yet, as it came, without running its pipeline."""
        self._routing.catch_up(self._connection)
        pipeline = received_by(location.pipeline, location.maps)
        while not (progress := self.progress_of(interchange.interchange_id)).done:
            with suppress(Overtaken):
                chunk = refused(pipeline, interchange, failure, progress)
                return self.publish_chunk(location, pipeline.content_type, chunk)
        return Received(interchange_id=interchange.interchange_id)

    def publish_chunk(self, location: ReceiveLocation, content_type: str, chunk: Chunk) -> Received:
        """One chunk of rows that others have read, in a transaction of its own. Raises Overtaken if another attempt has
        published a chunk of this number. ``content_type`` is that of bad rows."""
        [received] = self._publish(location, content_type, [chunk])
        return received

    def progress_of(self, unit: uuid.UUID) -> Progress:
        """How far a unit is published by now."""
        return read_progress(self._connection, [unit])[unit]

    def catch_up(self) -> None:
        """Learns of the subscriptions that have changed, sooner than at the next commit."""
        self._routing.catch_up(self._connection)

    def _publish(self, location: ReceiveLocation, content_type: str, group: list[Chunk]) -> list[Received]:
        batch = self._write_until_current(location, content_type, group)
        self._wake_up.send(batch.hosts)
        dropped = sum(one.chunk.dropped for one in batch.tallies)
        if dropped:
            text = "%s: %d messages were dropped: nobody known stands for them, and receive port %s requires it"
            _log.warning(text, location.name, dropped, location.port_name)
        return [
            Received(
                interchange_id=one.chunk.interchange.interchange_id,
                published=one.published,
                suspended=one.suspended,
                routed=one.routed,
                dropped=one.chunk.dropped,
                empty=one.chunk.is_empty_interchange,
            )
            for one in batch.tallies
        ]

    def _write_until_current(self, location: ReceiveLocation, content_type: str, group: list[Chunk]) -> Batch:
        lock_first = False
        while True:
            try:
                return transaction(
                    self._connection,
                    partial(
                        self._write, location=location, content_type=content_type, group=group, lock_first=lock_first
                    ),
                )
            except StaleRouting:
                # Once more under the lock: the index cannot change now, only an instance complete. Rare, so that the
                # plain repetition is good enough.
                lock_first = True
            except psycopg.errors.InsufficientPrivilege:
                # The login is not trusted any more, and may not write whom it publishes for.
                if lock_first:
                    raise
                lock_first = True

    def _write(
        self,
        connection: Connection,
        *,
        location: ReceiveLocation,
        content_type: str,
        group: list[Chunk],
        lock_first: bool,
    ) -> Batch:
        lock = _lock(connection) if lock_first else None
        if lock_first:
            self._routing.catch_up(connection)
        # With the trust of this moment, and before the receipts, which tell what was dropped.
        chunks = [authenticated(location, chunk, self._routing.login) for chunk in group]
        _take_receipts(connection, chunks)
        batch = Batch(connection, location, content_type, chunks, self._routing, clock=self._clock)
        batch.write_messages(connection)
        lock = lock or _lock(connection)
        if lock[0] != self._routing.version:
            raise StaleRouting
        batch.write_routes(connection, message_log=lock[1], part_log=lock[2])
        return batch


def receive_again(
    connection: Connection, routing: RoutingTable, location: ReceiveLocation, interchange: Interchange
) -> set[str]:
    """A resumed interchange, or a document that was suspended alone, inside the caller's transaction. What fails as a
    whole is raised; of a recoverable interchange bad documents are suspended alone, as when it came (RCV-13).
    StaleRouting if the subscriptions changed meanwhile. Returns the hosts to wake after the commit."""
    pipeline = taken_up_by(location.pipeline, location.maps, interchange.kept)
    routing.catch_up(connection)
    chunks = [authenticated(location, chunk, routing.login) for chunk in held_chunks(pipeline, interchange)]
    if chunks[-1].refusal is not None:
        raise chunks[-1].refusal
    fails_as_a_whole = not chunks[0].recoverable
    if fails_as_a_whole:
        # What fails here is the caller's to route or to suspend, because the message is in the MessageBox already.
        location = replace(location, route_failures=False)
    batch = Batch(connection, location, pipeline.content_type, chunks, routing)
    if batch.reports and fails_as_a_whole:
        raise Unroutable(batch.reports[0].description, batch.reports[0].context)
    batch.write_messages(connection)
    version, message_log, part_log = _lock(connection)
    if version != routing.version:
        raise StaleRouting
    batch.write_routes(connection, message_log=message_log, part_log=part_log)
    return batch.hosts


def read_progress(connection: Connection, interchange_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, Progress]:
    """How far each interchange was published before, by its receipts."""
    rows = connection.execute(
        "SELECT unit, last_chunk, last_document, bad, done FROM read_receipts(%s)",
        (list(interchange_ids),),
    )
    known = {
        unit: Progress(next_chunk=chunk + 1, last_document=last, bad=bad, done=done)
        for unit, chunk, last, bad, done in rows
    }
    return {one: known.get(one, Progress()) for one in interchange_ids}


def _groups(chunks: Iterable[Chunk]) -> Iterator[list[Chunk]]:
    """Chunks together in one transaction, up to a good size of it."""
    group: list[Chunk] = []
    rows = size = 0
    for chunk in chunks:
        more, documents = chunk.bytes, chunk.rows + len(chunk.failures)
        if group and (rows + documents > CHUNK_ROWS or size + more > CHUNK_BYTES):
            yield group
            group, rows, size = [], 0, 0
        group.append(chunk)
        rows += documents
        size += more
    if group:
        yield group


def _lock(connection: Connection) -> tuple[int, int, int]:
    row = connection.execute("SELECT version, message_log, part_log FROM lock_routing()").fetchone()
    assert row is not None
    return row[0], row[1], row[2]


def _outcome(chunk: Chunk) -> dict[str, int | bool]:
    outcome: dict[str, int | bool] = {"last": chunk.last_document, "done": chunk.is_last}
    if chunk.bad:
        outcome["bad"] = chunk.bad
    return {**outcome, "dropped": chunk.dropped} if chunk.dropped else outcome


def _take_receipts(connection: Connection, group: list[Chunk]) -> None:
    """The first thing of a publish: a receipt per chunk. Raises Overtaken if one of them has one already."""
    rows = connection.execute(
        "SELECT unit, chunk FROM take_receipts(%s::uuid[], %s::int[], %s::jsonb[])",
        (
            [chunk.interchange.interchange_id for chunk in group],
            [chunk.number for chunk in group],
            [json.dumps(_outcome(chunk)) for chunk in group],
        ),
    )
    if len(rows.fetchall()) < len(group):
        raise Overtaken
