"""Columns and tables of any name are written and read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from postroom import adapters
from postroom.adapters.contract import Committed
from postroom.conformance.send_adapters import attempt
from postroom.errors import DeliveryRefused
from postroom.message import Message

#: PostgreSQL keeps the first 63 bytes of a name.
LONG = "é" * 40
NAMES = [
    "discount %",
    "%",
    "%s",
    "%%",
    "%(id)s",
    "%b%t",
    "$1",
    "?",
    ":id",
    "{}",
    "{0}",
    'a "quoted" name',
    "it's",
    "back\\slash",
    "a.b",
    "select",
    "user",
    "Mixed Case",
    "größe",
    "数量",
    "line\nbreak",
    "-- comment",
    "claimed",
    LONG,
]


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


def create_table(connection: psycopg.Connection[Any], column: str, type: str = "text", table: str = "rows") -> None:
    create = sql.SQL("CREATE TABLE public.{} (id int PRIMARY KEY, {} {})")
    connection.execute(create.format(sql.Identifier(table), sql.Identifier(column), sql.SQL(type)))


def send(url: str, *documents: dict[str, object], table: str = "public.rows", **arguments: Any) -> None:
    definition = adapters.Postgres(url, table, **arguments)
    assert definition.problems() == []
    adapter = definition.make_sender(Path())
    adapter.open()
    try:
        for document in documents:
            adapter.send(Message.of(json.dumps(document).encode()), attempt())
    finally:
        adapter.close()


def read(connection: psycopg.Connection[Any], table: str = "rows") -> list[tuple[Any, ...]]:
    return connection.execute(sql.SQL("SELECT * FROM public.{} ORDER BY id").format(sql.Identifier(table))).fetchall()


@pytest.mark.parametrize("name", NAMES)
def test_a_column_of_any_name_is_written(database: str, connection: psycopg.Connection[Any], name: str) -> None:
    create_table(connection, name)
    send(database, {"id": 1, name: "100 %"})
    send(database, {"id": 1, name: "50 %"}, {"id": 2, name: None}, mode="upsert", key=["id"])
    assert read(connection) == [(1, "50 %"), (2, None)]


@pytest.mark.parametrize("name", NAMES)
def test_a_key_a_body_and_a_delivery_id_have_any_name(
    database: str, connection: psycopg.Connection[Any], name: str
) -> None:
    create_table(connection, name, "bytea")
    send(database, {"id": 1, "%": "é"}, fields={"id": "id"}, body=name)
    assert json.loads(read(connection)[0][1]) == {"id": 1, "%": "é"}
    connection.execute("DROP TABLE public.rows")
    create_table(connection, name, "text UNIQUE")
    send(database, {"id": 1, name: "a"}, {"id": 2, name: "a"}, mode="upsert", key=[name])
    assert read(connection) == [(2, "a")]
    connection.execute("DROP TABLE public.rows")
    create_table(connection, name)
    send(database, {"id": 1}, delivery_id=name)
    assert len(read(connection)) == 1


def test_a_body_that_is_not_text_is_written_to_a_column_with_a_long_name(
    database: str, connection: psycopg.Connection[Any]
) -> None:
    create_table(connection, LONG, "bytea DEFAULT ''")
    connection.execute("ALTER TABLE public.rows ALTER id SET DEFAULT 1")
    adapter = adapters.Postgres(database, "public.rows", format=None, body=LONG).make_sender(Path())
    adapter.send(Message.of(b"\xff\x00"), attempt())
    adapter.close()
    assert read(connection) == [(1, b"\xff\x00")]


@pytest.mark.parametrize("name", ["order", "user", "Mixed", "t$1", "x" * 70])
def test_a_table_has_a_reserved_or_long_name(database: str, connection: psycopg.Connection[Any], name: str) -> None:
    create_table(connection, "a", table=name)
    send(database, {"id": 1, "a": "b"}, table=f"public.{name}")
    assert read(connection, name) == [(1, "b")]


@pytest.mark.parametrize("name", ["", "a\x00b", "\ud800"])
def test_a_field_that_cannot_be_a_column_is_refused(
    database: str, connection: psycopg.Connection[Any], name: str
) -> None:
    create_table(connection, "a")
    with pytest.raises(DeliveryRefused):
        send(database, {"id": 1, name: "b"})
    assert read(connection) == []


@pytest.mark.parametrize("value", ["a\x00b", "\ud800"])
def test_a_text_that_postgresql_cannot_store_is_refused(
    database: str, connection: psycopg.Connection[Any], value: str
) -> None:
    create_table(connection, "a")
    with pytest.raises(DeliveryRefused):
        send(database, {"id": 1, "a": value})
    assert read(connection) == []


@pytest.mark.parametrize("name", [name for name in NAMES if ")" not in name and name != LONG])
def test_a_column_of_any_name_is_received(database: str, connection: psycopg.Connection[Any], name: str) -> None:
    create_table(connection, name)
    connection.execute("INSERT INTO public.rows VALUES (1, '100 %')")
    definition = adapters.PostgresReceive(
        database,
        poll="SELECT * FROM public.rows WHERE id %% 2 = 1 LIMIT %(limit)s FOR UPDATE SKIP LOCKED",
        key=[name],
        after=f"DELETE FROM public.rows WHERE id = %(id)s AND %({name})s LIKE '%%'",
    )
    assert definition.problems() == []
    adapter = definition.make_receiver(Path())
    adapter.open()
    [incoming] = adapter.poll(10)
    assert json.loads(b"".join(incoming.body.chunks())) == {"id": 1, name: "100 %"}
    adapter.clean_up([Committed(incoming=incoming)])
    adapter.close()
    assert read(connection) == []
