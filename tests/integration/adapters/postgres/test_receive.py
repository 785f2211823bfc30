"""The PostgreSQL adapter of receive locations polls a real table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom import adapters
from postroom.adapters.contract import Committed
from postroom.conformance.receive_adapters import ReceiveAdapterConformance, Source
from postroom.errors import DatabaseError, DefinitionError, Unavailable
from tests.support.outbox import AFTER, POLL, Outbox
from tests.support.outbox import declare_receive as declare


@pytest.fixture
def outbox(database: str) -> Iterator[Outbox]:
    outbox = Outbox(database)
    yield outbox
    outbox.connection.close()


class TestPostgresReceive(ReceiveAdapterConformance):
    @pytest.fixture
    def messagebox(self, database: str) -> str:
        return database

    @pytest.fixture
    def source(self, outbox: Outbox) -> Source:
        return outbox


def open_receiver(definition: adapters.ReceiveDefinition) -> adapters.ReceiveAdapter:
    adapter = definition.make_receiver(Path())
    adapter.open()
    return adapter


def test_a_row_without_a_body_column_is_a_json_object_of_its_columns(database: str, outbox: Outbox) -> None:
    outbox.connection.execute(
        "CREATE TABLE orders (id int, total numeric, placed timestamptz, tags text[], note text);"
        "INSERT INTO orders VALUES (7, 12.50, '2026-11-17 05:00Z', '{a,b}', NULL)"
    )
    definition = declare(
        database,
        poll="SELECT * FROM orders LIMIT %(limit)s FOR UPDATE SKIP LOCKED;",
        after="DELETE FROM orders WHERE id = %(id)s",
        body=None,
    )
    adapter = open_receiver(definition)
    [incoming] = adapter.poll(10)
    document = b"".join(incoming.body.chunks())
    assert json.loads(document) == {
        "id": 7,
        "total": 12.50,
        "placed": "2026-11-17T05:00:00+00:00",
        "tags": ["a", "b"],
        "note": None,
    }
    assert b"12.50" in document
    adapter.clean_up([Committed(incoming=incoming)])
    assert list(adapter.poll(10)) == []
    adapter.close()


def test_a_body_of_the_type_jsonb_is_received_as_text(database: str, outbox: Outbox) -> None:
    definition = declare(
        database,
        poll="""SELECT 1 AS id, '{"total": 12.50}'::jsonb AS body FROM public.outbox LIMIT %(limit)s FOR UPDATE""",
        after="DELETE FROM public.outbox WHERE %(id)s = 1",
    )
    outbox.put(b"")
    adapter = open_receiver(definition)
    [incoming] = adapter.poll(10)
    assert b"".join(incoming.body.chunks()) == b'{"total": 12.50}'
    adapter.close()


def test_a_row_that_another_poller_has_claimed_is_skipped(outbox: Outbox) -> None:
    outbox.put(b"one")
    outbox.put(b"two")
    first, second = open_receiver(outbox.definition), open_receiver(outbox.definition)
    [one] = first.poll(1)
    [two] = second.poll(10)
    assert one.key != two.key
    first.close()
    second.close()
    assert outbox.count() == 2


def test_an_updated_row_has_another_key_if_its_version_is_selected(database: str, outbox: Outbox) -> None:
    outbox.connection.execute(
        "CREATE TABLE customers (id int, city text, sent bool DEFAULT false); INSERT INTO customers VALUES (1, 'Ghent')"
    )
    definition = declare(
        database,
        poll="SELECT id, city, xmin::text AS version FROM customers WHERE NOT sent LIMIT %(limit)s FOR UPDATE",
        key=["id", "version"],
        after="UPDATE customers SET sent = true WHERE id = %(id)s",
        body=None,
    )
    assert definition.problems() == []
    adapter = open_receiver(definition)
    keys = []
    for _ in range(2):
        [incoming] = adapter.poll(10)
        keys.append(incoming.key)
        adapter.clean_up([Committed(incoming=incoming)])
        assert list(adapter.poll(10)) == []
        outbox.connection.execute("UPDATE customers SET sent = false")
    assert keys[0] != keys[1]
    adapter.close()


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"poll": POLL.replace("FROM public.outbox", "FROM nowhere")}, DatabaseError, "nowhere"),
        ({"key": ["number"]}, DefinitionError, "no column 'number'"),
        ({"body": "content"}, DefinitionError, "no column 'content'"),
        ({"after": "DELETE FROM public.outbox WHERE id = %(number)s"}, DefinitionError, "no column 'number'"),
        ({"body": "id"}, DefinitionError, "'id' of a row is of another type"),
        ({"options": {"port": "1", "host": "localhost"}}, Unavailable, "is not available"),
        ({"options": {"user": "nobody"}}, Unavailable, 'role "nobody"'),
    ],
)
def test_a_wrong_setting_is_an_error_of_the_poll(
    database: str, outbox: Outbox, arguments: dict[str, Any], error: type[Exception], said: str
) -> None:
    outbox.put(b"one")
    adapter = open_receiver(declare(database, **arguments))
    with pytest.raises(error) as raised:
        adapter.poll(10)
    assert said in str(raised.value)
    adapter.close()
    assert outbox.count() == 1


def test_a_statement_after_that_changes_no_row_is_an_error(database: str, outbox: Outbox) -> None:
    outbox.put(b"one")
    adapter = open_receiver(declare(database, after=f"{AFTER} AND false"))
    [incoming] = adapter.poll(10)
    with pytest.raises(DefinitionError, match="changed no row for"):
        adapter.clean_up([Committed(incoming=incoming)])
    assert [again.key for again in adapter.poll(10)] == [incoming.key]
    adapter.close()


def test_a_lost_connection_is_opened_again(outbox: Outbox) -> None:
    outbox.put(b"one")
    adapter = open_receiver(outbox.definition)
    [incoming] = adapter.poll(10)
    outbox.connection.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'postroom'"
        " AND datname = current_database()"
    )
    with pytest.raises(Unavailable):
        adapter.clean_up([Committed(incoming=incoming)])
    [again] = adapter.poll(10)
    assert again.key == incoming.key
    adapter.clean_up([Committed(incoming=again)])
    adapter.close()
    assert outbox.count() == 0
