"""Documents that were suspended alone: what is stored in addition to their bytes, and the pipeline that resumes them.

    SuspendedDocument(number=2, form=Form.DISASSEMBLED, disassembler=1, values={...})
    ResumedPipeline(load_pipeline(stored), suspended).disassemble(body)

Such a document is decoded already. If its disassembler failed, the disassembler runs again on the document without its
envelope. If a later stage failed, a reader for this kind of document replaces the disassembler, and the validate stage
follows. A document that was mapped is not mapped again (ADR 0020).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import PrivateAttr

from postroom.errors import PipelineFailure, format_count
from postroom.message import Body, Context, Message, Part
from postroom.pipelines.components.contract import Disassembler
from postroom.pipelines.definition import FORMAT_SECONDS, Definition, PassThrough, Pipeline
from postroom.pipelines.documents.disassembled_batch import BadDocument, BatchSize, DisassembledBatch, Form
from postroom.pipelines.receive.definition import Receive, ReceivePipeline
from postroom.pipelines.receive.stages import ComponentStages
from postroom.pipelines.rows.definition import Rows
from postroom.processes.time_limit import TimeLimit
from postroom.properties import Property
from postroom.system_properties import BTS
from postroom.values import Value, type_of

_TYPE = BTS.MessageType.key


@dataclass(frozen=True, kw_only=True)
class SuspendedDocument:
    """What is stored of a suspended document in addition to its bytes."""

    number: int
    """Its number in the original interchange."""
    form: Form
    disassembler: int | None
    """The number of the disassembler that made it, from 1. None: an older version suspended it without this number."""
    values: Mapping[str, Value] = field(default_factory=dict)
    """By property key: the promoted values that are not in its bytes."""
    parts: tuple[Part, ...] = ()
    """All parts. ``body_name`` names the part that the pipeline reads."""
    body_name: str | None = None


def get_external_values(pipeline: ReceivePipeline, disassembler: int, bad: BadDocument) -> Mapping[str, Value]:
    """Return the promoted values that reading the document alone would not give."""
    if bad.form is not Form.DISASSEMBLED:
        return bad.values
    source = _disassemblers(pipeline)[disassembler - 1]
    return source.select_external_values(bad.body, bad.values) if isinstance(source, Definition) else bad.values


class ResumedPipeline(Pipeline):
    """The rest of a receive pipeline for one suspended document.

    It is not recoverable, because a user may have replaced the document with several."""

    recoverable: ClassVar[bool] = False
    bad_documents: ClassVar[int | None] = None
    content_type: ClassVar[str] = Receive.content_type

    def __init__(self, pipeline: ReceivePipeline, suspended: SuspendedDocument) -> None:
        self._pipeline = pipeline
        self._suspended = suspended

    @property
    def promotes(self) -> tuple[Property, ...]:
        return self._rest.promotes

    @cached_property
    def _rest(self) -> Receive:
        return _remaining_stages(self._pipeline, self._suspended)

    def _run(self, body: Body, context: Context, size: BatchSize) -> Iterator[DisassembledBatch]:
        suspended = self._suspended
        message = Message(
            context=context, parts=suspended.parts or (Part(body=body),), body_part_name=suspended.body_name
        )
        time_limit = TimeLimit(self._rest.seconds)
        stages = ComponentStages(
            self._rest,
            time_limit,
            skips_probe=suspended.disassembler is not None,
            complete=lambda batch: self._fill_values(self._restore_number(batch)),
        )
        for batch in time_limit.iterate(lambda: stages.run(message, size)):
            # The party of a mapped document may have been resolved from the document before the map.
            yield self._fill_values(batch) if suspended.form is Form.MAPPED else batch

    def _restore_number(self, batch: DisassembledBatch) -> DisassembledBatch:
        """Return the batch with the number that the document has in the original interchange."""
        before = self._suspended.number - 1
        messages = batch.messages
        column = pc.add(messages["number"], before)
        return replace(
            batch,
            messages=messages.set_column(0, messages.schema.field("number"), column),
            failures=tuple(replace(bad, number=bad.number + before) for bad in batch.failures),
        )

    def _fill_values(self, batch: DisassembledBatch) -> DisassembledBatch:
        """Return the batch with the promoted values that are not in the document."""
        messages = batch.messages
        for key, value in self._suspended.values.items():
            if (position := messages.schema.get_field_index(key)) >= 0:
                field = messages.schema.field(position)
                column = pc.coalesce(messages[key], pa.scalar(value, field.type))
                messages = messages.set_column(position, field, column)
        return replace(batch, messages=messages)


class _UnparsedDocument(Disassembler):
    """Replaces a disassembler that cannot read its own output. It passes the document through."""

    content_type: str
    message_type: str | None
    _promotes: tuple[Property, ...] = PrivateAttr(default=())

    @property
    def promotes(self) -> tuple[Property, ...]:
        return self._promotes

    def disassemble(self, message: Message) -> Iterator[Message]:
        yield message.with_context(Context().promote(BTS.MessageType, self.message_type))


def _remaining_stages(pipeline: ReceivePipeline, suspended: SuspendedDocument) -> Receive:
    """Return a pipeline of the remaining stages that starts with a reader for the document."""
    sources = [_document_reader(source, suspended) for source in _original_disassemblers(pipeline, suspended)]
    if not isinstance(pipeline, Receive):
        return Receive(disassemble=sources, recoverable=False, seconds=FORMAT_SECONDS)
    done: dict[str, Any] = {"validators": ()} if suspended.form is Form.MAPPED else {}
    changed = {"decoders": (), "disassemblers": tuple(sources), "recoverable": False, **done}
    return pipeline.model_copy(update=changed)


def _disassemblers(pipeline: ReceivePipeline) -> Sequence[Any]:
    return (pipeline.disassemblers or (PassThrough(),)) if isinstance(pipeline, Receive) else (pipeline,)


def _original_disassemblers(pipeline: ReceivePipeline, suspended: SuspendedDocument) -> Sequence[Any]:
    """Return the disassembler that made the document, or all of them if it is not known."""
    disassemblers = _disassemblers(pipeline)
    if suspended.disassembler is None:
        return disassemblers
    if suspended.disassembler > len(disassemblers):
        raise PipelineFailure(
            f"The pipeline has no disassembler {suspended.disassembler}, which made this document.",
            why=f"The pipeline was changed and has {format_count(len(disassemblers), 'disassembler')} now.",
            hint="Apply an application whose pipeline has this disassembler and resume, or terminate the instance.",
        )
    return [disassemblers[suspended.disassembler - 1]]


def _document_reader(source: Any, suspended: SuspendedDocument) -> Any:
    """Return what reads the document in place of the disassembler that made it."""
    if suspended.form is Form.MAPPED:
        return _unparsed_document(suspended, suspended.values.get(_TYPE))
    is_received = suspended.form is Form.RECEIVED
    if isinstance(source, Definition):
        if (reader := source.make_resumed_reader(received=is_received)) is not None:
            return reader
        assert isinstance(source, Rows), "every format can read its documents"
        return _unparsed_document(suspended, source.message_type)
    return source if is_received else _unparsed_document(suspended, suspended.values.get(_TYPE))


def _unparsed_document(suspended: SuspendedDocument, message_type: Value | None) -> _UnparsedDocument:
    types = [part.content_type for part in suspended.parts if part.name == suspended.body_name]
    reader = _UnparsedDocument(
        content_type=types[0] if types else "application/octet-stream",
        message_type=None if message_type is None else str(message_type),
    )
    reader._promotes = tuple(
        Property.from_key(key, type_of(value)) for key, value in suspended.values.items() if key != _TYPE
    )
    return reader
