"""Convert simple messages to the rows of a sink, one column after the other.

Most messages are simple: their body is UTF-8 and the port has no map. Nothing but the values of the columns is decoded
of their contexts, and Arrow converts each column as a whole. This takes a fifth of the time of RowFormat.convert, which
converts all other messages and decides why a message cannot be converted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from operator import attrgetter, itemgetter
from types import NoneType
from typing import Any, cast

import msgspec
import numpy as np
import pyarrow as pa

from postroom.errors import is_environment_error
from postroom.messagebox.streams.sink_batches import SinkRows
from postroom.spark.sinks.row_format import ARROW_TYPES, RowFormat, read_lines, to_line
from postroom.system_properties import BTS
from postroom.values import ValueType

#: The originator of a message is not stored in its context.
_NOT_IN_CONTEXT = frozenset({BTS.OriginatorSID.key, BTS.OriginatorPID.key})
#: PostgreSQL counts microseconds from the year 2000, and Arrow from 1970.
_YEAR_2000 = 946_684_800_000_000
#: Fewer rows are not divided any more to find those that cannot be converted.
_SMALL = 32


def has_simple_columns(format: RowFormat) -> bool:
    """Return True if the columns of the format are in stored contexts and bodies."""
    return _NOT_IN_CONTEXT.isdisjoint(column.key for column in format.columns)


def convert_rows(format: RowFormat, rows: SinkRows) -> tuple[list[pa.RecordBatch], list[int]]:
    """Return the rows in order, and the numbers of the messages that could not be converted.

    The latter include good messages next to a bad one."""
    count = len(rows.seqs)
    try:
        return ([_convert(format, rows)] if count else []), []
    except Exception as error:
        if is_environment_error(error):
            raise
        if count <= _SMALL:
            return [], list(rows.seqs)
    half = slice(count // 2), slice(count // 2, None)
    converted = [convert_rows(format, rows.select(itemgetter(part))) for part in half]
    return [batch for batches, _ in converted for batch in batches], [seq for _, failed in converted for seq in failed]


def _convert(format: RowFormat, rows: SinkRows) -> pa.RecordBatch:
    """Return the rows. Raise an exception if one of the messages cannot be converted."""
    bodies = cast(Sequence[bytes], rows.bodies)  # simple messages have one; without bodies they are not used
    keys = (BTS.InterchangeID.key, BTS.MessageType.key, *(column.key for column in format.columns))
    types = (ValueType.STR, ValueType.STR, *(column.value_type for column in format.columns))
    values = _read_values(rows.contexts, keys)
    interchange_ids, message_types, *columns = (
        _ARRAYS[value_type](column) for column, value_type in zip(values, types, strict=True)
    )
    arrays = [pa.array(rows.message_ids, pa.string()), interchange_ids, message_types]
    arrays += [_to_times(rows.published_at), *columns]
    if format.parsed is not None:
        parsed = read_lines([to_line(body) for body in bodies], format.parsed)
        arrays += [parsed.column(name).combine_chunks() for name in format.parsed.names]
    if format.body == "binary":
        arrays.append(pa.array(bodies, pa.binary()))
    elif format.body == "text":
        arrays.append(pa.array(bodies, pa.binary()).cast(pa.string()))  # it checks the encoding
    return pa.RecordBatch.from_arrays(arrays, schema=format.schema)


def _read_values(contexts: Sequence[str], keys: Sequence[str]) -> list[list[Any]]:
    """Return for each key the values in the contexts. A promoted value precedes a written one."""
    names, decode = _make_decoder(tuple(dict.fromkeys(keys)))
    decoded = list(map(decode, contexts))
    promoted = list(map(attrgetter("promoted"), decoded))
    found = []
    for key in keys:
        values = list(map(attrgetter(names[key]), promoted))
        if None in values:
            written = map(attrgetter(f"written.{names[key]}"), decoded)
            values = [one if one is not None else other for one, other in zip(values, written, strict=True)]
        found.append(values)
    return found


@lru_cache(maxsize=16)
def _make_decoder(keys: tuple[str, ...]) -> tuple[dict[str, str], Callable[[str], Any]]:
    """Return the attributes of the keys, and a decoder of contexts that skips all other keys."""
    names = {key: f"value_{number}" for number, key in enumerate(keys)}
    fields = [(name, Any, None) for name in names.values()]
    values = msgspec.defstruct("Values", fields, rename={name: key for key, name in names.items()}, gc=False)
    parts = [(name, values, msgspec.field(default_factory=values)) for name in ("promoted", "written")]
    return names, msgspec.json.Decoder(msgspec.defstruct("Stored", parts, gc=False)).decode


def _to_times(times: Sequence[int]) -> pa.Array:
    return pa.array(np.array(times, np.int64) + _YEAR_2000).cast(pa.timestamp("us", tz="UTC"))


def _check_types(values: Sequence[Any], *allowed: type) -> None:
    """Raise TypeError if a value has another type. Arrow would convert some of them."""
    if not set(map(type, values)) <= {*allowed, NoneType}:
        raise TypeError(f"a value is not {allowed}")


def _to_strings(values: list[Any]) -> pa.Array:
    _check_types(values, str)
    return pa.array(values, ARROW_TYPES[ValueType.STR])


def _to_ints(values: list[Any]) -> pa.Array:
    _check_types(values, int)
    return pa.array(values, ARROW_TYPES[ValueType.INT])


def _to_bools(values: list[Any]) -> pa.Array:
    _check_types(values, bool)
    return pa.array(values, ARROW_TYPES[ValueType.BOOL])


def _to_decimals(values: list[Any]) -> pa.Array:
    _check_types(values, dict, int)
    texts = [None if value is None else value["decimal"] if type(value) is dict else str(value) for value in values]
    return pa.array(texts, pa.string()).cast(ARROW_TYPES[ValueType.DECIMAL])


def _to_floats(values: list[Any]) -> pa.Array:
    numbers = [None if value is None else float(value["float"]) for value in values]
    return pa.array(numbers, ARROW_TYPES[ValueType.FLOAT])


def _to_datetimes(values: list[Any]) -> pa.Array:
    moments = [None if value is None else datetime.fromisoformat(value["datetime"]) for value in values]
    return pa.array(moments, ARROW_TYPES[ValueType.DATETIME])


_ARRAYS: dict[ValueType, Callable[[list[Any]], pa.Array]] = {
    ValueType.STR: _to_strings,
    ValueType.INT: _to_ints,
    ValueType.DECIMAL: _to_decimals,
    ValueType.FLOAT: _to_floats,
    ValueType.BOOL: _to_bools,
    ValueType.DATETIME: _to_datetimes,
}
