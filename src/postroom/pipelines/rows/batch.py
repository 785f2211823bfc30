"""Rows that a reader made, as a pipeline's messages: whole columns at a time.

The batch that comes in has a column ``body``, one named ``value0``, ``value1``, … for each promotion in its order, and
where the reader can tell, a column ``bad`` with the bytes of the rows that it could not read, null for the others. A
column ``undecoded`` names the encoding in which a row has bytes that are no characters; then ``bad`` has the row's own
bytes, unless they are lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from postroom.errors import PipelineFailure
from postroom.filters.columns import arrow_type
from postroom.message import FRAGMENT_SIZE
from postroom.pipelines.documents.disassembled_batch import BadDocument, schema_of
from postroom.pipelines.promote import cannot_promote
from postroom.pipelines.rows.definition import Rows
from postroom.pipelines.rows.document import says_all
from postroom.properties import Property
from postroom.values import MAX_PROMOTED_LENGTH, ValueType

BODY, BAD, UNDECODED = "body", "bad", "undecoded"

#: Python's years, 1 to 9999, in microseconds since 1970.
_FIRST_INSTANT, _LAST_INSTANT = -62_135_596_800_000_000, 253_402_300_799_999_999


def value_name(position: int) -> str:
    """The column of the promotion at a position."""
    return f"value{position}"


@dataclass(frozen=True, kw_only=True)
class RowMessages:
    """A batch of rows: the messages (see ``Disassembled``), the rows that are none, and the bodies that are too large
    to stand in a column, one after the other."""

    messages: pa.RecordBatch
    failures: tuple[BadDocument, ...]
    large: bytes


def read_rows(pipeline: Rows, batch: pa.RecordBatch, first_number: int) -> RowMessages:
    """The rows of ``batch``, numbered from ``first_number``."""
    numbers = np.arange(first_number, first_number + batch.num_rows)
    reasons: dict[int, PipelineFailure] = {}
    for row in rows_with(batch, UNDECODED):
        reasons[row] = _undecoded(pipeline, int(numbers[row]), batch[UNDECODED][row].as_py(), batch[BAD][row].is_valid)
    for row in rows_with(batch, BAD):
        reasons.setdefault(row, _unreadable(pipeline, int(numbers[row])))
    columns = []
    for position, (prop, path) in enumerate(pipeline.promotions.entries):
        column, wrong = _promoted(prop, batch[value_name(position)])
        columns.append(column)
        for row in np.flatnonzero(wrong).tolist():
            reasons.setdefault(row, _wrong(prop, path, int(numbers[row]), batch[value_name(position)][row]))
    bodies = batch[BODY].cast(pa.binary())
    if bodies.null_count:
        for row in np.flatnonzero(pc.is_null(bodies).to_numpy(zero_copy_only=False)).tolist():
            reasons.setdefault(row, _no_body(pipeline, int(numbers[row])))
    failures = tuple(
        BadDocument(number=int(numbers[row]), body=_as_it_came(batch, row), failure=reasons[row])
        for row in sorted(reasons)
    )
    if reasons:
        good = pa.array(np.setdiff1d(np.arange(batch.num_rows), list(reasons)))
        bodies, columns = bodies.take(good), [column.take(good) for column in columns]
        numbers = numbers[good.to_numpy()]
    messages, large = _messages(pipeline, numbers, bodies, columns)
    return RowMessages(messages=messages, failures=failures, large=large)


def rows_with(batch: pa.RecordBatch, name: str) -> list[int]:
    """Which rows have something in a column; none if there is no such column."""
    if name not in batch.schema.names:
        return []
    rows: list[int] = np.flatnonzero(pc.is_valid(batch[name]).to_numpy(zero_copy_only=False)).tolist()
    return rows


def _messages(
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
    return pa.RecordBatch.from_arrays(arrays, schema=schema_of(pipeline.promotes)), large


def _promoted(prop: Property, column: pa.Array) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """The column in the property's own Arrow type, and which rows have a value that the property cannot have."""
    wanted = arrow_type(prop.value_type)
    wrong = None
    match prop.value_type:
        case ValueType.STR:
            column, undecoded = _text(column)
            wrong = pc.or_(pc.greater(pc.utf8_length(column), MAX_PROMOTED_LENGTH), pc.match_substring(column, "\0"))
            wrong = pc.or_(pc.fill_null(wrong, False), undecoded)
        case ValueType.DECIMAL if pa.types.is_integer(column.type):
            column = column.cast(pa.int64()).cast(pa.decimal128(19, 0)).cast(wanted)
        case ValueType.FLOAT:
            # -0.0 is 0.0 in the domain, and adding zero makes it so.
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


def _text(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The column without what is no text, and which rows that was in: some readers pass on bytes as they are."""
    data = column.cast(pa.binary())
    try:
        return data.cast(pa.string()), pa.array(np.zeros(len(column), dtype=bool))
    except pa.ArrowInvalid:
        texts = [None if one is None else one.decode(errors="replace") for one in data.to_pylist()]
        undecoded = [
            text is not None and text.encode() != one for text, one in zip(texts, data.to_pylist(), strict=True)
        ]
        return pa.array(texts, pa.string()), pa.array(undecoded, pa.bool_())


def _as_it_came(batch: pa.RecordBatch, row: int) -> bytes:
    if BAD in batch.schema.names and (text := batch[BAD][row].as_py()) is not None:
        return bytes(text) if isinstance(text, bytes) else str(text).encode()
    return bytes(batch[BODY][row].as_py() or b"")


def _unreadable(pipeline: Rows, number: int) -> PipelineFailure:
    mend = "Resume the instance with the message that it should have become, or terminate it."
    send = "Terminate the instance, and send the row again: its message does not say what is promoted."
    return PipelineFailure(
        f"Row {number} does not fit the schema.",
        why="It has too few or too many columns, or a value that is not of its column's type, or is malformed.",
        hint=mend if says_all(pipeline) else send,
    )


def _undecoded(pipeline: Rows, number: int, encoding: str, is_as_it_came: bool) -> PipelineFailure:
    lost = " What they were could not be found again; this is the row as Spark has read it, with U+FFFD in their place."
    mend = "; or resume the instance with the message that it should have become" if says_all(pipeline) else ""
    return PipelineFailure(
        f"Row {number} is not {encoding}.",
        why=f"It has bytes that are no characters in that encoding.{'' if is_as_it_came else lost}",
        hint=f"Tell the reader how its files are written, options={{'encoding': ...}}, and send the row again{mend}.",
    )


def _wrong(prop: Property, path: str, number: int, value: pa.Scalar) -> PipelineFailure:
    # Arrow can write instants that Python cannot.
    text = "" if prop.sensitive else f" It is {_shown(value)[:100]!r}."
    failure = cannot_promote(prop, path, f"A {prop.value_type.python_type.__name__} property cannot have it.{text}")
    return PipelineFailure(f"Row {number}: {failure.what}", why=failure.why, hint=failure.hint)


def _shown(value: pa.Scalar) -> str:
    text = value.cast(pa.string())
    # Which need not be text, although Arrow has it as such.
    return str(text.cast(pa.binary()).as_py().decode(errors="replace"))


def _no_body(pipeline: Rows, number: int) -> PipelineFailure:
    return PipelineFailure(
        f"Row {number} has nothing in the column {pipeline.column!r}, which is the body.",
        hint="Terminate the instance, or send the row again with a body.",
    )
