"""The failures of a batch: suspended instances, or error messages.

A failure is an interchange that cannot be read as a whole, a document that cannot be read, or a document that has no
subscriber. At a receive port that routes failures, a failure becomes an error message if that has a subscriber. A
negative acknowledgement is published in addition, if somebody subscribes to it (ACK-01, ACK-02).
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from postroom.agent.acknowledgements import ReceivedMessage
from postroom.agent.error_messages import (
    Failure,
    get_message_type,
    has_routing_failure_report,
    is_suspended_as_non_resumable,
)
from postroom.agent.idempotency import IdKind, derive_id, unit_for_failure, unit_for_nack
from postroom.agent.originator import resolve_originator, to_stored_originator
from postroom.agent.routing.batch_matches import MatchResult, Predicates, match_batch
from postroom.agent.routing.routes import OrderedRoutes, RoutedMessages
from postroom.agent.routing.table import Routing
from postroom.agent.routing_failure_reports import RoutingFailureReport, Unroutable, write_suspensions
from postroom.agent.streaming.documents import Documents
from postroom.agent.streaming.suspended_context import LastPublished, build_suspended_context
from postroom.clock import Clock
from postroom.errors import MessageFailure, RoutingFailure
from postroom.filters.columns import build_columns
from postroom.message import Body, Bytes, Context, Message
from postroom.messagebox.connection import Connection
from postroom.messagebox.queues import Cause, QueueTask, Suspension
from postroom.messagebox.routing import RoutingLock
from postroom.messagebox.storage.copy_rows import SuspendedRow, write_messages
from postroom.pipelines.documents.disassembled_batch import BadDocument, Form
from postroom.system_properties import BTS
from postroom.values import Value


@dataclass(frozen=True, kw_only=True)
class _UnroutableDocument:
    """A document that has no subscriber, and the instance id of its routing failure report. ``number`` is 0 if the
    document stands for all documents of a rejected interchange."""

    number: int
    report_id: uuid.UUID
    context: Context


@dataclass(frozen=True, kw_only=True)
class _FailedInstance:
    """An interchange (``number`` 0) or one of its documents, as an instance of the receive location."""

    chunk: int
    number: int
    instance_id: uuid.UUID
    failure: MessageFailure
    task: QueueTask
    context: Context
    """The context of its message."""
    body: Body | None = None
    """Its bytes, unless it is a document of the batch."""
    row: int | None = None
    """Its row, if it is a document of the batch."""
    resumable: bool = True
    unroutable: _UnroutableDocument | None = None
    bad: BadDocument | None = None
    """The document that could not be read."""


class BatchFailures:
    """The failures of a batch.

    ``rejections`` are the chunks that fail as a whole. ``unroutable`` are the rows that no host may receive, with the
    reason: all rows of a recoverable interchange, the first row of a standard one. Their instances are numbered from
    ``first_instance``."""

    def __init__(
        self,
        connection: Connection,
        documents: Documents,
        *,
        rejections: Mapping[int, MessageFailure],
        unroutable: Mapping[int, RoutingFailure],
        first_instance: int,
        routing: Routing,
        clock: Clock,
    ) -> None:
        self._documents = documents
        self._location = documents.location
        self._routing = routing
        self._clock = clock
        self._instances = first_instance
        failed = [
            *self._find_rejections(rejections, unroutable),
            *self._find_bad_documents(),
            *self._find_unroutable_documents(unroutable),
        ]
        self._routed = self._match_errors(connection, failed if self._location.route_failures else [])
        self._nacks = self._match_nacks(connection, failed)
        routed = {instance.instance_id for instance in self._routed}
        self._suspended = [instance for instance in failed if instance.instance_id not in routed]
        self._originals = [
            self._build_message(instance, self._message_id(instance), self._build_suspended_context(instance))
            for instance in self._suspended
            if instance.body is not None
        ]
        #: The documents that are replaced by error messages.
        self.replaced_rows = [instance.row for instance in self._routed if instance.row is not None]
        #: The documents that are suspended as they are.
        self.suspended_rows = [instance.row for instance in self._suspended if instance.row is not None]
        self._reports = self._build_reports(failed, routed)

    # -- finding -----------------------------------------------------------------------------------------------

    def _find_rejections(
        self, rejections: Mapping[int, MessageFailure], unroutable: Mapping[int, RoutingFailure]
    ) -> Iterator[_FailedInstance]:
        rows = {int(self._documents.chunk_of[row]): row for row in unroutable}
        for number, failure in rejections.items():
            chunk, context = self._documents.chunks[number], self._documents.initial_contexts[number]
            yield _FailedInstance(
                chunk=number,
                number=0,
                instance_id=self._next_instance(number),
                failure=failure,
                task=QueueTask.RECEIVE,
                # The chunks before this one are published.
                context=context.write(LastPublished, chunk.last_document) if chunk.number else context,
                body=chunk.interchange.body,
                resumable=chunk.resumable,
                unroutable=self._describe_rejection(number, failure, rows.get(number)),
            )

    def _describe_rejection(self, chunk: int, failure: MessageFailure, row: int | None) -> _UnroutableDocument | None:
        """Return the document that has no subscriber, if that is why the interchange was rejected."""
        if isinstance(failure, Unroutable):
            return _UnroutableDocument(number=0, report_id=self._next_instance(chunk), context=failure.context)
        if row is None or self._documents.chunks[chunk].rejection is not None:
            return None
        return self._describe_unroutable(row, self._next_instance(chunk))

    def _find_bad_documents(self) -> Iterator[_FailedInstance]:
        for number, chunk in enumerate(self._documents.chunks):
            for bad in chunk.failures:
                yield _FailedInstance(
                    chunk=number,
                    number=bad.number,
                    instance_id=self._next_instance(number),
                    failure=bad.failure,
                    task=QueueTask.RECEIVE,
                    context=self._documents.initial_contexts[number].promote(BTS.InterchangeSequenceNumber, bad.number),
                    body=Bytes(bad.body),
                    resumable=bad.resumable and (bad.form is not Form.RECEIVED or self._location.pipeline.can_correct),
                    bad=bad,
                )

    def _find_unroutable_documents(self, unroutable: Mapping[int, RoutingFailure]) -> Iterator[_FailedInstance]:
        """Yield the documents of recoverable interchanges, as the pipeline made them. The documents of a chunk that
        fail for the same reason share a report, and their instances have consecutive ids."""
        groups: dict[tuple[int, str], list[int]] = {}
        for row, failure in unroutable.items():
            chunk = int(self._documents.chunk_of[row])
            if self._documents.chunks[chunk].recoverable:
                groups.setdefault((chunk, failure.what), []).append(row)
        for (chunk, _), rows in groups.items():
            instance_ids = [self._next_instance(chunk) for _ in rows]
            report_id = self._next_instance(chunk)
            for row, instance_id in zip(rows, instance_ids, strict=True):
                document = self._describe_unroutable(row, report_id)
                yield _FailedInstance(
                    chunk=chunk,
                    number=document.number,
                    instance_id=instance_id,
                    failure=unroutable[row],
                    task=QueueTask.PUBLISH,
                    context=document.context,
                    row=row,
                    unroutable=document,
                )

    def _describe_unroutable(self, row: int, report_id: uuid.UUID) -> _UnroutableDocument:
        number = int(self._documents.numbers[row])
        return _UnroutableDocument(number=number, report_id=report_id, context=self._documents.build_context(row))

    def _next_instance(self, chunk: int) -> uuid.UUID:
        self._instances += 1
        return derive_id(self._documents.units[chunk], IdKind.INSTANCE, self._instances - 1)

    # -- deciding ----------------------------------------------------------------------------------------------

    def _match_errors(self, connection: Connection, failed: Sequence[_FailedInstance]) -> list[_FailedInstance]:
        """Build the error messages that have subscribers, and return the failures that they are about."""
        contexts = [self._build_error_context(instance) for instance in failed]
        matches, rows = self._match(connection, [(context.promoted, context.predicates) for context in contexts])
        units = [unit_for_failure(failed[row].instance_id) for row in rows]
        messages = [
            self._build_message(failed[row], derive_id(unit, IdKind.MESSAGE, 0), contexts[row])
            for row, unit in zip(rows, units, strict=True)
        ]
        self._errors = RoutedMessages(messages, matches, units)
        return [failed[row] for row in rows]

    def _match_nacks(self, connection: Connection, failed: Sequence[_FailedInstance]) -> RoutedMessages:
        """Return the negative acknowledgements that have subscribers. The others are not built (ACK-02)."""
        received = [self._describe_received(instance) for instance in failed]
        promoted = [
            (each.build_nack_properties(instance.failure.code), each.context.predicates)
            for each, instance in zip(received, failed, strict=True)
        ]
        matches, rows = self._match(connection, promoted)
        units = [unit_for_nack(failed[row].instance_id) for row in rows]
        messages = [
            replace(
                received[row].build_nack(
                    Suspension(code=failed[row].failure.code, description=str(failed[row].failure))
                ),
                message_id=derive_id(unit, IdKind.MESSAGE, 0),
            )
            for row, unit in zip(rows, units, strict=True)
        ]
        return RoutedMessages(messages, matches, units)

    def _describe_received(self, instance: _FailedInstance) -> ReceivedMessage:
        return ReceivedMessage(
            message_id=self._message_id(instance),
            instance_id=instance.instance_id,
            context=instance.context,
            port_id=self._location.port_id,
            port_name=self._location.port_name,
            uri=self._location.uri,
        )

    def _match(
        self, connection: Connection, messages: Sequence[tuple[Mapping[str, Value], Predicates]]
    ) -> tuple[MatchResult, list[int]]:
        """Match messages, given by promoted values and predicates. Return the matches of those that have subscribers,
        and their rows."""
        columns = build_columns([promoted for promoted, _ in messages])
        predicates = [each for _, each in messages]
        matches = match_batch(connection, self._routing, columns, len(messages), predicates)
        rows = np.unique(matches.rows)
        return replace(matches, rows=np.searchsorted(rows, matches.rows)), rows.tolist()

    def _build_error_context(self, instance: _FailedInstance) -> Context:
        unroutable = instance.unroutable
        failure = Failure(
            code=instance.failure.code,
            description=str(instance.failure),
            message_id=self._message_id(instance),
            instance_id=instance.instance_id,
            failed_at=self._clock(),
            adapter=self._location.adapter_kind,
            receive_port=self._location.port_name,
            uri=self._location.uri,
            message_type=get_message_type(unroutable.context) if unroutable else None,
            report_id=unroutable.report_id if unroutable and has_routing_failure_report(unroutable.context) else None,
        )
        # If the document is the whole interchange, its properties are those of the interchange. The properties of one
        # document among many are not.
        is_alone = unroutable is not None and self._documents.chunks[instance.chunk].rows == 1
        return failure.build_context(unroutable.context if unroutable and is_alone else instance.context)

    def _build_suspended_row(self, instance: _FailedInstance) -> SuspendedRow:
        return SuspendedRow(
            message_id=self._message_id(instance),
            instance_id=instance.instance_id,
            host_id=self._location.host_id,
            service_class=self._routing.messaging_classes[self._location.host_id],
            service_id=self._location.location_id,
            task=instance.task,
            cause=Cause.FAILURE,
            error_code=instance.failure.code,
            error_description=str(instance.failure),
            # A message that is published later would be out of order.
            resumable=instance.resumable
            and not self._location.adapter.is_ordered
            and not is_suspended_as_non_resumable(instance.context),
            adapter=self._location.adapter_kind,
            uri=self._location.uri,
        )

    def _build_reports(
        self, failed: Sequence[_FailedInstance], routed: Collection[uuid.UUID]
    ) -> list[RoutingFailureReport]:
        """Return the reports. A report has the context of its first document."""
        groups: dict[uuid.UUID, list[_FailedInstance]] = {}
        for instance in failed:
            if instance.unroutable is not None and has_routing_failure_report(instance.unroutable.context):
                groups.setdefault(instance.unroutable.report_id, []).append(instance)
        return [self._build_report(report_id, group, routed) for report_id, group in groups.items()]

    def _build_report(
        self, report_id: uuid.UUID, group: Sequence[_FailedInstance], routed: Collection[uuid.UUID]
    ) -> RoutingFailureReport:
        first = group[0]
        assert first.unroutable is not None
        # An error message refers to the report. So the report must not be deleted with the other instances.
        is_related = not any(instance.instance_id in routed for instance in group)
        count = f" The report is about {len(group):,} documents; this is the first." if len(group) > 1 else ""
        return RoutingFailureReport(
            message_id=derive_id(self._documents.units[first.chunk], IdKind.REPORT, first.unroutable.number),
            instance_id=report_id,
            related_instance_id=first.instance_id if is_related else None,
            last_related_instance_id=group[-1].instance_id if is_related else None,
            host_id=self._location.host_id,
            context=first.unroutable.context,
            description=first.failure.what + count,
            adapter=self._location.adapter_kind,
            uri=self._location.uri,
        )

    def _message_id(self, instance: _FailedInstance) -> uuid.UUID:
        return derive_id(self._documents.units[instance.chunk], IdKind.MESSAGE, instance.number)

    def _build_message(self, instance: _FailedInstance, message_id: uuid.UUID, context: Context) -> Message:
        """Return a message with the bytes of the failed interchange or document."""
        part_id = derive_id(self._documents.units[instance.chunk], IdKind.PART, instance.number)
        if instance.row is not None:
            parts = self._documents.build_parts(instance.row, part_id)
        else:
            assert instance.body is not None
            parts = self._documents.build_received_parts(instance.chunk, instance.body, part_id, instance.bad)
        [body_name] = [part.name for part in parts if part.part_id == part_id]
        return Message(context=context, parts=parts, body_part_name=body_name, message_id=message_id)

    def _build_suspended_context(self, instance: _FailedInstance) -> Context:
        if instance.bad is None:
            return instance.context
        disassembler = self._documents.get_disassembler(instance.chunk)
        context = build_suspended_context(instance.context, self._location.pipeline, disassembler, instance.bad)
        return resolve_originator(context, self._routing.login)

    # -- writing -----------------------------------------------------------------------------------------------

    @property
    def hosts(self) -> set[str]:
        """The hosts whose work queues get error messages or negative acknowledgements."""
        return self._errors.routes.hosts | self._nacks.routes.hosts

    def count_per_chunk(self) -> Iterator[npt.NDArray[np.int64]]:
        """Yield the number of suspended instances of each chunk, then the number of error messages."""
        for failed in (self._suspended, self._routed):
            chunks = np.array([instance.chunk for instance in failed], dtype=np.int64)
            yield np.bincount(chunks, minlength=len(self._documents.chunks))

    def write_messages(self, connection: Connection) -> None:
        """Copy suspended originals, error messages, negative acknowledgements and reports."""
        reports = [report.message for report in self._reports]
        messages = [*self._originals, *self._errors.messages, *self._nacks.messages, *reports]
        originators = [to_stored_originator(message.context, self._routing.login) for message in messages]
        contexts = [(message, message.context.to_json()) for message in messages]
        write_messages(connection, contexts, originators=originators)

    def write_routes(self, connection: Connection, lock: RoutingLock, ordered: OrderedRoutes) -> None:
        """Copy queue rows, suspended rows, and the references of all messages that are not documents of the batch."""
        host = self._routing.host_names[self._location.host_id]
        rows = [self._build_suspended_row(instance) for instance in self._suspended]
        write_suspensions(connection, host, lock, rows=rows, reports=self._reports, messages=self._originals)
        self._errors.write(connection, lock, ordered)
        self._nacks.write(connection, lock, ordered)
