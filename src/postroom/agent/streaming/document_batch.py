"""A batch of the streaming lane: the documents of some chunks, written by COPY.

Failures are part of the same transaction (document_failures.py).
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from postroom.agent.idempotency import IdKind, Units, to_id_array
from postroom.agent.originator import to_stored_originators
from postroom.agent.publish import PublishBatch, lock_current
from postroom.agent.routing.batch_matches import BatchMatches, WaitingSubscribers
from postroom.agent.routing.matching import routing_failure
from postroom.agent.routing.routes import OrderedRoutes, Routes
from postroom.agent.routing.table import Routing
from postroom.agent.routing_failure_reports import Unroutable
from postroom.agent.streaming.authentication import authenticate
from postroom.agent.streaming.document_failures import BatchFailures
from postroom.agent.streaming.documents import Documents, encode_contexts
from postroom.agent.streaming.failure_limit import ChunkFailures
from postroom.agent.streaming.interchange import Chunk
from postroom.clock import Clock, system_clock
from postroom.errors import MessageFailure, RoutingFailure
from postroom.message import Part
from postroom.messagebox.connection import Connection
from postroom.messagebox.routing import RoutingLock
from postroom.messagebox.storage.copy_rows import (
    BIGINT,
    BOOLEAN,
    UUID,
    encode_constant,
    write_part,
    write_parts,
    write_references,
    write_spool,
    write_spool_rows,
)
from postroom.messagebox.storage.receipts import take_receipts
from postroom.ports.receive_locations import ReceiveLocation


@dataclass(frozen=True, kw_only=True)
class ReceiveResult:
    """What became of one interchange, or of a chunk of it."""

    interchange_id: uuid.UUID
    published: int = 0
    suspended: int = 0
    routed: int = 0
    """Failures that were published as error messages."""
    dropped: int = 0
    """Messages without an authenticated originator, at a receive port that drops them."""
    empty: bool = False
    """It was a list without documents, and nothing of it is stored. Not reported again if it is received again."""
    unfinished: bool = False
    """Some of it is not published yet because of throttling. It has to be received again."""
    milliseconds: int = 0
    """The time from its arrival to its publication, if it is known."""
    refused: MessageFailure | None = None
    """Why the pipeline rejected it, if its adapter decides what happens with it. Nothing of it is stored."""

    def plus(self, more: ReceiveResult) -> ReceiveResult:
        return ReceiveResult(
            interchange_id=self.interchange_id,
            published=self.published + more.published,
            suspended=self.suspended + more.suspended,
            routed=self.routed + more.routed,
            dropped=self.dropped + more.dropped,
            empty=more.empty,
        )


class ConcurrentAttempt(Exception):
    """Another attempt has published a chunk of the same number. Nothing was written. The receipts tell how much the
    other attempt has published."""


class TooManyFailures(Exception):
    """A chunk exceeds the failure limit of its interchange. Nothing was written."""

    def __init__(self, chunk: Chunk, failure: MessageFailure) -> None:
        super().__init__(failure)
        self.chunk = chunk
        self.failure = failure


class DocumentBatch(PublishBatch):
    """The documents of some chunks. ``match`` raises TooManyFailures if a chunk exceeds the failure limit of its
    interchange, and ``insert_receipts`` raises ConcurrentAttempt if a chunk has its receipt already.
    ``unroutable_before``: by interchange, how many documents of earlier chunks of this run had no subscriber.

    The chunks of a resumed message take no receipts, because the caller completes the message in the same transaction.
    If the message ``fails_as_a_whole``, ``match`` raises Unroutable for a document without subscribers."""

    def __init__(
        self,
        location: ReceiveLocation,
        content_type: str,
        chunks: Sequence[Chunk],
        routing: Routing,
        *,
        takes_receipts: bool = True,
        fails_as_a_whole: bool = False,
        unroutable_before: Mapping[uuid.UUID, int] | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self._routing = routing
        self._takes_receipts = takes_receipts
        self._fails_as_a_whole = fails_as_a_whole
        self._unroutable_before = unroutable_before or {}
        self._clock = clock
        self._failures: BatchFailures | None = None
        if location.authentication != "none":
            # With the trust of this moment, and before the receipts, which say how many messages were dropped.
            chunks = [authenticate(location, chunk, routing.login) for chunk in chunks]
        self._documents = Documents(location, content_type, chunks, routing.login)

    def match(self, connection: Connection) -> int:
        """Match the documents, and remove the documents of standard interchanges that fail as a whole."""
        documents, rows = self._documents, len(self._documents.chunk_of)
        predicates = [context.predicates for context in documents.initial_contexts]
        waiting = WaitingSubscribers.find(connection, self._routing, documents.promoted, rows)
        matches = BatchMatches(self._routing, documents.promoted, rows, predicates, waiting, documents.chunk_of)
        rejections: dict[int, MessageFailure] = {
            number: chunk.rejection for number, chunk in enumerate(documents.chunks) if chunk.rejection is not None
        }
        unroutable: dict[int, RoutingFailure] = {}
        for row in np.flatnonzero(matches.counts == 0).tolist():
            chunk = int(documents.chunk_of[row])
            if documents.chunks[chunk].recoverable or chunk not in rejections:
                unauthorised = matches.unauthorised_hosts.get(row, ())
                unroutable[row] = routing_failure(documents.get_message_type(row), predicates[chunk], unauthorised)
                if not documents.chunks[chunk].recoverable:
                    rejections[chunk] = unroutable[row]
        if self._fails_as_a_whole and unroutable:
            lock_current(connection, matches.version)
            row, failure = next(iter(unroutable.items()))
            raise Unroutable(failure.what, documents.build_context(row))
        excess = self._find_excess(unroutable)
        if excess is not None:
            lock_current(connection, matches.version)
            raise excess
        #: The number of documents without a subscriber of each chunk.
        self.unroutable = np.bincount(documents.chunk_of[list(unroutable)], minlength=len(documents.chunks)).tolist()
        kept = ~np.isin(documents.chunk_of, list(rejections))
        if rejections or unroutable or any(chunk.failures for chunk in documents.chunks):
            self._failures = BatchFailures(
                connection,
                documents,
                rejections=rejections,
                unroutable=unroutable,
                first_instance=int(matches.counts[kept].sum()),
                routing=self._routing,
                clock=self._clock,
            )
            kept[self._failures.replaced_rows] = False
        self._kept = np.flatnonzero(kept)
        units = Units.from_uuids(documents.units).take(documents.chunk_of[self._kept])
        numbers = documents.numbers[self._kept]
        self._message_ids = units.derive_ids(IdKind.MESSAGE, numbers)
        self._part_ids = units.derive_ids(IdKind.PART, numbers)
        self._set_counts(matches.counts[self._kept])
        self._routes: Iterable[Routes] = _build_routes(matches, kept, units)
        if matches.is_kept:
            # Before the routing lock. The routes of a batch with several pieces do not fit into memory.
            self._routes = list(self._routes)
        return matches.version

    def _set_counts(self, counts: npt.NDArray[np.int64]) -> None:
        """Set the number of references to each document, and mark those with exactly one: the row itself stores it, and
        the reference log gets no line. A suspended document has one reference more, because it is published again when
        it is resumed, so it is never marked."""
        self._is_inline = self._documents.is_inline[self._kept]
        self._counts = counts
        self._has_one_reference = counts == 1
        if self._failures:
            suspended = np.searchsorted(self._kept, self._failures.suspended_rows)
            self._counts[suspended] += 1
            self._has_one_reference[suspended] = False

    def _find_excess(self, unroutable: Mapping[int, RoutingFailure]) -> TooManyFailures | None:
        """Return the first chunk that exceeds the failure limit of its interchange."""
        documents = self._documents
        by_chunk: dict[int, list[int]] = {}
        for row in unroutable:
            by_chunk.setdefault(int(documents.chunk_of[row]), []).append(row)
        before = Counter(self._unroutable_before)
        for number, chunk in enumerate(documents.chunks):
            rows = by_chunk.get(number, [])
            if chunk.recoverable and chunk.failure_limit is not None:
                failures = ChunkFailures(
                    # The failures after these are documents without an authenticated originator.
                    bad=chunk.failures[: chunk.bad],
                    unroutable=[unroutable[row] for row in rows],
                    earlier=before[chunk.interchange.interchange_id],
                    documents=chunk.last_document,
                    last=chunk.last_published,
                )
                failure = chunk.failure_limit.check_failures(failures)
                if isinstance(failure, RoutingFailure):
                    context = documents.build_context(rows[0])
                    failure = Unroutable(failure.what, context, why=failure.why, hint=failure.hint)
                if failure is not None:
                    return TooManyFailures(chunk, failure)
            before[chunk.interchange.interchange_id] += len(rows)
        return None

    def insert_receipts(self, connection: Connection) -> None:
        """Insert the receipts of the chunks, with the number of their failures."""
        if self._takes_receipts:
            receipts = [
                (replace(chunk, bad=chunk.bad + count) if count else chunk).receipt
                for chunk, count in zip(self._documents.chunks, self.unroutable, strict=True)
            ]
            if not take_receipts(connection, receipts):
                raise ConcurrentAttempt

    # -- writing -----------------------------------------------------------------------------------------------

    def write_messages(self, connection: Connection) -> None:
        if len(self._kept):
            self._write_documents(connection)
        if self._failures:
            self._failures.write_messages(connection)

    def _write_documents(self, connection: Connection) -> None:
        documents, table = self._documents, self._documents.table
        assert table is not None
        table = table.take(self._kept) if len(self._kept) < len(documents.chunk_of) else table
        bodies = table["body"].to_pylist()
        kinds, kind_of = documents.group_by_kind(self._kept)
        for number, kind in enumerate(kinds):
            chosen = np.flatnonzero(self._is_inline & (kind_of == number))
            same_kind = bodies if len(chosen) == len(bodies) else [bodies[position] for position in chosen.tolist()]
            self._copy_parts(connection, self._part_ids[chosen], self._has_one_reference[chosen], same_kind, *kind)
        for position in np.flatnonzero(~self._is_inline).tolist():
            # A body that is passed by reference is streamed from the interchange in fragments.
            part_id = uuid.UUID(bytes=bytes(self._part_ids[position]))
            write_part(connection, documents.build_body_part(int(self._kept[position]), part_id))
        for part in self._shared_parts:
            write_part(connection, part)
        shared = [documents.initial_contexts[chunk] for chunk in documents.chunk_of[self._kept].tolist()]
        columns = {key: column.take(pa.array(self._kept)) for key, column in documents.columns.items()}
        contexts = encode_contexts(shared, columns)
        originators = to_stored_originators(shared, columns, self._routing.login)
        names = [name for name, _ in kinds]
        if originators is None and len(set(names)) == 1 and not self._shared_parts:
            write_spool(
                connection,
                (UUID, self._message_ids),
                (UUID, self._part_ids),
                encode_constant(names[0]),
                (BOOLEAN, self._has_one_reference),
                contexts,
            )
            return
        message_ids, body_ids = map(bytes, self._message_ids), list(map(bytes, self._part_ids))
        part_ids = map(documents.get_part_ids, self._kept.tolist(), body_ids)
        body_names = [names[kind] for kind in kind_of.tolist()]
        only_references = self._has_one_reference.tolist()
        write_spool_rows(
            connection,
            zip(message_ids, part_ids, body_ids, body_names, only_references, contexts, strict=True),
            originators=originators,
        )

    @property
    def _shared_parts(self) -> list[Part]:
        """The parts that documents share, of the chunks that still have documents."""
        if not any(self._documents.other_parts):
            return []
        chunks = np.unique(self._documents.chunk_of[self._kept]).tolist()
        return [part for chunk in chunks for part in self._documents.other_parts[chunk]]

    def _copy_parts(
        self,
        connection: Connection,
        ids: npt.NDArray[np.void],
        only_references: npt.NDArray[np.bool_],
        bodies: list[bytes],
        name: str,
        content_type: str,
    ) -> None:
        if bodies:
            sizes = np.fromiter(map(len, bodies), dtype=np.int64, count=len(bodies))
            texts = (encode_constant(name), encode_constant(content_type))
            write_parts(connection, [(UUID, ids), *texts, (BIGINT, sizes), (BOOLEAN, only_references)], bodies)

    def write_routes(self, connection: Connection, lock: RoutingLock, ordered: OrderedRoutes) -> None:
        self._hosts = self._failures.hosts if self._failures else set()
        for routes in self._routes:
            routes.write(connection, self._message_ids, ordered)
            self._hosts |= routes.hosts
        logged = ~self._has_one_reference
        write_references(connection, "message", lock.message_log, self._message_ids[logged], self._counts[logged])
        logged |= ~self._is_inline
        write_references(connection, "part", lock.part_log, self._part_ids[logged], self._counts[logged])
        self._write_shared_part_references(connection, lock)
        if self._failures:
            self._failures.write_routes(connection, lock, ordered)

    def _write_shared_part_references(self, connection: Connection, lock: RoutingLock) -> None:
        """Write the references to shared parts: the sum of the references to the documents of the chunk."""
        others = self._documents.other_parts
        if any(others):
            per_chunk = np.bincount(self._documents.chunk_of[self._kept], weights=self._counts, minlength=len(others))
            deltas = np.repeat(per_chunk.astype(np.int64), list(map(len, others)))
            ids = to_id_array([part.part_id for parts in others for part in parts])
            write_references(connection, "part", lock.part_log, ids[deltas > 0], deltas[deltas > 0])

    @property
    def hosts(self) -> Collection[str]:
        return self._hosts

    # -- results -----------------------------------------------------------------------------------------------

    @property
    def rejection(self) -> MessageFailure | None:
        """The reason why the interchange of these chunks is rejected."""
        return self._documents.chunks[-1].rejection

    @property
    def chunk_results(self) -> list[ReceiveResult]:
        """What became of each chunk."""
        chunks, chunk_of = self._documents.chunks, self._documents.chunk_of
        published = np.bincount(chunk_of[self._kept], minlength=len(chunks))
        suspended = routed = np.zeros_like(published)
        if self._failures:
            suspended, routed = self._failures.count_per_chunk()
            published -= np.bincount(chunk_of[self._failures.suspended_rows], minlength=len(chunks))
        return [
            ReceiveResult(
                interchange_id=chunk.interchange.interchange_id,
                published=int(published[number]),
                suspended=int(suspended[number]),
                routed=int(routed[number]),
                dropped=chunk.dropped,
                empty=chunk.is_empty_interchange,
            )
            for number, chunk in enumerate(chunks)
        ]


def _build_routes(matches: BatchMatches, kept: npt.NDArray[np.bool_], units: Units) -> Iterator[Routes]:
    """Yield the routes of each piece of the matches. ``units`` has the unit of each document that is kept."""
    number_of = np.cumsum(kept) - 1
    first_instance = 0
    for piece in matches:
        selected = piece.select(kept[piece.rows])
        selected = replace(selected, rows=number_of[selected.rows])
        yield Routes(selected, units.take(selected.rows), first_instance=first_instance)
        first_instance += len(selected.rows)
