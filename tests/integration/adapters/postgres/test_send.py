"""The PostgreSQL adapter of send ports writes rows into a real table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from postroom import adapters
from postroom.adapters.contract import BatchSendAdapter
from postroom.conformance.send_adapters import BatchAdapterConformance, Destination, attempt
from postroom.errors import DeliveryFailure, DeliveryRefused
from postroom.message import Message
from tests.support.box import Region, Total


class Table:
    """The table ``public.received`` with the bodies of messages."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True)
        self.connection.execute("CREATE TABLE public.received (delivery uuid, content bytea)")
        self.definition: adapters.SendDefinition = adapters.Postgres(
            url, "public.received", format=None, body="content", delivery_id="delivery"
        )

    def read_received(self) -> list[bytes]:
        return [content for (content,) in self.connection.execute("SELECT content FROM public.received", binary=True)]

    def break_down(self) -> None:
        self.connection.execute("ALTER TABLE public.received RENAME TO broken_down")

    def repair(self) -> None:
        self.connection.execute("ALTER TABLE public.broken_down RENAME TO received")


class TestPostgres(BatchAdapterConformance):
    @pytest.fixture
    def destination(self, database: str) -> Iterator[Destination]:
        table = Table(database)
        yield table
        table.connection.close()

    def test_a_repeated_message_is_inserted_once(self, adapter: adapters.SendAdapter, destination: Destination) -> None:
        message, first = Message.of(b"once"), attempt()
        adapter.send(message, first)
        adapter.send(message, first)
        assert destination.read_received() == [b"once"]
        adapter.send(message, attempt())  # of another port, or through a group
        assert destination.read_received() == [b"once", b"once"]


class Orders:
    """The table ``public.orders``, with a primary key."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.connection = psycopg.connect(url, autocommit=True)
        self.connection.execute(
            "CREATE TABLE public.orders (id int PRIMARY KEY, region text, total numeric CHECK (total >= 0),"
            " details jsonb, paid bool)"
        )

    def open_adapter(self, **arguments: Any) -> adapters.SendAdapter:
        definition = adapters.Postgres(self._url, "public.orders", **arguments)
        assert definition.problems() == []
        adapter = definition.make_sender(Path())
        adapter.open()
        return adapter

    def read(self, columns: str = "*") -> list[tuple[Any, ...]]:
        return self.connection.execute(f"SELECT {columns} FROM public.orders ORDER BY id".encode()).fetchall()


@pytest.fixture
def orders(database: str) -> Iterator[Orders]:
    orders = Orders(database)
    yield orders
    orders.connection.close()


def test_an_object_is_a_row_and_a_list_is_several(orders: Orders) -> None:
    adapter = orders.open_adapter()
    adapter.send(Message.of(b'{"id": 1, "total": 0.10, "paid": true, "details": {"lines": [1.50]}}'), attempt())
    adapter.send(Message.of(b'[{"id": 2, "region": "EU"}, {"id": 3, "total": null}]'), attempt())
    adapter.close()
    assert orders.read("id, region, total, details::text, paid") == [
        (1, None, Decimal("0.10"), '{"lines": [1.50]}', True),
        (2, "EU", None, None, None),
        (3, None, None, None, None),
    ]


def test_fields_and_properties_become_columns(orders: Orders) -> None:
    adapter = orders.open_adapter(
        fields={"id": "order.number", "paid": "order.paid"}, columns={"region": Region, "total": Total}, body="details"
    )
    document = b'{"order": {"number": 7}, "ignored": 1}'
    adapter.send(Message.of(document, promoted={Region: "EU", Total: Decimal("12.5")}), attempt())
    adapter.close()
    assert orders.read("id, paid, region, total, details->'ignored'") == [(7, None, "EU", Decimal("12.5"), 1)]


def test_a_list_becomes_an_array_that_the_receiving_adapter_reads_again(orders: Orders, database: str) -> None:
    orders.connection.execute("ALTER TABLE public.orders ADD tags text[], ADD matrix int[][]")
    body = b'{"id": 1, "tags": ["a b", "q\\"\\\\", null, "", "NULL"], "matrix": [[1, 2], [3, 4]], "details": [1, "x"]}'
    adapter = orders.open_adapter()
    adapter.send(Message.of(body), attempt())
    adapter.close()
    assert orders.read("tags, matrix, details") == [(["a b", 'q"\\', None, "", "NULL"], [[1, 2], [3, 4]], [1, "x"])]
    receive = adapters.PostgresReceive(
        database,
        poll="SELECT id, tags, matrix FROM public.orders LIMIT %(limit)s",
        after="DELETE FROM public.orders WHERE id = %(id)s",
        key=["id"],
    ).make_receiver(Path())
    receive.open()
    try:
        [incoming] = receive.poll(10)
        read = b"".join(incoming.body.chunks())
    finally:
        receive.close()
    sent = json.loads(body)
    assert json.loads(read) == {name: sent[name] for name in ("id", "tags", "matrix")}


def test_lines_of_csv_are_rows(orders: Orders) -> None:
    adapter = orders.open_adapter(format="csv")
    adapter.send(Message.of(b'id,region,total\r\n1,"EU, north",2.50\r\n2,,\r\n'), attempt())
    adapter.close()
    assert orders.read("id, region, total") == [(1, "EU, north", Decimal("2.50")), (2, None, None)]


def test_an_upsert_updates_the_row_with_the_same_key(orders: Orders) -> None:
    adapter = orders.open_adapter(mode="upsert", key=["id"])
    for _ in range(2):
        adapter.send(Message.of(b'{"id": 1, "region": "EU", "total": 5}'), attempt())
    adapter.send(Message.of(b'{"id": 1, "total": 6}'), attempt())
    adapter.send(Message.of(b'{"id": 1}'), attempt())
    adapter.close()
    assert orders.read("id, region, total") == [(1, "EU", Decimal(6))]


@pytest.mark.parametrize(
    ("body", "error", "said"),
    [
        (b"no JSON", DeliveryRefused, "not valid JSON"),
        (b"[1]", DeliveryRefused, "a row is an object"),
        (b'{"id": NaN}', DeliveryRefused, "NaN"),
        (b"\xff", DeliveryRefused, "not valid JSON"),
        (b"{}", DeliveryRefused, "a row without fields"),
        (b'{"id": "seven"}', DeliveryRefused, "invalid input syntax"),
        (b'{"id": 1, "total": -1}', DeliveryRefused, "orders_total_check"),
        (b'{"region": "EU"}', DeliveryRefused, "null value"),
        (b'{"id": 1, "region": "\\u0000"}', DeliveryRefused, "NUL"),
        (b'{"id": 1, "colour": "red"}', DeliveryFailure, 'column "colour"'),
        (b'[{"id": 8}, {"id": 9}]', DeliveryFailure, "duplicate key"),
    ],
)
def test_a_message_that_fails_leaves_no_row_and_stops_no_other(
    orders: Orders, body: bytes, error: type[Exception], said: str
) -> None:
    adapter = cast(BatchSendAdapter, orders.open_adapter())
    batch = [Message.of(b'{"id": 9}'), Message.of(body), Message.of(b'{"id": 10}')]
    first, failure, last = adapter.send_batch([(message, attempt()) for message in batch])
    assert (first, type(failure), last) == (None, error, None)
    assert said in str(failure)
    assert orders.read("id") == [(9,), (10,)]
    adapter.close()


def test_a_wrong_password_or_server_is_a_transient_failure_without_a_login(orders: Orders) -> None:
    adapter = adapters.Postgres("postgresql://etl@localhost:1/erp", "orders").make_sender(Path())
    with pytest.raises(DeliveryFailure) as raised:
        adapter.send(Message.of(b'{"id": 1}'), attempt())
    assert raised.value.what == "The rows could not be written to postgresql://localhost:1/erp."
    assert raised.value.why
