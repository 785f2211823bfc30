"""The documents of a batch of chunks, in columns, and their contexts.

The stored contexts are encoded for the whole batch at once. The part that the documents of an interchange share is
encoded once.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from postroom.agent.idempotency import NUMBER_BITS, IdKind, derive_id, unit_for_chunk
from postroom.agent.originator import PublisherLogin, resolve_originator, resolve_originator_columns
from postroom.agent.streaming.interchange import Chunk, Interchange
from postroom.filters.authorisation import predicates_to_json
from postroom.filters.columns import Columns, build_columns, to_arrow_type, to_plain_column, to_value_type
from postroom.message import BODY_NAME, MAX_PARTS, Body, Bytes, Context, Part
from postroom.messagebox.storage.stored_values import format_decimal
from postroom.pipelines.documents.disassembled_batch import BadDocument
from postroom.ports.receive_locations import ReceiveLocation
from postroom.properties import is_distinguished
from postroom.system_properties import BTS
from postroom.temporary_bodies import slice_body
from postroom.values import MAX_PROMOTED_LENGTH, Value, type_of, value_to_json

#: The first number of parts other than the body, and how many numbers each document has. Lower numbers are those of
#: body parts.
_FIRST_OTHER_PART, _OTHER_PARTS_PER_DOCUMENT = 1 << (NUMBER_BITS - 1), 1 << 10
assert _OTHER_PARTS_PER_DOCUMENT > MAX_PARTS

_NUMBER, _TYPE = BTS.InterchangeSequenceNumber.key, BTS.MessageType.key
_OWN_COLUMNS = ("number", "body", "offset", "length", "message_type", "content_type")

#: With offsets of 64 bits: the contexts of a large interchange can exceed 2 GB.
_TEXT = pa.large_string()

_encode_json = msgspec.json.Encoder().encode

#: The keys of the properties that every received message has promoted.
ALWAYS_PROMOTED = frozenset(
    prop.key
    for prop in (
        BTS.ReceivePortID,
        BTS.ReceivePortName,
        BTS.InboundTransportLocation,
        BTS.InboundTransportType,
        BTS.SuspendMessageOnRoutingFailure,
        BTS.InterchangeSequenceNumber,
    )
)


def build_initial_context(
    location: ReceiveLocation, interchange: Interchange, decoded: Context | None = None
) -> Context:
    """Return the initial context of every message of an interchange (CTX-20). ``decoded`` is the adapter's context
    after the decode stage."""
    # A resumed message keeps the id of its original interchange.
    original = interchange.context.get(BTS.InterchangeID) or str(interchange.interchange_id)
    context = interchange.context if decoded is None else decoded
    shared = _build_location_context(
        location.port_id, location.port_name, location.uri, location.adapter_type.transport_type, location.name
    )
    return context.merge(shared).write(BTS.InterchangeID, original)


@lru_cache(maxsize=256)
def _build_location_context(
    port_id: uuid.UUID, port_name: str, uri: str, transport_type: str, location_name: str
) -> Context:
    """Return what all messages of a location have in common."""
    return (
        Context()
        .promote(BTS.ReceivePortID, str(port_id))
        .promote(BTS.ReceivePortName, port_name)
        .promote(BTS.InboundTransportLocation, uri[:MAX_PROMOTED_LENGTH])
        .promote(BTS.InboundTransportType, transport_type)
        .promote(BTS.SuspendMessageOnRoutingFailure, True)
        .write(BTS.ReceiveLocationName, location_name)
    )


class Documents:
    """The documents that the pipeline made of some chunks. A document is a row."""

    def __init__(
        self, location: ReceiveLocation, content_type: str, chunks: Sequence[Chunk], login: PublisherLogin
    ) -> None:
        self.location = location
        self.content_type = content_type
        self.chunks = list(chunks)
        self.initial_contexts = [
            resolve_originator(build_initial_context(location, chunk.interchange, chunk.context), login)
            for chunk in chunks
        ]
        self.units = [
            unit_for_chunk(chunk.interchange.seed or chunk.interchange.interchange_id, chunk.number) for chunk in chunks
        ]
        self.table = _concatenate_tables(self.chunks)
        #: The chunk of each row.
        self.chunk_of = np.repeat(np.arange(len(chunks)), [chunk.rows for chunk in chunks])
        #: The values from the pipeline, by property key. Distinguished fields are not promoted.
        self.columns = resolve_originator_columns(get_value_columns(self.table), login)
        #: The parts other than the body that all documents of a chunk share. They are stored once per chunk.
        self.other_parts = [self._build_other_parts(number, 0) for number in range(len(chunks))]

    @property
    def promoted(self) -> Columns:
        """All promoted values, for matching."""
        shared = self._shared_promoted
        own = {
            key: _fill_missing(column, shared[key]) if key in shared else column
            for key, column in self.columns.items()
            if not is_distinguished(key)
        }
        return {**shared, **own}

    @property
    def _shared_promoted(self) -> Columns:
        """The promoted values of the interchanges. Most batches have the same values in all of them."""
        promoted = [context.promoted for context in self.initial_contexts]
        if all(values == promoted[0] for values in promoted):
            return promoted[0] if promoted else {}
        return {key: column.take(pa.array(self.chunk_of)) for key, column in build_columns(promoted).items()}

    @property
    def numbers(self) -> npt.NDArray[np.int64]:
        """The number of each document within its interchange."""
        if self.table is None:
            return np.empty(0, dtype=np.int64)
        numbers: npt.NDArray[np.int64] = self.table["number"].to_numpy()
        return numbers

    @property
    def is_inline(self) -> npt.NDArray[np.bool_]:
        """Whether the body of each document is in memory. The others are streamed from the interchange."""
        if self.table is None:
            return np.empty(0, dtype=bool)
        inline: npt.NDArray[np.bool_] = self.table["body"].is_valid().to_numpy()
        return inline

    def build_context(self, row: int) -> Context:
        """Return the context of one document."""
        return build_context(self.initial_contexts[int(self.chunk_of[row])], self.columns, row)

    def get_message_type(self, row: int) -> str | None:
        assert self.table is not None
        message_type: str | None = self.table["message_type"][row].as_py()
        return message_type

    def build_body(self, row: int) -> Body:
        """Return the body of a document, in memory or as a range of the interchange."""
        assert self.table is not None
        body: bytes | None = self.table["body"][row].as_py()
        if body is not None:
            return Bytes(body)
        offset, length = self.table["offset"][row].as_py(), self.table["length"][row].as_py()
        chunk = self.chunks[int(self.chunk_of[row])]
        return slice_body(chunk.source, offset, length)

    def group_by_kind(self, rows: npt.NDArray[np.int64]) -> tuple[list[tuple[str, str]], npt.NDArray[np.int64]]:
        """Return the distinct names and content types of body parts, and for each row the number of its own.

        They can differ between interchanges. A mapped document has the content type of its map."""
        of_chunks = [
            (chunk.decoded.body_name, chunk.decoded.content_type) if chunk.decoded else (BODY_NAME, self.content_type)
            for chunk in self.chunks
        ]
        kinds = list(dict.fromkeys(of_chunks))
        number_of = {kind: number for number, kind in enumerate(kinds)}
        kind_of = np.array([number_of[kind] for kind in of_chunks], dtype=np.int64)[self.chunk_of[rows]]
        if self.table is None or "content_type" not in self.table.column_names:
            return kinds, kind_of
        mapped = self.table["content_type"].take(pa.array(rows)).to_pylist()
        own = [
            (kinds[kind][0], content_type or kinds[kind][1])
            for kind, content_type in zip(kind_of.tolist(), mapped, strict=True)
        ]
        kinds = list(dict.fromkeys(own))
        number_of = {kind: number for number, kind in enumerate(kinds)}
        return kinds, np.array([number_of[kind] for kind in own], dtype=np.int64)

    def get_part_ids(self, row: int, body: bytes) -> list[bytes]:
        """Return the ids of all parts of a document in order. ``body`` is the id of its body part."""
        chunk = int(self.chunk_of[row])
        decoded = self.chunks[chunk].decoded
        found = [part.part_id.bytes for part in self.other_parts[chunk]]
        found.insert(decoded.body_index if decoded else 0, body)
        return found

    def build_body_part(self, row: int, part_id: uuid.UUID) -> Part:
        """Return the body part of a document."""
        kinds, [kind] = self.group_by_kind(np.array([row]))
        name, content_type = kinds[kind]
        return Part(name=name, body=self.build_body(row), content_type=content_type, part_id=part_id)

    def build_parts(self, row: int, part_id: uuid.UUID) -> tuple[Part, ...]:
        """Return all parts of a document, with ids of their own."""
        chunk, body = int(self.chunk_of[row]), self.build_body_part(row, part_id)
        decoded = self.chunks[chunk].decoded
        if decoded is None:
            return (body,)
        return replace(decoded, other_parts=self._build_other_parts(chunk, int(self.numbers[row]))).with_body_part(body)

    def build_received_parts(
        self, chunk: int, body: Body, part_id: uuid.UUID, bad: BadDocument | None
    ) -> tuple[Part, ...]:
        """Return the parts of an interchange as it was received, or of a document that could not be read."""
        decoded = self.chunks[chunk].decoded
        part = Part(body=body, content_type=self.content_type, part_id=part_id)
        if bad is not None and bad.content_type is not None:
            part = replace(part, content_type=bad.content_type)
        if bad is None or decoded is None:
            return (part,)
        part = replace(part, name=decoded.body_name)
        return replace(decoded, other_parts=self._build_other_parts(chunk, bad.number)).with_body_part(part)

    def get_disassembler(self, chunk: int) -> int:
        """Return the number of the disassembler that made the documents of a chunk. The first is 1."""
        decoded = self.chunks[chunk].decoded
        return 1 if decoded is None else decoded.disassembler

    def _build_other_parts(self, chunk: int, document: int) -> tuple[Part, ...]:
        """Return the other parts of a chunk with their ids for one document, or (0) for all documents."""
        decoded = self.chunks[chunk].decoded
        first = _FIRST_OTHER_PART + document * _OTHER_PARTS_PER_DOCUMENT
        return tuple(
            replace(part, part_id=derive_id(self.units[chunk], IdKind.PART, first + number))
            for number, part in enumerate(decoded.other_parts if decoded else ())
        )


def _fill_missing(column: pa.Array, shared: pa.Array | Value) -> pa.Array | Value:
    """Return a column whose missing values are those of the interchange, as in the stored contexts."""
    if not column.null_count:
        return column
    if column.null_count == len(column):
        return shared
    values = shared if isinstance(shared, pa.Array) else pa.scalar(shared, to_arrow_type(type_of(shared)))
    value_type = to_value_type(column.type)
    if value_type is None or value_type is not to_value_type(values.type):
        return column  # one of the two has not the type of the property
    return pc.coalesce(to_plain_column(column, value_type), values)


def get_value_columns(documents: pa.Table | None) -> dict[str, pa.Array]:
    """Return the columns of property values: those of the pipeline, the sequence number and the message type."""
    if documents is None:
        return {}
    columns = {_NUMBER: documents["number"], _TYPE: documents["message_type"]}
    columns |= {name: documents[name] for name in documents.column_names if name not in _OWN_COLUMNS}
    return {
        key: column.combine_chunks() if column.num_chunks != 1 else column.chunk(0) for key, column in columns.items()
    }


def _concatenate_tables(chunks: Sequence[Chunk]) -> pa.Table | None:
    tables = [chunk.documents for chunk in chunks if chunk.documents is not None]
    return pa.concat_tables(tables).combine_chunks() if tables else None


def encode_contexts(shared: Sequence[Context], columns: Mapping[str, pa.Array]) -> list[bytes]:
    """Return the stored context of each row (see ``Context.to_json``): the shared context and the values of the row.

    Distinguished fields are written, other values promoted. ``shared`` has one context per row. The rows of one
    interchange have the same object."""
    distinct = {id(context): context for context in shared}
    frames = [_build_frame(context) for context in distinct.values()]
    number_of = {key: number for number, key in enumerate(distinct)}
    frame_of = pa.array([number_of[id(context)] for context in shared], pa.int32())

    def take_text(part: Callable[[_Frame], str]) -> pa.Array:
        return pa.array(map(part, frames), _TEXT).take(frame_of)

    promoted = [_format_fragments(key, column) for key, column in columns.items() if not is_distinguished(key)]
    written = [_format_fragments(key, column) for key, column in columns.items() if is_distinguished(key)]
    if written:
        own = _concatenate_texts(written)
        # Every fragment starts with a comma. A received message always has promoted values, but not always written
        # ones.
        has_written = pa.array([frame.has_written for frame in frames]).take(frame_of)
        written = [pc.if_else(has_written, own, pc.utf8_slice_codeunits(own, 1))]
    parts = [take_text(lambda one: one.before), *promoted, take_text(lambda one: one.between), *written]
    encoded: list[bytes] = (
        _concatenate_texts([*parts, take_text(lambda one: one.after)]).cast(pa.large_binary()).to_pylist()
    )
    return encoded


def _concatenate_texts(texts: Sequence[pa.Array]) -> pa.Array:
    return pc.binary_join_element_wise(*texts, pa.scalar("", _TEXT))


@dataclass(frozen=True, kw_only=True)
class _Frame:
    """The JSON text around the promoted and the written values of a row."""

    before: str
    between: str
    after: str
    has_written: bool


def _build_frame(context: Context) -> _Frame:
    promoted, written = _format_values(context.promoted), _format_values(context.written)
    assert promoted, "a received message always has promoted system properties"
    required = f',"predicates":{_format_json(predicates_to_json(context.predicates))}' if context.predicates else ""
    return _Frame(
        before=f'\x01{{"promoted":{{{promoted}',
        between=f'}},"written":{{{written}',
        after=f"}}{required}}}",
        has_written=bool(written),
    )


def _format_fragments(key: str, column: pa.Array) -> pa.Array:
    """Return the values of a column as ``,"key":value``, or as empty text where a value is missing."""
    lead = pa.scalar(f",{_format_json(key)}:", _TEXT)
    if pa.types.is_integer(column.type):
        texts = column.cast(_TEXT)
    elif pa.types.is_decimal(column.type):
        decimals = [pa.scalar('{"decimal":"', _TEXT), _format_decimals(column), pa.scalar('"}', _TEXT)]
        texts = _concatenate_texts(decimals)
    else:
        # Texts, flags and times repeat: equal values are encoded once.
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        texts = pa.array(map(_format_value, encoded.dictionary.to_pylist()), _TEXT).take(encoded.indices)
    return pc.fill_null(_concatenate_texts([lead, texts]), "")


def _format_decimals(column: pa.Array) -> pa.Array:
    """Return decimals as text, without trailing zeros and without exponents."""
    texts = column.cast(_TEXT)
    if column.type.scale > 0:
        texts = pc.utf8_rtrim(pc.utf8_rtrim(texts, "0"), ".")
    has_exponent = pc.fill_null(pc.match_substring(texts, "E"), False)
    if not pc.any(has_exponent).as_py():
        return texts
    # Zero and very small numbers.
    others = pa.array(map(format_decimal, column.filter(has_exponent).to_pylist()), _TEXT)
    return pc.replace_with_mask(texts, has_exponent, others)


def _format_values(values: Mapping[str, Value]) -> str:
    """Return values as ``"key":value,"key":value``."""
    return _format_json({key: value_to_json(value) for key, value in values.items()})[1:-1]


def _format_value(value: Value) -> str:
    return _format_json(value_to_json(value))


def _format_json(value: object) -> str:
    return _encode_json(value).decode()


def build_context(shared: Context, columns: Mapping[str, pa.Array], row: int) -> Context:
    """Return the context of one row of a batch."""
    # An Arrow column of fixed scale adds trailing zeros to a Decimal.
    own = {key: column[row].as_py() for key, column in columns.items()}
    values = {
        key: Decimal(format_decimal(value)) if isinstance(value, Decimal) else value for key, value in own.items()
    }
    present = {key: value for key, value in values.items() if value is not None}
    return Context(
        {**shared.promoted, **{key: value for key, value in present.items() if not is_distinguished(key)}},
        {**shared.written, **{key: value for key, value in present.items() if is_distinguished(key)}},
        shared.predicates,
    )
