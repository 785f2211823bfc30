"""A batch on its way into the MessageBox: the documents of some chunks, matched, with all the rows that they become.

Built from chunks and a routing table; then ``write_messages`` (bodies first), and under the routing lock
``write_routes``. What cannot be published is among the rows too, as suspended instances with their reasons.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from postroom.agent.chunks import Chunk
from postroom.agent.contexts import stored_contexts
from postroom.agent.identity import Kind, Units, derive_id, unit_for_chunk
from postroom.agent.interchange import stamp
from postroom.agent.reports import RoutingFailureReport, snapshot
from postroom.agent.routes import Routes
from postroom.agent.routing import RoutingTable
from postroom.errors import MessageFailure, RoutingFailure
from postroom.filters.columns import Columns
from postroom.message import Body, Bytes, Context, FileSlice, Message, Part
from postroom.messagebox.configuration import ReceiveLocation, ServiceClass
from postroom.messagebox.connection import Connection
from postroom.messagebox.copying import BIGINT, UUID, constant
from postroom.messagebox.writing import (
    Cause,
    SuspendedRow,
    Task,
    write_message,
    write_part,
    write_parts,
    write_references,
    write_spool,
    write_suspended,
)
from postroom.system_properties import BTS

_NUMBER, _TYPE = BTS.InterchangeSequenceNumber.key, BTS.MessageType.key
_BODY = "body"
_OWN_COLUMNS = ("number", "body", "offset", "length", "message_type")


@dataclass(frozen=True, kw_only=True)
class _Suspension:
    """An instance of the receive location that is suspended, with its message."""

    chunk: int
    message: Message
    context: Context
    failure: MessageFailure
    resumable: bool
    is_new_message: bool


class Batch:
    """The rows of one publish transaction."""

    def __init__(
        self, location: ReceiveLocation, content_type: str, chunks: Sequence[Chunk], routing: RoutingTable
    ) -> None:
        self._location = location
        self._content_type = content_type
        self._chunks = list(chunks)
        self._routing = routing
        self._stamps = [stamp(location, chunk.interchange) for chunk in chunks]
        self._units = [unit_for_chunk(chunk.interchange.interchange_id, chunk.number) for chunk in chunks]
        self._documents = _concatenated(self._chunks)
        self._chunk_of = np.repeat(np.arange(len(chunks)), [chunk.rows for chunk in chunks])
        self._instances = 0
        self._suspensions: list[_Suspension] = []
        self._route()
        self._number_instances()

    # -- deciding ----------------------------------------------------------------------------------------------

    def _route(self) -> None:
        """Matches the documents, and takes out of the batch what a standard interchange takes down with it."""
        rows = len(self._chunk_of)
        self._columns = value_columns(self._documents)
        found, ids = (
            self._routing.match(self._promoted(), rows)
            if rows
            else (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
        )
        unroutable = np.ones(rows, dtype=bool)
        unroutable[found] = False
        self._refusals: dict[int, MessageFailure] = {
            number: chunk.refusal for number, chunk in enumerate(self._chunks) if chunk.refusal is not None
        }
        report_rows: list[int] = []
        for row in np.flatnonzero(unroutable).tolist():
            chunk = int(self._chunk_of[row])
            if self._chunks[chunk].recoverable:
                report_rows.append(row)
            elif chunk not in self._refusals:
                self._refusals[chunk] = RoutingFailure(_nobody(self._type_of(row)))
                report_rows.append(row)
        kept = ~np.isin(self._chunk_of, list(self._refusals))
        self._kept = np.flatnonzero(kept)
        mask = kept[found] if rows else np.empty(0, dtype=bool)
        position = np.cumsum(kept) - 1
        units = Units.of(self._units).take(self._chunk_of[self._kept])
        numbers = self._numbers()[self._kept]
        self._message_ids = units.ids(Kind.MESSAGE, numbers)
        self._part_ids = units.ids(Kind.PART, numbers)
        self._routes = Routes(
            messages=position[found[mask]],
            subscription_ids=ids[mask],
            units=units.take(position[found[mask]]),
            routing=self._routing,
        )
        self._instances = len(self._routes.messages)
        self._report_rows = report_rows
        self._unroutable_kept = [row for row in report_rows if self._chunks[int(self._chunk_of[row])].recoverable]

    def _promoted(self) -> Columns:
        shared = self._stamps[0].promoted if self._stamps else {}
        return {**shared, **self._columns}

    def _numbers(self) -> npt.NDArray[np.int64]:
        if self._documents is None:
            return np.empty(0, dtype=np.int64)
        numbers: npt.NDArray[np.int64] = self._documents["number"].to_numpy()
        return numbers

    def _type_of(self, row: int) -> str | None:
        assert self._documents is not None
        message_type: str | None = self._documents["message_type"][row].as_py()
        return message_type

    def _number_instances(self) -> None:
        """The suspended instances and the reports, with ids that follow those of the routes."""
        self._suspended: list[SuspendedRow] = []
        self._originals: list[tuple[Message, Context]] = []
        self.reports: list[RoutingFailureReport] = []
        instance_of_chunk: dict[int, uuid.UUID] = {}
        for number, failure in self._refusals.items():
            chunk = self._chunks[number]
            message = self._original(number, 0, chunk.interchange.body)
            context = self._stamps[number]
            self._originals.append((message, context))
            instance_of_chunk[number] = self._suspend(
                number, message.message_id, failure, Task.RECEIVE, resumable=chunk.resumable
            )
        for number, chunk in enumerate(self._chunks):
            for bad in chunk.failures:
                message = self._original(number, bad.number, Bytes(bad.body))
                context = self._stamps[number].promote(BTS.InterchangeSequenceNumber, bad.number)
                self._originals.append((message, context))
                self._suspend(number, message.message_id, bad.failure, Task.RECEIVE)
        document_numbers = self._numbers()
        for row in self._report_rows:
            number, document = int(self._chunk_of[row]), int(document_numbers[row])
            why = RoutingFailure(_nobody(self._type_of(row)))
            related = instance_of_chunk.get(number)
            if related is None:
                message_id = derive_id(self._units[number], Kind.MESSAGE, document)
                related = self._suspend(number, message_id, why, Task.PUBLISH)
            self.reports.append(
                RoutingFailureReport(
                    message_id=derive_id(self._units[number], Kind.REPORT, document),
                    instance_id=self._next_instance(number),
                    related_instance_id=related,
                    host_id=self._location.host_id,
                    context=snapshot(self._stamps[number], self._columns, row),
                    description=why.what,
                )
            )

    def _original(self, chunk: int, number: int, body: Body) -> Message:
        """The bytes as they came, as a message of their own."""
        unit = self._units[chunk]
        part = Part(body=body, content_type=self._content_type, part_id=derive_id(unit, Kind.PART, number))
        return Message(parts=(part,), message_id=derive_id(unit, Kind.MESSAGE, number))

    def _suspend(
        self, chunk: int, message_id: uuid.UUID, failure: MessageFailure, task: Task, *, resumable: bool = True
    ) -> uuid.UUID:
        instance_id = self._next_instance(chunk)
        self._suspended.append(
            SuspendedRow(
                message_id=message_id,
                instance_id=instance_id,
                host_id=self._location.host_id,
                service_class=ServiceClass.MESSAGING_IN_PROCESS,
                service_id=self._location.location_id,
                task=task,
                cause=Cause.FAILURE,
                error_code=failure.code,
                error_description=str(failure),
                resumable=resumable,
                adapter=str(self._location.adapter["kind"]),
                uri=self._location.uri,
            )
        )
        return instance_id

    def _next_instance(self, chunk: int) -> uuid.UUID:
        self._instances += 1
        return derive_id(self._units[chunk], Kind.INSTANCE, self._instances - 1)

    # -- writing -----------------------------------------------------------------------------------------------

    def write_messages(self, connection: Connection) -> None:
        """Parts, fragments and spool: what is independent of who subscribes."""
        if len(self._kept):
            self._write_documents(connection)
        for message, context in self._originals:
            write_message(connection, message, context.to_json())
        for report in self.reports:
            write_message(connection, Message(message_id=report.message_id), report.context.to_json())

    def _write_documents(self, connection: Connection) -> None:
        assert self._documents is not None
        documents = self._documents.take(self._kept) if len(self._kept) < len(self._chunk_of) else self._documents
        bodies = documents["body"].to_pylist()
        inline = np.fromiter((body is not None for body in bodies), dtype=bool, count=len(bodies))
        if inline.all():
            self._copy_parts(connection, self._part_ids, bodies)
        else:
            self._copy_parts(connection, self._part_ids[inline], [body for body in bodies if body is not None])
            for row in np.flatnonzero(~inline).tolist():
                self._write_large(connection, documents, row)
        shared = [self._stamps[chunk] for chunk in self._chunk_of[self._kept].tolist()]
        columns = {key: column.take(pa.array(self._kept)) for key, column in self._columns.items()}
        contexts = stored_contexts(shared, columns, len(self._kept))
        write_spool(connection, (UUID, self._message_ids), (UUID, self._part_ids), constant(_BODY), contexts)

    def _copy_parts(self, connection: Connection, ids: npt.NDArray[np.void], bodies: list[bytes]) -> None:
        if bodies:
            sizes = np.fromiter(map(len, bodies), dtype=np.int64, count=len(bodies))
            columns = [(UUID, ids), constant(_BODY), constant(self._content_type), (BIGINT, sizes)]
            write_parts(connection, columns, bodies)

    def _write_large(self, connection: Connection, documents: pa.Table, row: int) -> None:
        """A body that stayed where it is: streamed from the interchange in fragments."""
        chunk = self._chunks[int(self._chunk_of[self._kept[row]])]
        offset, length = documents["offset"][row].as_py(), documents["length"][row].as_py()
        part_id = uuid.UUID(bytes=bytes(self._part_ids[row]))
        body = _slice(chunk.interchange.body, offset, length)
        write_part(connection, Part(body=body, content_type=self._content_type, part_id=part_id))

    def write_routes(self, connection: Connection, *, message_log: int, part_log: int) -> None:
        """Queue rows and references. The caller holds the routing lock, and the routing version is the one matched."""
        self._routes.write(connection, self._message_ids)
        host = self._routing.host_names[self._location.host_id]
        suspended = [*self._suspended, *(report.row() for report in self.reports)]
        if suspended:
            write_suspended(connection, host, suspended)
        counts = np.bincount(self._routes.messages, minlength=len(self._message_ids))
        counts[np.searchsorted(self._kept, self._unroutable_kept)] += 1
        write_references(connection, "message", message_log, self._message_ids, counts)
        write_references(connection, "part", part_log, self._part_ids, counts)
        others = [message for message, _ in self._originals]
        once = [message.message_id for message in others] + [report.message_id for report in self.reports]
        write_references(connection, "message", message_log, _ids(once), np.ones(len(once), dtype=np.int64))
        parts = [part.part_id for message in others for part in message.parts]
        write_references(connection, "part", part_log, _ids(parts), np.ones(len(parts), dtype=np.int64))

    # -- telling -----------------------------------------------------------------------------------------------

    @property
    def hosts(self) -> set[str]:
        """The hosts that have work in their queues now."""
        return self._routes.hosts

    @property
    def tallies(self) -> list[tuple[Chunk, int, int]]:
        """Per chunk: how many messages were published, and how many instances were suspended."""
        published = np.bincount(self._chunk_of[self._kept], minlength=len(self._chunks))
        unroutable = np.bincount(self._chunk_of[self._unroutable_kept], minlength=len(self._chunks))
        return [
            (
                chunk,
                int(published[number] - unroutable[number]),
                int(unroutable[number]) + len(chunk.failures) + (number in self._refusals),
            )
            for number, chunk in enumerate(self._chunks)
        ]


def _concatenated(chunks: Sequence[Chunk]) -> pa.Table | None:
    tables = [chunk.documents for chunk in chunks if chunk.documents is not None]
    return pa.concat_tables(tables).combine_chunks() if tables else None


def value_columns(documents: pa.Table | None) -> dict[str, pa.Array]:
    """The columns that are promoted: the pipeline's own, the sequence number and the message type."""
    if documents is None:
        return {}
    columns = {_NUMBER: documents["number"], _TYPE: documents["message_type"]}
    columns |= {name: documents[name] for name in documents.column_names if name not in _OWN_COLUMNS}
    return {
        key: column.combine_chunks() if column.num_chunks != 1 else column.chunk(0) for key, column in columns.items()
    }


def _slice(body: Body, offset: int, length: int) -> Body:
    if isinstance(body, FileSlice):
        return FileSlice(path=body.path, offset=body.offset + offset, length=length)
    if offset == 0 and length == body.size:
        return body
    return Bytes(b"".join(body.chunks())[offset : offset + length])


def _ids(ids: Sequence[uuid.UUID]) -> npt.NDArray[np.void]:
    return np.frombuffer(b"".join(one.bytes for one in ids), dtype="V16")


def _nobody(message_type: str | None) -> str:
    of_type = f" of type {message_type}" if message_type else ""
    return f"The published message{of_type} could not be routed because no subscribers were found."
