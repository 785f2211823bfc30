"""What of a batch cannot be published, and what becomes of it: suspended instances, or error messages.

Interchanges that cannot be read as a whole, documents that cannot be read, and documents that nobody subscribes to.
At a receive port that routes failures each becomes an error message, if somebody wants that.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from postroom.agent.error_reports import Failure, type_in
from postroom.agent.identity import Kind, derive_id, unit_for_failure
from postroom.agent.originator import resolve_originator
from postroom.agent.publish import RoutingLock
from postroom.agent.receiving.documents import Documents
from postroom.agent.receiving.suspended_documents import KeptAfter, suspended_context
from postroom.agent.reports import RoutingFailureReport, write_suspensions
from postroom.agent.routes import RoutedMessages
from postroom.agent.routing.matching import match_batch
from postroom.agent.routing.table import RoutingTable
from postroom.clock import Clock
from postroom.errors import MessageFailure, RoutingFailure
from postroom.filters.columns import columns_of
from postroom.message import Body, Bytes, Context, Message
from postroom.messagebox.configuration import ServiceClass
from postroom.messagebox.connection import Connection
from postroom.messagebox.storage.writing import Cause, SuspendedRow, Task
from postroom.pipelines.documents.disassembled_batch import BadDocument
from postroom.pipelines.running.suspended_document import can_be_resumed
from postroom.system_properties import BTS


@dataclass(frozen=True, kw_only=True)
class _Unroutable:
    """A document that nobody subscribes to, and the instance of the report about it."""

    row: int
    report_id: uuid.UUID
    context: Context


@dataclass(frozen=True, kw_only=True)
class _Failed:
    """An interchange (``number`` 0) or one of its documents, as an instance of the receive location."""

    chunk: int
    number: int
    instance_id: uuid.UUID
    failure: MessageFailure
    task: Task
    context: Context
    """What its message is stored with."""
    body: Body | None = None
    """Its bytes, if they are not those of a document of the batch."""
    row: int | None = None
    """The document of the batch that it is."""
    resumable: bool = True
    unroutable: _Unroutable | None = None
    bad: BadDocument | None = None
    """The document that it is, if that is no message."""


@dataclass(frozen=True, kw_only=True)
class _FailedInbound:
    """What failed on its way in; ``message`` makes the clone of it with that id and context."""

    failure: Failure
    original: Context
    message: Callable[[uuid.UUID, Context], Message]


class BatchFailures:
    """The failures of a batch.

    ``refusals`` are the chunks that fail as a whole. ``unroutable`` are rows that nobody may receive, and why: all of a
    recoverable interchange, the first of any other. Their instances count from ``first_instance``."""

    def __init__(
        self,
        connection: Connection,
        documents: Documents,
        *,
        refusals: Mapping[int, MessageFailure],
        unroutable: Mapping[int, RoutingFailure],
        first_instance: int,
        routing: RoutingTable,
        clock: Clock,
    ) -> None:
        self._documents = documents
        self._login = routing.login
        self._clock = clock
        self._instances = first_instance
        failed = [
            *self._refused(refusals, unroutable),
            *self._bad_documents(),
            *self._unroutable_documents(unroutable),
        ]
        routed = failed if documents.location.route_failures else []
        self._errors = _match_errors(connection, [self._as_error(one) for one in routed], routing)
        replaced = {message.message_id for message in self._errors.messages}
        errors = [one for one in failed if _error_message_id(one.instance_id) in replaced]
        suspended = [one for one in failed if _error_message_id(one.instance_id) not in replaced]
        self._suspended = [self._suspended_row(one) for one in suspended]
        self._originals = [
            self._clone(one, self._message_id(one), self._suspended_context(one))
            for one in suspended
            if one.body is not None
        ]
        #: The documents that error messages take the place of.
        self.replaced = [one.row for one in errors if one.row is not None]
        #: The documents that are suspended as they are.
        self.kept = [one.row for one in suspended if one.row is not None]
        # An error message leaves no instance that its report could go with.
        self.reports = [self._report(one, one.instance_id) for one in suspended if one.unroutable]
        self.reports += [self._report(one, None) for one in errors if one.unroutable]
        self.suspended_per_chunk = _per_chunk(suspended, documents)
        self.routed_per_chunk = _per_chunk(errors, documents)

    # -- finding -----------------------------------------------------------------------------------------------

    def _refused(self, refusals: Mapping[int, MessageFailure], unroutable: Iterable[int]) -> Iterator[_Failed]:
        rows = {int(self._documents.chunk_of[row]): row for row in unroutable}
        for number, failure in refusals.items():
            chunk = self._documents.chunks[number]
            instance_id = self._next_instance(number)
            yield _Failed(
                chunk=number,
                number=0,
                instance_id=instance_id,
                failure=failure,
                task=Task.RECEIVE,
                context=self._rest(number) if chunk.number else self._documents.stamps[number],
                body=chunk.interchange.body,
                resumable=chunk.resumable,
                unroutable=self._unroutable(rows[number]) if chunk.refusal is None else None,
            )

    def _rest(self, number: int) -> Context:
        """The context of an interchange of which chunks came in before the rest was refused."""
        return self._documents.stamps[number].write(KeptAfter, self._documents.chunks[number].last_document)

    def _bad_documents(self) -> Iterator[_Failed]:
        for number, chunk in enumerate(self._documents.chunks):
            for bad in chunk.failures:
                yield _Failed(
                    chunk=number,
                    number=bad.number,
                    instance_id=self._next_instance(number),
                    failure=bad.failure,
                    task=Task.RECEIVE,
                    context=self._documents.stamps[number].promote(BTS.InterchangeSequenceNumber, bad.number),
                    body=Bytes(bad.body),
                    resumable=can_be_resumed(self._documents.location.pipeline, bad),
                    bad=bad,
                )

    def _unroutable_documents(self, unroutable: Mapping[int, RoutingFailure]) -> Iterator[_Failed]:
        """Those of recoverable interchanges: kept as they came out of the pipeline."""
        numbers = self._documents.numbers
        for row, failure in unroutable.items():
            chunk = int(self._documents.chunk_of[row])
            if not self._documents.chunks[chunk].recoverable:
                continue
            instance_id = self._next_instance(chunk)
            found = self._unroutable(row)
            yield _Failed(
                chunk=chunk,
                number=int(numbers[row]),
                instance_id=instance_id,
                failure=failure,
                task=Task.PUBLISH,
                context=found.context,
                row=row,
                unroutable=found,
            )

    def _unroutable(self, row: int) -> _Unroutable:
        report_id = self._next_instance(int(self._documents.chunk_of[row]))
        return _Unroutable(row=row, report_id=report_id, context=self._documents.context(row))

    def _next_instance(self, chunk: int) -> uuid.UUID:
        self._instances += 1
        return derive_id(self._documents.units[chunk], Kind.INSTANCE, self._instances - 1)

    # -- deciding ----------------------------------------------------------------------------------------------

    def _as_error(self, one: _Failed) -> _FailedInbound:
        unroutable, location = one.unroutable, self._documents.location
        # Of an interchange of one document the document's properties are known. Those of one among many would say
        # something about the whole that is true of a part.
        alone = unroutable is not None and self._documents.chunks[one.chunk].rows == 1
        return _FailedInbound(
            failure=Failure(
                code=one.failure.code,
                description=str(one.failure),
                message_id=self._message_id(one),
                instance_id=one.instance_id,
                failed_at=self._clock(),
                adapter=self._documents.location.adapter_kind,
                receive_port=location.port_name,
                uri=location.uri,
                message_type=type_in(unroutable.context) if unroutable else None,
                report_id=unroutable.report_id if unroutable else None,
            ),
            original=unroutable.context if unroutable and alone else one.context,
            message=lambda message_id, context: self._clone(one, message_id, context),
        )

    def _suspended_row(self, one: _Failed) -> SuspendedRow:
        location = self._documents.location
        return SuspendedRow(
            message_id=self._message_id(one),
            instance_id=one.instance_id,
            host_id=location.host_id,
            service_class=ServiceClass.MESSAGING_IN_PROCESS,
            service_id=location.location_id,
            task=one.task,
            cause=Cause.FAILURE,
            error_code=one.failure.code,
            error_description=str(one.failure),
            # Published later it would be out of its order.
            resumable=one.resumable and not self._documents.location.adapter.is_ordered,
            adapter=self._documents.location.adapter_kind,
            uri=location.uri,
        )

    def _report(self, one: _Failed, related: uuid.UUID | None) -> RoutingFailureReport:
        assert one.unroutable is not None
        document = int(self._documents.numbers[one.unroutable.row])
        return RoutingFailureReport(
            message_id=derive_id(self._documents.units[one.chunk], Kind.REPORT, document),
            instance_id=one.unroutable.report_id,
            related_instance_id=related,
            host_id=self._documents.location.host_id,
            context=one.unroutable.context,
            description=one.failure.what,
            adapter=self._documents.location.adapter_kind,
            uri=self._documents.location.uri,
        )

    def _message_id(self, one: _Failed) -> uuid.UUID:
        return derive_id(self._documents.units[one.chunk], Kind.MESSAGE, one.number)

    def _clone(self, one: _Failed, message_id: uuid.UUID, context: Context) -> Message:
        """Its bytes as a message of their own."""
        part_id = derive_id(self._documents.units[one.chunk], Kind.PART, one.number)
        if one.row is not None:
            parts = self._documents.clone(one.row, part_id)
        else:
            assert one.body is not None
            parts = self._documents.as_it_came(one.chunk, one.body, part_id, one.bad)
        [body_name] = [part.name for part in parts if part.part_id == part_id]
        return Message(context=context, parts=parts, body_part_name=body_name, message_id=message_id)

    def _suspended_context(self, one: _Failed) -> Context:
        """What it is suspended with."""
        if one.bad is None:
            return one.context
        kept = suspended_context(
            one.context, self._documents.location.pipeline, self._documents.disassembler(one.chunk), one.bad
        )
        return resolve_originator(kept, self._login)

    # -- writing -----------------------------------------------------------------------------------------------

    @property
    def messages(self) -> list[Message]:
        """What is to be stored beside the documents that are published."""
        return [*self._originals, *self._errors.messages, *(report.message for report in self.reports)]

    @property
    def hosts(self) -> set[str]:
        """The hosts that have error messages in their work queues."""
        return self._errors.routes.hosts

    def write_routes(self, connection: Connection, host: str, lock: RoutingLock) -> None:
        """Queue rows, and the references of everything that is not a document of the batch."""
        write_suspensions(connection, host, lock, rows=self._suspended, reports=self.reports, messages=self._originals)
        self._errors.write(connection, lock)


def _per_chunk(failed: Sequence[_Failed], documents: Documents) -> npt.NDArray[np.int64]:
    chunks = np.array([one.chunk for one in failed], dtype=np.int64)
    return np.bincount(chunks, minlength=len(documents.chunks))


def _match_errors(connection: Connection, failed: Sequence[_FailedInbound], routing: RoutingTable) -> RoutedMessages:
    """The error messages about those of the failures that somebody wants to hear of."""
    contexts = [one.failure.context(one.original) for one in failed]
    columns = columns_of([context.promoted for context in contexts])
    predicates = [context.predicates for context in contexts]
    matches = match_batch(connection, routing, columns, len(contexts), predicates)
    wanted = np.unique(matches.rows)
    messages = [
        failed[row].message(_error_message_id(failed[row].failure.instance_id), contexts[row])
        for row in wanted.tolist()
    ]
    units = [unit_for_failure(failed[row].failure.instance_id) for row in wanted.tolist()]
    return RoutedMessages(messages, replace(matches, rows=np.searchsorted(wanted, matches.rows)), units)


def _error_message_id(instance_id: uuid.UUID) -> uuid.UUID:
    """The id of the error message about an instance that failed."""
    return derive_id(unit_for_failure(instance_id), Kind.MESSAGE, 0)
