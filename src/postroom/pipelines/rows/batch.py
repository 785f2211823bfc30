"""Converts the rows of a Spark reader to messages, by whole columns.

The input has a column ``body`` and columns ``value0``, ``value1``, … for the promotions in order. An optional
column ``bad`` has the bytes of the rows that the reader could not read, and null for the others. An optional column
``undecoded`` has the name of the encoding for rows with bytes that are not valid in it. Then ``bad`` has the row's
original bytes, unless they are lost. An optional column ``nulls`` has the names of the columns that are null in a row
that could not be read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from postroom.errors import PipelineFailure
from postroom.filters.columns import to_arrow_type
from postroom.message import FRAGMENT_SIZE
from postroom.pipelines.documents.disassembled_batch import BadDocument, arrow_schema
from postroom.pipelines.promotions import promotion_failure
from postroom.pipelines.rows.definition import Rows
from postroom.pipelines.rows.document import get_correction_hint
from postroom.pipelines.rows.row_text import UNKNOWN_REASON, explain_bad_row, find_xml_row, read_texts
from postroom.pipelines.rows.source import RowSource
from postroom.properties import Property
from postroom.values import MAX_PROMOTED_LENGTH, ValueType

BODY, BAD, UNDECODED, NULLS = "body", "bad", "undecoded", "nulls"

#: The types of columns whose values are compared to find the line of a row.
_COMPARED_TYPES = ("string", "int", "integer", "bigint", "long")
#: The first and last instants of Python's years, 1 to 9999, in microseconds since 1970.
_FIRST_INSTANT, _LAST_INSTANT = -62_135_596_800_000_000, 253_402_300_799_999_999


def value_name(position: int) -> str:
    """Return the name of the column for the promotion at a position."""
    return f"value{position}"


@dataclass(frozen=True, kw_only=True)
class RowMessages:
    """A batch of rows: the messages (see ``DisassembledBatch``), the bad rows, and the concatenated bodies that are too
    large for a column."""

    messages: pa.RecordBatch
    failures: tuple[BadDocument, ...]
    large: bytes


@dataclass(frozen=True, kw_only=True)
class SourceLine:
    """A line of a file."""

    number: int
    data: bytes
    text: str | None
    """None if the bytes are not in the encoding of the file."""


@dataclass(frozen=True, kw_only=True)
class RowOrigin:
    """The file that rows come from. ``find_line`` returns the line of a row by its number, or None."""

    file: str
    start: int = 0
    """The position in the file at which the numbers of the rows start."""
    find_line: Callable[[int], SourceLine | None] | None = None


def read_rows(pipeline: Rows, batch: pa.RecordBatch, first_number: int, origin: RowOrigin | None = None) -> RowMessages:
    """Convert the rows of ``batch``, numbered from ``first_number``."""
    numbers = np.arange(first_number, first_number + batch.num_rows)
    reasons: dict[int, PipelineFailure] = {}
    for row in find_rows_with_value(batch, UNDECODED):
        reasons[row] = _encoding_failure(pipeline, batch[UNDECODED][row].as_py(), batch[BAD][row].is_valid)
    for row in find_rows_with_value(batch, BAD):
        reasons.setdefault(row, _unreadable_failure(pipeline, batch, row, int(numbers[row])))
    columns = []
    for position, (prop, path) in enumerate(pipeline.promotions.entries):
        column, wrong = _convert_column(prop, batch[value_name(position)])
        columns.append(column)
        for row in np.flatnonzero(wrong).tolist():
            reasons.setdefault(row, _value_failure(pipeline, prop, path, batch[value_name(position)][row]))
    bodies = batch[BODY].cast(pa.binary())
    if bodies.null_count:
        for row in np.flatnonzero(pc.is_null(bodies).to_numpy(zero_copy_only=False)).tolist():
            reasons.setdefault(row, _missing_body_failure(pipeline))
    failures = tuple(
        _build_bad_row(pipeline, batch, row, int(numbers[row]), reasons[row], origin) for row in sorted(reasons)
    )
    if reasons:
        good = pa.array(np.setdiff1d(np.arange(batch.num_rows), list(reasons)))
        bodies, columns = bodies.take(good), [column.take(good) for column in columns]
        numbers = numbers[good.to_numpy()]
    messages, large = _build_messages(pipeline, numbers, bodies, columns)
    return RowMessages(messages=messages, failures=failures, large=large)


def find_rows_with_value(batch: pa.RecordBatch, name: str) -> list[int]:
    """Return the rows with a value in a column. There are none if the column does not exist."""
    if name not in batch.schema.names:
        return []
    rows: list[int] = np.flatnonzero(pc.is_valid(batch[name]).to_numpy(zero_copy_only=False)).tolist()
    return rows


def _build_messages(
    pipeline: Rows, numbers: npt.NDArray[np.int64], bodies: pa.Array, columns: Sequence[pa.Array]
) -> tuple[pa.RecordBatch, bytes]:
    rows = len(numbers)
    offsets, lengths = pa.nulls(rows, pa.int64()), pa.nulls(rows, pa.int64())
    sizes = pc.binary_length(bodies)
    large = b""
    if rows and pc.max(sizes).as_py() > FRAGMENT_SIZE:
        is_large = pc.greater(sizes, FRAGMENT_SIZE)
        large = b"".join(bodies.filter(is_large).to_pylist())
        lengths = pc.if_else(is_large, sizes.cast(pa.int64()), pa.scalar(None, pa.int64()))
        ends = pc.cumulative_sum(pc.fill_null(lengths, 0))
        offsets = pc.subtract(ends, lengths)
        bodies = pc.if_else(is_large, pa.scalar(None, pa.binary()), bodies)
    types = pa.array([pipeline.message_type], pa.string()).take(pa.array(np.zeros(rows, dtype=np.int64)))
    arrays = [pa.array(numbers, pa.int64()), bodies, offsets, lengths, types, *columns]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(pipeline.promotes)), large


def _convert_column(prop: Property, column: pa.Array) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Return the column in the Arrow type of the property, and the rows with a value that the property cannot have."""
    wanted = to_arrow_type(prop.value_type)
    wrong = None
    match prop.value_type:
        case ValueType.STR:
            column, undecoded = _decode_text(column)
            wrong = pc.or_(pc.greater(pc.utf8_length(column), MAX_PROMOTED_LENGTH), pc.match_substring(column, "\0"))
            wrong = pc.or_(pc.fill_null(wrong, False), undecoded)
        case ValueType.DECIMAL if pa.types.is_integer(column.type):
            column = column.cast(pa.int64()).cast(pa.decimal128(19, 0)).cast(wanted)
        case ValueType.FLOAT:
            # Adding zero makes 0.0 of -0.0, as ``check_value`` does.
            column = pc.add(column.cast(wanted), 0.0)
            wrong = pc.invert(pc.is_finite(column))
        case ValueType.DATETIME:
            column = column.cast(wanted)
            instants = column.cast(pa.int64())
            wrong = pc.or_(pc.less(instants, _FIRST_INSTANT), pc.greater(instants, _LAST_INSTANT))
        case _:
            column = column.cast(wanted)
    if wrong is None:
        return column, np.zeros(len(column), dtype=bool)
    return column, pc.fill_null(wrong, False).to_numpy(zero_copy_only=False)


def _decode_text(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the column as text, and the rows that are not valid UTF-8: some readers do not check it."""
    data = column.cast(pa.binary())
    try:
        return data.cast(pa.string()), pa.array(np.zeros(len(column), dtype=bool))
    except pa.ArrowInvalid:
        texts = [None if value is None else value.decode(errors="replace") for value in data.to_pylist()]
        undecoded = [
            text is not None and text.encode() != value for text, value in zip(texts, data.to_pylist(), strict=True)
        ]
        return pa.array(texts, pa.string()), pa.array(undecoded, pa.bool_())


# -- bad rows ------------------------------------------------------------------------------------------------------


def _build_bad_row(
    pipeline: Rows, batch: pa.RecordBatch, row: int, number: int, reason: PipelineFailure, origin: RowOrigin | None
) -> BadDocument:
    """Return a bad row with its bytes in the file, and the position in the reason. If the line is not found, the row is
    kept as Spark read it."""
    line = None if origin is None or origin.find_line is None else origin.find_line(number)
    if line is not None and not _is_line_of(pipeline, line, batch, row):
        line = None
    where = f"Row {number}"
    if line is not None and origin is not None:
        where = f"Line {line.number} of {origin.file}"
    elif origin is not None:
        where = f"Row {number}{f' after byte {origin.start}' if origin.start else ''} of {origin.file}"
    return BadDocument(
        number=number,
        body=_read_bytes(pipeline, batch, row, number) if line is None else line.data,
        failure=PipelineFailure(f"{where}{reason.what}", why=reason.why, hint=reason.hint),
    )


def _is_line_of(pipeline: Rows, line: SourceLine, batch: pa.RecordBatch, row: int) -> bool:
    """Return True if a line is the one of a row. Spark may have divided the file into other lines."""
    if (bad := _get_bad_text(pipeline, batch, row, line.number)) is not None:
        return bad == line.data or bad.decode(errors="replace") == line.text
    if pipeline.source is None or line.text is None:
        return False
    try:
        values = _read_comparable(pipeline.source, line.text)
        body = bytes(batch[BODY][row].as_py() or b"").decode()
        if pipeline.column is not None:
            return values[pipeline.column] == body
        written = _read_comparable(pipeline.source.for_messages(pipeline.body), body)
    except (ValueError, KeyError):
        return False
    names = [name for name, column_type in pipeline.source.types.items() if column_type in _COMPARED_TYPES]
    return bool(names) and all(values[name] == written[name] for name in names)


def _read_comparable(source: RowSource, text: str) -> dict[str, str | None]:
    """Return the texts of a row by column, in the same form for CSV and JSON."""
    values = read_texts(source, text)
    if source.format != "json":
        return dict(values)
    return {name: str(json.loads(value)) if value and value[0] == '"' else value for name, value in values.items()}


def _read_bytes(pipeline: Rows, batch: pa.RecordBatch, row: int, number: int) -> bytes:
    """Return a row as Spark read it: its text in the encoding of the file, or its message."""
    bad = _get_bad_text(pipeline, batch, row, number)
    if bad is None:
        return bytes(batch[BODY][row].as_py() or b"")
    encoding = "utf-8" if pipeline.source is None else pipeline.source.encoding
    try:
        return bad if encoding == "utf-8" else bad.decode().encode(encoding)
    except UnicodeError:
        return bad


def _get_bad_text(pipeline: Rows, batch: pa.RecordBatch, row: int, number: int) -> bytes | None:
    text = batch[BAD][row].as_py() if BAD in batch.schema.names else None
    text = text.encode() if isinstance(text, str) else text
    if text is not None and pipeline.source is not None and pipeline.source.format == "xml":
        return find_xml_row(pipeline.source, text, number) or text
    return text


def _unreadable_failure(pipeline: Rows, batch: pa.RecordBatch, row: int, number: int) -> PipelineFailure:
    why = UNKNOWN_REASON
    if pipeline.source is not None and NULLS in batch.schema.names:
        text = (_get_bad_text(pipeline, batch, row, number) or b"").decode(errors="replace")
        nulls = batch[NULLS][row].as_py() or ()
        why = explain_bad_row(pipeline.source, text, nulls, pipeline.hidden_columns)
    return PipelineFailure(" does not fit the schema.", why=why, hint=get_correction_hint(pipeline))


def _encoding_failure(pipeline: Rows, encoding: str, has_original: bool) -> PipelineFailure:
    lost = " The original bytes are lost; this is the row as Spark read it, with U+FFFD for these bytes."
    return PipelineFailure(
        f" is not {encoding}.",
        why=f"It has bytes that are not valid in this encoding.{'' if has_original else lost}",
        hint=f"Set the encoding of the reader, options={{'encoding': ...}}. {get_correction_hint(pipeline)}",
    )


def _value_failure(pipeline: Rows, prop: Property, path: str, value: pa.Scalar) -> PipelineFailure:
    # Arrow can format instants that Python cannot.
    text = "" if prop.sensitive else f" It is {_format_value(value)[:100]!r}."
    failure = promotion_failure(prop, path, f"It cannot be the value of {prop.value_type.noun} property.{text}")
    return PipelineFailure(f": {failure.what}", why=failure.why, hint=get_correction_hint(pipeline))


def _format_value(value: pa.Scalar) -> str:
    text = value.cast(pa.string())
    # Arrow does not check that its strings are UTF-8.
    return str(text.cast(pa.binary()).as_py().decode(errors="replace"))


def _missing_body_failure(pipeline: Rows) -> PipelineFailure:
    return PipelineFailure(
        f" has no value in the column {pipeline.column!r}, which is the body.",
        hint="Terminate the instance, or send the row again with a body.",
    )
