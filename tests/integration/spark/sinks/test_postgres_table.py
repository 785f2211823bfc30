"""Rows are copied into tables of PostgreSQL, and merged if some of them exist."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal

import psycopg
import pyarrow as pa
import pytest

from postroom.errors import DeliveryRefused
from postroom.spark.sinks.postgres_table import Table
from tests.support.box import Box

IDS = [str(uuid.UUID(int=number)) for number in range(6)]


@pytest.fixture
def table(box: Box) -> Table:
    box.connection.execute("CREATE SCHEMA IF NOT EXISTS public")
    return Table(url=box.url, name="public.orders")


@pytest.fixture
def target(table: Table) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with table.connect() as connection:
        yield connection


Target = psycopg.Connection[tuple[object, ...]]

VALUES: list[tuple[pa.DataType, list[object]]] = [
    (pa.string(), ["", "\\N", "\\.", "a\tb\r\nc\\", "größe \"x\", 'y'", "\x01\u2028"]),
    (pa.binary(), [b"", b"\\x00", bytes(range(256)), b"\n", b"\xff", b"\t"]),
    (pa.int64(), [0, -1, 2**63 - 1, -(2**63), 7, 8]),
    (pa.int16(), [0, -1, 1, 2, 3, 4]),
    (pa.decimal128(38, 18), [Decimal(0), Decimal("-0.000000000000000001"), Decimal("12.5"), *map(Decimal, "123")]),
    (pa.float64(), [0.0, -1.5e-300, 1e22, float("inf"), 0.1, 1.0]),
    (pa.bool_(), [True, False, True, False, True, False]),
    (pa.timestamp("us", tz="UTC"), [datetime(1, 1, 1, tzinfo=UTC), *[datetime(2026, 1, 31, 12, 0, 0, 7, UTC)] * 5]),
    (pa.date32(), [date(2026, 1, 31)] * 6),
    (pa.list_(pa.string()), [[], ["a\nb", "\\", None], ['"'], ["\t"], ["é"], ["x"]]),
]


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[str(kind) for kind, _ in VALUES])
def test_values_of_every_type_are_stored_unchanged(
    table: Table, target: Target, kind: pa.DataType, values: list[object]
) -> None:
    schema = pa.schema([("message_id", pa.string()), ("value", kind)])
    table.prepare(schema)
    columns = [pa.array([*IDS, str(uuid.UUID(int=9))]), pa.array([*values, None], kind)]
    rows = pa.RecordBatch.from_arrays(columns, schema=schema)
    # In two pieces: a piece of a column has an offset.
    table.add(target, rows.slice(0, 2))
    table.add(target, rows.slice(2))
    stored = target.execute("SELECT value FROM public.orders ORDER BY message_id").fetchall()
    assert [value for (value,) in stored] == [*values, None]


def test_the_settings_of_the_connection_are_used_and_not_shown(box: Box) -> None:
    table = Table(url=box.url, name="public.orders", settings={"application_name": "etl", "password": "p4ss"})
    with table.connect() as connection:
        assert connection.info.password == "p4ss"
        assert connection.execute("SELECT current_setting('application_name')").fetchone() == ("etl",)
    assert "p4ss" not in repr(table)


def test_rows_that_exist_are_kept_and_the_others_added(table: Table, target: Target) -> None:
    """A chunk that is written again, or a message that reaches the port twice."""
    schema = pa.schema([("message_id", pa.string()), ("body", pa.string())])
    table.prepare(schema)

    def add(*pairs: tuple[str, str]) -> None:
        table.add(target, pa.RecordBatch.from_pylist([dict(zip(schema.names, pair, strict=True)) for pair in pairs]))

    add((IDS[0], "a"))
    add((IDS[0], "other"), (IDS[1], "b"), (IDS[1], "b"))
    add((IDS[2], "c"))
    rows = target.execute("SELECT message_id::text, body FROM public.orders ORDER BY 1").fetchall()
    assert rows == [(IDS[0], "a"), (IDS[1], "b"), (IDS[2], "c")]
    with pytest.raises(DeliveryRefused, match="rejects the row"):
        add((IDS[3], "d"), (IDS[0], "a\0"))
    assert target.execute("SELECT count(*) FROM public.orders").fetchone() == (3,)


def test_another_unique_index_rejects_a_row(table: Table, target: Target) -> None:
    target.execute("CREATE TABLE public.orders (message_id uuid PRIMARY KEY, number bigint UNIQUE)")
    schema = pa.schema([("message_id", pa.string()), ("number", pa.int64())])
    table.add(target, pa.RecordBatch.from_arrays([[IDS[0]], [7]], schema=schema))
    with pytest.raises(DeliveryRefused, match="rejects the row"):
        table.add(target, pa.RecordBatch.from_arrays([IDS[1:3], [8, 7]], schema=schema))
    assert target.execute("SELECT number FROM public.orders").fetchall() == [(7,)]
