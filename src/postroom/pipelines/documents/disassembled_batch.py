"""The batches that a receive pipeline yields: messages as Arrow columns, and the documents that failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from postroom.errors import BadValue, MessageFailure, PipelineFailure
from postroom.filters.columns import to_arrow_type
from postroom.message import BODY_NAME, FRAGMENT_SIZE, Body, Bytes, Context, Message, Part
from postroom.properties import Property
from postroom.temporary_bodies import WRITTEN_OFFSET, Spool, join_bodies
from postroom.values import Value

if TYPE_CHECKING:
    from lxml import etree

#: The maximum size of a document that a pipeline parses. Only PassThrough accepts larger ones.
MAX_DOCUMENT_SIZE = 64 << 20

#: How many batches ``yield_after_all_pass`` buffers. If there are more, all batches are made twice.
_MAX_BUFFERED_BATCHES = 4


@dataclass(frozen=True, kw_only=True)
class BatchSize:
    """The size of a batch. It ends after ``rows`` documents, or with the document that reaches ``bytes``."""

    rows: int
    bytes: int

    def __post_init__(self) -> None:
        if self.rows < 1 or self.bytes < 1:
            raise BadValue(f"A batch of {self.rows} rows and {self.bytes} bytes cannot contain a document.")


class Form(StrEnum):
    """The last step that a suspended document has passed. It continues after this step when it is resumed (ADR
    0020)."""

    RECEIVED = "received"
    """The disassembler failed. The document is in the form of the interchange, perhaps with its header and trailer."""
    DISASSEMBLED = "disassembled"
    MAPPED = "mapped"


@dataclass(frozen=True, kw_only=True)
class BadDocument:
    """A document that failed: its number in the interchange, its bytes in the form that it has reached, the failure."""

    number: int
    body: bytes
    failure: MessageFailure
    form: Form = Form.RECEIVED
    #: By property key: what was promoted so far, including BTS.MessageType.
    values: Mapping[str, Value] = field(default_factory=dict)
    #: None: the content type of the interchange.
    content_type: str | None = None
    resumable: bool = True


@dataclass(frozen=True, kw_only=True)
class DecodedInterchange:
    """An interchange after its decode stage: the body that offsets refer to, and what all its messages share."""

    body: Body
    context: Context
    content_type: str
    #: The parts other than the body part, which every message of the interchange has too, and the index of the body
    #: part among them (LRG-08, RCV-09).
    other_parts: tuple[Part, ...] = ()
    body_name: str = BODY_NAME
    body_index: int = 0
    #: The number of the disassembler that made the documents, from 1.
    disassembler: int = 1

    @classmethod
    def of(cls, message: Message, *, content_type: str, disassembler: int) -> DecodedInterchange:
        """Return what the documents of this message share. ``content_type`` is the media type of their bodies."""
        body = message.body
        assert body is not None
        return cls(
            body=body.body,
            context=message.context,
            content_type=content_type,
            other_parts=tuple(part for part in message.parts if part is not body),
            body_name=body.name,
            body_index=message.parts.index(body),
            disassembler=disassembler,
        )

    def with_written(self, written: Body | None) -> DecodedInterchange:
        """Return a copy whose offsets can also refer to the documents that were written."""
        return self if written is None else replace(self, body=join_bodies(self.body, written, offset=WRITTEN_OFFSET))

    def with_body_part(self, body: Part) -> tuple[Part, ...]:
        """Return all parts of a message with this body part."""
        return (*self.other_parts[: self.body_index], body, *self.other_parts[self.body_index :])


@dataclass(frozen=True, kw_only=True)
class DisassembledBatch:
    """A batch of messages from one interchange.

    ``messages`` has one row per message, in order:

    | column           | type           | meaning                                                              |
    |------------------|----------------|----------------------------------------------------------------------|
    | number           | int64          | BTS.InterchangeSequenceNumber: 1 to n; bad documents are counted too |
    | body             | binary or null | the content; null if it is larger than ``FRAGMENT_SIZE``             |
    | offset, length   | int64 or null  | the position of a body that is null, in ``decoded.body``             |
    | message_type     | string or null | BTS.MessageType                                                      |
    | a property's key | its Arrow type | one column per promoted property; null: not promoted                 |
    """

    messages: pa.RecordBatch
    failures: tuple[BadDocument, ...] = ()
    #: Set if there is a decode stage, or if documents were written. Offsets then refer to its body, else to the
    #: interchange. It is the same for every batch of an interchange, except that the written documents grow.
    decoded: DecodedInterchange | None = None
    #: XML only: the parsed root of each message, which may still be inside its envelope. Postroom's own validators use
    #: it instead of parsing again. Empty if the documents were not parsed.
    roots: tuple[etree._Element, ...] = field(default=(), compare=False, repr=False)
    #: The large documents that a format has written so far and that are not part of the interchange as they are.
    written: Body | None = None


@lru_cache(maxsize=256)
def arrow_schema(promotes: tuple[Property, ...]) -> pa.Schema:
    """Return the columns of ``DisassembledBatch.messages`` for a pipeline that promotes these properties."""
    return pa.schema(
        [
            pa.field("number", pa.int64(), nullable=False),
            pa.field("body", pa.binary()),
            pa.field("offset", pa.int64()),
            pa.field("length", pa.int64()),
            pa.field("message_type", pa.string()),
            *(pa.field(prop.key, to_arrow_type(prop.value_type)) for prop in promotes),
        ]
    )


def build_messages(
    promotes: tuple[Property, ...],
    *,
    numbers: Sequence[int],
    bodies: Sequence[bytes],
    offsets: Sequence[int],
    message_types: Sequence[str | None],
    columns: Sequence[pa.Array],
) -> pa.RecordBatch:
    """Build ``DisassembledBatch.messages`` from its columns. ``offsets`` are the start positions of the bodies."""
    contents: Sequence[bytes | None] = bodies
    starts: Sequence[int | None] = [None] * len(bodies)
    lengths = starts
    if max(map(len, bodies), default=0) > FRAGMENT_SIZE:
        large = [len(body) > FRAGMENT_SIZE for body in bodies]
        contents = [None if is_large else body for body, is_large in zip(bodies, large, strict=True)]
        starts = [offset if is_large else None for offset, is_large in zip(offsets, large, strict=True)]
        lengths = [len(body) if is_large else None for body, is_large in zip(bodies, large, strict=True)]
    schema = arrow_schema(promotes)
    fixed = [
        pa.array(values, type=field.type)
        for values, field in zip((numbers, contents, starts, lengths, message_types), schema, strict=False)
    ]
    return pa.RecordBatch.from_arrays([*fixed, *columns], schema=schema)


class Document(NamedTuple):
    """A document that becomes a message. ``offset`` is the position of its body, used if the body is too large for the
    column. ``root`` is for XML: all documents of a batch have one, or none has."""

    number: int
    body: bytes
    values: Sequence[Value | None]
    message_type: str | None
    offset: int = 0
    root: etree._Element | None = None


def build_batch(promotes: tuple[Property, ...], document: Document) -> DisassembledBatch:
    """Build the batch of an interchange that is one document."""
    [batch] = build_batches(promotes, [document], BatchSize(rows=1, bytes=1))
    return batch


def build_batches(
    promotes: tuple[Property, ...],
    documents: Iterable[Document | BadDocument],
    size: BatchSize,
    written: WrittenDocuments | None = None,
) -> Iterator[DisassembledBatch]:
    """Yield the documents in batches of this size. ``written`` has the large documents that were written."""
    builder = _BatchBuilder()
    for document in documents:
        if isinstance(document, BadDocument):
            builder.failures.append(document)
        else:
            builder.add(document)
        builder.size += len(document.body)
        if len(builder.numbers) + len(builder.failures) >= size.rows or builder.size >= size.bytes:
            yield builder.build(promotes, written)
            builder = _BatchBuilder()
    if builder.numbers or builder.failures:
        yield builder.build(promotes, written)


class _BatchBuilder:
    """The columns of a batch. Ten thousand documents would cost the garbage collector more time than their columns."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.failures: list[BadDocument] = []
        self.size = 0
        self._bodies: list[bytes] = []
        self._values: list[Sequence[Value | None]] = []
        self._message_types: list[str | None] = []
        self._offsets: list[int] = []
        self._roots: list[etree._Element] = []

    def add(self, document: Document) -> None:
        number, body, values, message_type, offset, root = document
        self.numbers.append(number)
        self._bodies.append(body)
        self._values.append(values)
        self._message_types.append(message_type)
        self._offsets.append(offset)
        if root is not None:
            self._roots.append(root)

    def build(self, promotes: tuple[Property, ...], written: WrittenDocuments | None) -> DisassembledBatch:
        messages = build_messages(
            promotes,
            numbers=self.numbers,
            bodies=self._bodies,
            offsets=self._offsets,
            message_types=self._message_types,
            columns=[
                pa.array([values[position] for values in self._values], type=to_arrow_type(prop.value_type))
                for position, prop in enumerate(promotes)
            ],
        )
        body = None if written is None else written.body
        return DisassembledBatch(
            messages=messages, failures=tuple(self.failures), roots=tuple(self._roots), written=body
        )


class WrittenDocuments:
    """The large documents that a disassembler had to write for one interchange (LRG-02).

    A document whose bytes are part of the interchange has its position there. Other documents have their position in
    this spool, for example documents of an XML envelope that declares their namespaces.
    """

    def __init__(self) -> None:
        self._spool = Spool()

    def store(self, document: bytes) -> int:
        """Store a document if it is large and return its offset for ``Document``. The offset of a small
        document does not matter. Raises PipelineFailure if it exceeds the maximum size."""
        if len(document) > MAX_DOCUMENT_SIZE:
            raise oversize_failure(f"The document has {len(document):,} bytes", "document")
        return WRITTEN_OFFSET + self._spool.append(Bytes(document)) if len(document) > FRAGMENT_SIZE else 0

    @property
    def body(self) -> Body | None:
        """All documents that were stored. It grows, and offsets stay valid."""
        return self._spool.body if self._spool.size else None


def pass_through(body: Body, size: BatchSize) -> Iterator[DisassembledBatch]:
    """Yield the interchange as one message (TYP-02), even if it is empty. A large body is passed by reference."""
    first, no_number, no_text = _get_single_values()
    if body.size > FRAGMENT_SIZE:
        columns = [first, pa.nulls(1, pa.binary()), pa.array([0]), pa.array([body.size]), no_text]
    else:
        columns = [first, pa.array([b"".join(body.chunks())], pa.binary()), no_number, no_number, no_text]
    yield DisassembledBatch(messages=pa.RecordBatch.from_arrays(columns, schema=arrow_schema(())))


@cache
def _get_single_values() -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return columns of one row with the number 1, no number and no text. A column takes 10 µs to make."""
    return pa.array([1], pa.int64()), pa.nulls(1, pa.int64()), pa.nulls(1, pa.string())


def yield_after_all_pass(
    make_batches: Callable[[], Iterator[DisassembledBatch]],
    *,
    is_immediate: Callable[[DisassembledBatch], bool] = lambda _: False,
) -> Iterator[DisassembledBatch]:
    """Yield the batches, but none before all of them could be made. If ``is_immediate`` returns True for the first
    batch, each is yielded as soon as it is made."""
    buffer: list[DisassembledBatch] | None = []
    batches = make_batches()
    for batch in batches:
        if buffer is not None:
            if not buffer and is_immediate(batch):
                yield batch
                yield from batches
                return
            buffer.append(batch)
            buffer = buffer if len(buffer) <= _MAX_BUFFERED_BATCHES else None
    yield from make_batches() if buffer is None else buffer


def add_document_number(number: int, failure: PipelineFailure) -> PipelineFailure:
    """Return the failure with the number of the document that it is about."""
    return PipelineFailure(f"Document {number}: {failure.what}", why=failure.why, hint=failure.hint)


def read_whole(body: Body, format_name: str) -> bytes:
    """Read an interchange that is one document into memory. Raises PipelineFailure if it exceeds the maximum size."""
    if body.size > MAX_DOCUMENT_SIZE:
        raise oversize_failure(f"The interchange has {body.size:,} bytes", format_name)
    return b"".join(body.chunks())


def oversize_failure(what: str, format_name: str) -> PipelineFailure:
    return PipelineFailure(
        f"{what}, which is more than a pipeline can read.",
        why=f"The maximum size of one {format_name} is {MAX_DOCUMENT_SIZE:,} bytes, because it is buffered in memory.",
        hint="Split it before you send it, or receive it with the PassThrough pipeline.",
    )
