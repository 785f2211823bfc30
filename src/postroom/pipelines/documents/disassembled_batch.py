"""What a receive pipeline yields: batches of messages as Arrow columns, and the documents that failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa

from postroom.errors import BadValue, MessageFailure, PipelineFailure
from postroom.filters.columns import arrow_type
from postroom.message import BODY_NAME, FRAGMENT_SIZE, Body, Context, Message, Part
from postroom.pipelines.documents.spool import WRITTEN, beside
from postroom.properties import Property
from postroom.values import Value

if TYPE_CHECKING:
    from lxml import etree

#: The longest document that a pipeline reads into; what is longer passes through unread, or not at all.
MAX_DOCUMENT_SIZE = 64 << 20

NOTHING: Mapping[str, Value] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class BatchSize:
    """Where a batch ends: at ``rows`` documents, or with the one that brings it to ``bytes``."""

    rows: int
    bytes: int

    def __post_init__(self) -> None:
        if self.rows < 1 or self.bytes < 1:
            raise BadValue(f"A batch of {self.rows} rows and {self.bytes} bytes cannot hold anything.")


class Form(StrEnum):
    """How far a document had come that is suspended alone; so, where it goes on when it is resumed (ADR 0020)."""

    RECEIVED = "received"
    """Its disassembler did not get through with it. As it came, perhaps with what stood around it."""
    DISASSEMBLED = "disassembled"
    MAPPED = "mapped"


@dataclass(frozen=True, kw_only=True)
class BadDocument:
    """A document that is no message: its number in the interchange, its bytes in the form that it had reached, and
    why."""

    number: int
    body: bytes
    failure: MessageFailure
    form: Form = Form.RECEIVED
    #: By property key: what it was given so far, BTS.MessageType among it.
    values: Mapping[str, Value] = field(default_factory=dict)
    #: None: that of the interchange.
    content_type: str | None = None


@dataclass(frozen=True, kw_only=True)
class Decoded:
    """An interchange after its decode stage: where bodies that went by reference stand, and what its messages share."""

    body: Body
    context: Context
    content_type: str
    #: The parts beside the body part, which every message of the interchange has too, and where the body part stands
    #: among them (LRG-08, RCV-09).
    others: tuple[Part, ...] = ()
    body_name: str = BODY_NAME
    body_index: int = 0
    #: Which one of the pipeline has made the documents, from 1.
    disassembler: int = 1

    @classmethod
    def of(cls, message: Message, *, content_type: str, disassembler: int) -> Decoded:
        """What the documents of this message share; their bodies are of ``content_type``."""
        body = message.body
        assert body is not None
        return cls(
            body=body.body,
            context=message.context,
            content_type=content_type,
            others=tuple(part for part in message.parts if part is not body),
            body_name=body.name,
            body_index=message.parts.index(body),
            disassembler=disassembler,
        )

    def with_written(self, written: Body | None) -> Decoded:
        """The same, with a place for documents that were written."""
        return self if written is None else replace(self, body=beside(self.body, written, apart=WRITTEN))

    def around(self, body: Part) -> tuple[Part, ...]:
        """All parts of a message whose body part is this one."""
        return (*self.others[: self.body_index], body, *self.others[self.body_index :])


@dataclass(frozen=True, kw_only=True)
class Disassembled:
    """A batch of messages from one interchange.

    ``messages`` has one row per message, in order:

    | column           | type           | what                                                              |
    |------------------|----------------|-------------------------------------------------------------------|
    | number           | int64          | BTS.InterchangeSequenceNumber: 1 to n, bad documents counted too  |
    | body             | binary or null | the content; null if it is larger than ``FRAGMENT_SIZE``          |
    | offset, length   | int64 or null  | where a body that is null stands in the interchange, or beside it |
    | message_type     | string or null | BTS.MessageType                                                   |
    | a property's key | its Arrow type | one column per promoted property; null: not promoted              |
    """

    messages: pa.RecordBatch
    failures: tuple[BadDocument, ...] = ()
    #: If there is a decode stage, or documents were written. ``offset`` counts in its body then. The same for every
    #: batch of an interchange, but that what was written grows.
    decoded: Decoded | None = None
    #: Of XML: the root of each message as it was read, which may still stand in its envelope. For the validators that
    #: come with Postroom, so that they need not read it again; empty where nobody has read it.
    roots: tuple[etree._Element, ...] = field(default=(), compare=False, repr=False)
    #: Of a format: what it has written so far of documents that are null and stand nowhere in the interchange.
    written: Body | None = None


@lru_cache(maxsize=256)
def schema_of(promotes: tuple[Property, ...]) -> pa.Schema:
    """The columns of ``Disassembled.messages`` for a pipeline that promotes these properties."""
    return pa.schema(
        [
            pa.field("number", pa.int64(), nullable=False),
            pa.field("body", pa.binary()),
            pa.field("offset", pa.int64()),
            pa.field("length", pa.int64()),
            pa.field("message_type", pa.string()),
            *(pa.field(prop.key, arrow_type(prop.value_type)) for prop in promotes),
        ]
    )


def message_batch(
    promotes: tuple[Property, ...],
    *,
    numbers: Sequence[int],
    bodies: Sequence[bytes],
    offsets: Sequence[int],
    message_types: Sequence[str | None],
    columns: Sequence[pa.Array],
) -> pa.RecordBatch:
    """``Disassembled.messages`` from its columns; ``offsets`` says where each body starts in the interchange."""
    held: Sequence[bytes | None] = bodies
    starts: Sequence[int | None] = [None] * len(bodies)
    lengths = starts
    if max(map(len, bodies), default=0) > FRAGMENT_SIZE:
        large = [len(body) > FRAGMENT_SIZE for body in bodies]
        held = [None if is_large else body for body, is_large in zip(bodies, large, strict=True)]
        starts = [offset if is_large else None for offset, is_large in zip(offsets, large, strict=True)]
        lengths = [len(body) if is_large else None for body, is_large in zip(bodies, large, strict=True)]
    schema = schema_of(promotes)
    fixed = [
        pa.array(values, type=field.type)
        for values, field in zip((numbers, held, starts, lengths, message_types), schema, strict=False)
    ]
    return pa.RecordBatch.from_arrays([*fixed, *columns], schema=schema)


@dataclass(kw_only=True)
class Rows:
    """A batch that is built one document at a time."""

    promotes: tuple[Property, ...]
    numbers: list[int] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    message_types: list[str | None] = field(default_factory=list)
    values: list[Sequence[Value | None]] = field(default_factory=list)
    failures: list[BadDocument] = field(default_factory=list)
    roots: list[etree._Element] = field(default_factory=list)
    size: int = 0

    def add(
        self,
        number: int,
        body: bytes,
        values: Sequence[Value | None],
        *,
        offset: int,
        message_type: str | None,
        root: etree._Element | None = None,
    ) -> None:
        """One message, whose body starts at ``offset`` in the interchange if it has to go by reference. Of XML with its
        root; all messages of a batch have one, or none has."""
        self.numbers.append(number)
        self.bodies.append(body)
        self.offsets.append(offset)
        self.message_types.append(message_type)
        self.values.append(values)
        if root is not None:
            self.roots.append(root)
        self.size += len(body)

    def fail(
        self, number: int, body: bytes, failure: PipelineFailure, *, around: Mapping[str, Value] = NOTHING
    ) -> None:
        """One document that is no message, and what would have been promoted to it from around it."""
        self.failures.append(BadDocument(number=number, body=body, failure=failure, values=around))
        self.size += len(body)

    def __len__(self) -> int:
        return len(self.numbers) + len(self.failures)

    def fills(self, size: BatchSize) -> bool:
        return len(self) >= size.rows or self.size >= size.bytes

    def finish(self, written: Body | None = None) -> Disassembled:
        columns = [
            pa.array([values[position] for values in self.values], type=arrow_type(prop.value_type))
            for position, prop in enumerate(self.promotes)
        ]
        messages = message_batch(
            self.promotes,
            numbers=self.numbers,
            bodies=self.bodies,
            offsets=self.offsets,
            message_types=self.message_types,
            columns=columns,
        )
        failures, roots = tuple(self.failures), tuple(self.roots)
        return Disassembled(messages=messages, failures=failures, roots=roots, written=written)


def in_document(number: int, failure: PipelineFailure) -> PipelineFailure:
    """The failure of one document of an interchange, which it names."""
    return PipelineFailure(f"Document {number}: {failure.what}", why=failure.why, hint=failure.hint)


def read_whole(body: Body, format_name: str) -> bytes:
    """The content of an interchange that is one document."""
    if body.size > MAX_DOCUMENT_SIZE:
        raise too_large(f"The interchange has {body.size:,} bytes", format_name)
    return b"".join(body.chunks())


def too_large(what: str, format_name: str) -> PipelineFailure:
    return PipelineFailure(
        f"{what}, more than a pipeline reads into.",
        why=f"A {format_name} may have at most {MAX_DOCUMENT_SIZE:,} bytes, because it is held in memory.",
        hint="Split it before it is sent, or receive it with the PassThrough pipeline.",
    )
