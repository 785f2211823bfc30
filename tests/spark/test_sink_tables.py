"""Tables by JDBC: tasks stage the rows, and the driver merges them in one transaction."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from postroom.adapters import SparkTable
from postroom.message import Message
from postroom.messagebox.connection import Login
from postroom.messagebox.maintenance.check import check
from postroom.spark.sinks import jdbc
from postroom.spark.sinks.drain import Drain
from postroom.spark.sinks.jdbc import SEQ, TASK, Database, RowsRejected, connect_jdbc, to_statement_error
from postroom.spark.sinks.running_sinks import Sinks
from postroom.spark.sinks.writer import SparkWriter
from tests.support.box import Box, Region, Total
from tests.support.derby import Derby, open_derby
from tests.support.sinks import Killed, add_sink, drain_batch, drain_sinks, publish, read_port_id

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def derby(session: SparkSession, tmp_path: Path) -> Iterator[Derby]:
    with open_derby(session, tmp_path) as opened:
        yield opened


def drain_of(session: SparkSession, box: Box, login: Login, home: Path) -> Drain:
    return Drain(SparkWriter(session, home), box.host(), login=login, home=home)


def test_the_table_is_created_and_rows_are_merged(
    session: SparkSession, box: Box, login: Login, derby: Derby, tmp_path: Path
) -> None:
    parse = "id BIGINT, lines ARRAY<STRUCT<sku: STRING>>"
    add_sink(box, SparkTable(derby.url, "orders", columns={"region": Region, "total": Total}, parse=parse, body="text"))
    body = b'{"id": 7, "lines": [{"sku": "a"}]}'
    message = Message.of(body, promoted={Region: "EU", Total: Decimal("12.50")})
    [order] = box.agent().publish([message])
    publish(box, b"no JSON")
    sinks = Sinks(session, box.host(), login=login, home=tmp_path, once=True)
    drain_sinks(sinks, box.connection)
    assert sinks.counts["written"] == 1
    columns = '"message_id", "region", "total", "id", "lines", "body", "received_at"'
    [row] = derby.execute(f"SELECT {columns} FROM orders")
    assert row[:2] == (str(order.message_id), "EU")
    assert (Decimal(row[2]), row[3], json.loads(row[4]), row[5]) == (
        Decimal("12.5"),
        "7",
        [{"sku": "a"}],
        body.decode(),
    )
    published_at = box.messages()[-1].published_at.astimezone(UTC)
    assert row[6].startswith(published_at.strftime("%Y-%m-%d %H:"))
    assert box.suspended() == [("DELIVERY_REFUSED", True)]
    assert derby.tables() == ["ORDERS"]
    assert check(box.connection) == []


STEPS: dict[str, tuple[Any, str, bool]] = {
    "before the table is made": (Database, "prepare", False),
    "before the staging table is made": (Database, "create_staging", False),
    "before the rows are merged": (Database, "merge", False),
    "after the rows are merged": (Database, "merge", True),
    "after the staging table is dropped": (Database, "drop_staging", True),
}


def test_the_next_process_continues_the_interrupted_batch(
    session: SparkSession, box: Box, login: Login, derby: Derby, tmp_path: Path
) -> None:
    """Each attempt dies one step later than the one before. Then the batch is written once."""
    add_sink(box, SparkTable(derby.url, "orders"))
    ids = publish(box, b"a", b"b", b"c")
    drain = drain_of(session, box, login, tmp_path)
    for step, (owner, name, after) in STEPS.items():
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(owner, name, die_at(getattr(owner, name), step, after=after))
            with pytest.raises(Killed, match=step):
                drain_batch(drain, box)
        there = derby.execute('SELECT "message_id" FROM orders') if "ORDERS" in derby.tables() else []
        assert len(there) == (3 if "after" in step else 0), step
    assert drain_batch(drain, box) == 3
    assert Counter(message_id for (message_id,) in derby.execute('SELECT "message_id" FROM orders')) == Counter(ids)
    assert derby.tables() == ["ORDERS"]
    assert (box.count("sink batches"), box.count("suspended")) == (0, 0)


def die_at(function: Callable[..., Any], step: str, *, after: bool) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        if after:
            function(*arguments, **named)
        raise Killed(step)

    return call


@pytest.mark.parametrize("column", [TASK, SEQ])
def test_a_row_that_is_staged_twice_is_merged_once(
    session: SparkSession,
    box: Box,
    login: Login,
    derby: Derby,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    column: str,
) -> None:
    """A task was lost after its commit, or the message reached the port in two ways."""
    monkeypatch.setattr(jdbc, "_to_table_columns", _twice(jdbc._to_table_columns, column))
    add_sink(box, SparkTable(derby.url, "orders"))
    ids = publish(box, b"a", b"b")
    assert drain_batch(drain_of(session, box, login, tmp_path), box) == 2
    assert Counter(message_id for (message_id,) in derby.execute('SELECT "message_id" FROM orders')) == Counter(ids)


def test_staging_tables_are_dropped_if_a_late_session_drops_one_of_them(
    session: SparkSession, derby: Derby, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that made them was killed while it dropped them."""
    execute = Database._execute

    def execute_late(database: Database, statement: str) -> int:
        if statement == "DROP TABLE postroom_ab_1":
            derby.execute(statement)
        return execute(database, statement)

    for number in (1, 2, 3):
        derby.execute(f"CREATE TABLE postroom_ab_{number} (id INTEGER)")
    monkeypatch.setattr(Database, "_execute", execute_late)
    with connect_jdbc(session, derby.url, {}) as database:
        database.drop_staging("postroom_ab_", "orders", up_to=2)
    assert derby.tables() == ["POSTROOM_AB_3"]


def _twice(as_columns: Callable[[Any], Any], column: str) -> Callable[[Any], Any]:
    def rows(given: Any) -> Any:
        made = as_columns(given)
        return made.union(made.withColumn(column, made[column] + 1000))

    return rows


def test_a_row_that_an_existing_table_rejects_is_suspended_alone(
    session: SparkSession, box: Box, login: Login, derby: Derby, tmp_path: Path
) -> None:
    """The case of the column names does not matter."""
    derby.execute(
        "CREATE TABLE own (message_id VARCHAR(36) NOT NULL UNIQUE, interchange_id CLOB, message_type CLOB,"
        " received_at TIMESTAMP, region VARCHAR(5) CHECK (region <> 'XX'))"
    )
    add_sink(box, SparkTable(derby.url, "own", columns={"region": Region}, body="none"))
    [good] = publish(box, b"", region="EU")
    [too_long] = publish(box, b"", region="far away")
    [last] = publish(box, b"", region="US")
    [refused] = publish(box, b"", region="XX")
    assert drain_batch(drain_of(session, box, login, tmp_path), box) == 2
    assert sorted(derby.execute("SELECT message_id, region FROM own")) == sorted([(good, "EU"), (last, "US")])
    rows = [(str(row.message_id), row.error_description) for row in box.suspended_rows()]
    [(first, reason), (second, _)] = rows
    assert [first, second] == [too_long, refused]
    assert "rejects the row" in reason
    assert "22001" in reason
    assert derby.tables() == ["OWN"]


def test_the_problem_of_an_unsuitable_table_is_reported(
    session: SparkSession, box: Box, login: Login, derby: Derby, tmp_path: Path
) -> None:
    derby.execute("CREATE TABLE bare (message_id VARCHAR(36))")
    columns = "message_id VARCHAR(36), interchange_id CLOB, message_type CLOB, received_at TIMESTAMP"
    derby.execute(f"CREATE TABLE loose ({columns})")
    descriptions = {}
    for table in ("bare", "loose"):
        add_sink(box, SparkTable(derby.url, table, body="none"), name=table, filter=f"Orders.Region == '{table}'")
        publish(box, b"", region=table)
        assert drain_batch(drain_of(session, box, login, tmp_path), box, read_port_id(box, table)) == 0
        descriptions[table] = box.suspended_rows()[-1].error_description
    assert descriptions["bare"].startswith("The table bare has no column interchange_id.")
    assert descriptions["loose"].startswith("The table loose has no unique index on message_id alone.")
    url = derby.url.replace("create=true", "create=false").replace("data base", "nowhere")
    add_sink(box, SparkTable(url, "orders"), name="Away", filter="Orders.Region == 'away'")
    publish(box, b"", region="away")
    assert drain_batch(drain_of(session, box, login, tmp_path), box, read_port_id(box, "Away")) == 0
    assert box.scheduled_rows()[0].error_description.startswith("The database of the table cannot be")


def test_only_errors_of_rows_are_attributed_to_rows() -> None:
    assert [isinstance(to_statement_error("", state), RowsRejected) for state in ("22001", "23505", "42X05", "")] == [
        True,
        True,
        False,
        False,
    ]
