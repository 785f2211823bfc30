"""Documents that were suspended alone: what has to be kept beside their bytes, and the pipeline that takes them up.

    KeptDocument(number=2, form=Form.DISASSEMBLED, disassembler=1, values={...})
    ResumedPipeline(load_pipeline(stored), kept).disassemble(body)

Such a document is decoded already. One that its disassembler could not read goes through that once more, without the
envelope that it was cut out of; one that was refused later is read by what reads such documents, and goes on with the
validators; one that was mapped already is not mapped again (ADR 0020).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import PrivateAttr

from postroom.errors import PipelineFailure
from postroom.message import Body, Bytes, Context, Message, Part
from postroom.pipelines.components.contract import Disassembler
from postroom.pipelines.definitions import (
    FlatDocument,
    FlatFile,
    Format,
    Json,
    JsonLines,
    PassThrough,
    Xml,
    XmlReceive,
)
from postroom.pipelines.documents.disassembled_batch import NOTHING, BadDocument, BatchSize, Disassembled, Form
from postroom.pipelines.documents.message_batch import plain
from postroom.pipelines.flat.layout import HEADER
from postroom.pipelines.receive_pipeline import Receive, ReceivePipeline
from postroom.pipelines.rows import document as row_document
from postroom.pipelines.rows.definition import Rows
from postroom.pipelines.running import formats
from postroom.pipelines.running.component_stages import ComponentStages
from postroom.properties import Property
from postroom.system_properties import BTS
from postroom.time_limit import TimeLimit
from postroom.values import Value, type_of

#: How long a format, which has no limit of its own, may take for a document.
_SECONDS = 300.0
_TYPE = BTS.MessageType.key


@dataclass(frozen=True, kw_only=True)
class KeptDocument:
    """What is known of a document beside its bytes."""

    number: int
    """In the interchange that it came with."""
    form: Form
    disassembler: int | None
    """Which one it is from, from 1. None: another version has suspended it, which did not say."""
    values: Mapping[str, Value] = field(default_factory=dict)
    """What it was given and cannot say itself, by property key."""
    parts: tuple[Part, ...] = ()
    """All of them; ``body_name`` is the one that the pipeline reads."""
    body_name: str | None = None


def values_beside(pipeline: ReceivePipeline, disassembler: int, bad: BadDocument) -> Mapping[str, Value]:
    """Of what a document was given, what it would not have if it were read alone."""
    if bad.form is not Form.DISASSEMBLED:
        return bad.values
    source = _disassemblers(pipeline)[disassembler - 1]
    if isinstance(source, FlatFile):
        keys = {prop.key for prop, path in source.promotions.entries if path.startswith(HEADER)}
        return {key: value for key, value in bad.values.items() if key in keys}
    if isinstance(source, XmlReceive):
        # Which values are those of its envelopes shows only where it is read without them.
        own = _read_alone(source, bad.body)
        return {key: value for key, value in bad.values.items() if key != _TYPE and own.get(key) != value}
    if isinstance(source, Rows):
        return bad.values if row_document.format_of(source) is None else NOTHING
    return NOTHING if isinstance(source, Format) else bad.values


def can_be_resumed(pipeline: ReceivePipeline, bad: BadDocument) -> bool:
    """Whether the document can be taken up again, once it is mended."""
    return bad.form is not Form.RECEIVED or not isinstance(pipeline, Rows) or row_document.says_all(pipeline)


def _read_alone(source: XmlReceive, body: bytes) -> Mapping[str, Value]:
    """What it says itself; nothing, should it not be readable alone: resuming it will tell."""
    try:
        batches = list(formats.disassemble(source, Bytes(body), BatchSize(rows=1, bytes=1)))
    except PipelineFailure:
        return NOTHING
    rows = [row for batch in batches for row in batch.messages.to_pylist()]
    return {name: plain(value) for name, value in rows[0].items()} if rows else NOTHING


class ResumedPipeline:
    """A receive pipeline from where it has stopped at one document; it runs as a pipeline does. All of it or nothing:
    somebody may have mended it with several documents."""

    recoverable: ClassVar[bool] = False
    bad_documents: ClassVar[int | None] = None
    content_type: ClassVar[str] = Receive.content_type

    def __init__(self, pipeline: ReceivePipeline, kept: KeptDocument) -> None:
        self._pipeline = pipeline
        self._kept = kept

    @property
    def promotes(self) -> tuple[Property, ...]:
        return self._stages.promotes

    @cached_property
    def _stages(self) -> Receive:
        return _stages(self._pipeline, self._kept)

    def disassemble(
        self,
        body: Body,
        *,
        context: Context = Context(),  # noqa: B008 - immutable
        batch_rows: int = 10_000,
        batch_bytes: int = 16 << 20,
    ) -> Iterator[Disassembled]:
        """As a pipeline's."""
        kept, size = self._kept, BatchSize(rows=batch_rows, bytes=batch_bytes)
        message = Message(context=context, parts=kept.parts or (Part(body=body),), body_part_name=kept.body_name)
        time_limit = TimeLimit(self._stages.seconds)
        stages = ComponentStages(
            self._stages,
            time_limit,
            is_known=kept.disassembler is not None,
            complete=lambda batch: self._filled(self._numbered(batch)),
        )
        for batch in time_limit.iterate(lambda: stages.run(message, size)):
            # The party of a mapped document may have been found by what it was before.
            yield self._filled(batch) if kept.form is Form.MAPPED else batch

    def _numbered(self, batch: Disassembled) -> Disassembled:
        """With its number in the interchange that it came with."""
        before = self._kept.number - 1
        messages = batch.messages
        column = pc.add(messages["number"], before)
        return replace(
            batch,
            messages=messages.set_column(0, messages.schema.field("number"), column),
            failures=tuple(replace(bad, number=bad.number + before) for bad in batch.failures),
        )

    def _filled(self, batch: Disassembled) -> Disassembled:
        """With what does not stand in it."""
        messages = batch.messages
        for key, value in self._kept.values.items():
            if (position := messages.schema.get_field_index(key)) >= 0:
                field = messages.schema.field(position)
                column = pc.coalesce(messages[key], pa.scalar(value, field.type))
                messages = messages.set_column(position, field, column)
        return replace(batch, messages=messages)


class _AsItIs(Disassembler):
    """Takes the place of a disassembler that could not read its own documents."""

    content_type: str
    message_type: str | None
    _promotes: tuple[Property, ...] = PrivateAttr(default=())

    @property
    def promotes(self) -> tuple[Property, ...]:
        return self._promotes

    def disassemble(self, message: Message) -> Iterator[Message]:
        yield message.with_context(Context().promote(BTS.MessageType, self.message_type))


def _stages(pipeline: ReceivePipeline, kept: KeptDocument) -> Receive:
    """What of the pipeline is still to be done, with what reads the document at its beginning."""
    sources = [_reading(one, kept) for one in _from(pipeline, kept)]
    if not isinstance(pipeline, Receive):
        return Receive(disassemble=sources, recoverable=False, seconds=_SECONDS)
    done: dict[str, Any] = {"validators": ()} if kept.form is Form.MAPPED else {}
    changed = {"decoders": (), "disassemblers": tuple(sources), "recoverable": False, **done}
    return pipeline.model_copy(update=changed)


def _disassemblers(pipeline: ReceivePipeline) -> Sequence[Any]:
    return (pipeline.disassemblers or (PassThrough(),)) if isinstance(pipeline, Receive) else (pipeline,)


def _from(pipeline: ReceivePipeline, kept: KeptDocument) -> Sequence[Any]:
    """The disassembler that the document is from; all, where that is not known."""
    found = _disassemblers(pipeline)
    if kept.disassembler is None:
        return found
    if kept.disassembler > len(found):
        raise PipelineFailure(
            f"The pipeline has no disassembler {kept.disassembler} any more, which this document is from.",
            why=f"It was changed, and has {len(found)} now.",
            hint="Apply an application whose pipeline has it, and resume; or terminate the instance.",
        )
    return [found[kept.disassembler - 1]]


def _reading(source: Any, kept: KeptDocument) -> Any:
    """What reads the document, in place of the disassembler that it is from."""
    is_received = kept.form is Form.RECEIVED
    if kept.form is not Form.MAPPED:
        match source:
            case Json() | Xml():
                # It is cut out of its envelope.
                return source.model_copy(update={"split": None})
            case JsonLines() if not is_received:
                # One document, on however many lines.
                return Json(promote=source.promote, message_type=source.message_type)
            case FlatFile() if not is_received:
                return FlatDocument.model_construct(**dict(source))
            case Rows():
                return row_document.format_of(source) or _row(source, kept)
        if isinstance(source, Format) or is_received:
            return source
    return _as_it_is(kept, kept.values.get(_TYPE))


def _row(source: Rows, kept: KeptDocument) -> _AsItIs:
    if kept.form is not Form.RECEIVED:
        return _as_it_is(kept, source.message_type)
    row_document.must_say_all(source)
    return _AsItIs(content_type=source.body_content_type, message_type=source.message_type)


def _as_it_is(kept: KeptDocument, message_type: Value | None) -> _AsItIs:
    types = [part.content_type for part in kept.parts if part.name == kept.body_name]
    found = _AsItIs(
        content_type=types[0] if types else "application/octet-stream",
        message_type=None if message_type is None else str(message_type),
    )
    found._promotes = tuple(
        Property.from_key(key, type_of(value)) for key, value in kept.values.items() if key != _TYPE
    )
    return found
